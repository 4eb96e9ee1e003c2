"""An engine as it is kept: a directory with `entry.json`, which says what it was made for, and `engine`, the bytes.

What `entry.json` says is held against what is here before the bytes are given to anyone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

from omnic.runtime.engines.calls import Shapes
from omnic.runtime.errors import Stale

VERSION = 1  # of the layout of an entry
ENTRY, BLOB = "entry.json", "engine"


class Foreign(Stale):
    """An engine that was made for something else, or is not whole. One line with what it is, and what was wanted."""


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that an engine takes: its dtype as torch names it (`float32`), and the shapes it may have."""

    name: str
    dtype: str
    shapes: Shapes


@dataclass(frozen=True, slots=True)
class Key:
    """All that decides what an engine is, but the numbers of its weights. `graph` is the sha256 of the ONNX graph,
    `architecture` the GPU's (`sm_89`), `version` the builder's; `settings` are what it was told."""

    graph: str
    inputs: tuple[Input, ...]
    builder: str
    version: str
    architecture: str
    settings: Mapping[str, int]

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def difference(self, wanted: Key) -> str | None:
        """What is not as `wanted`, with both values, in one line."""
        for what in ("architecture", "builder", "version", "settings", "inputs", "graph"):
            if (here := getattr(self, what)) != (there := getattr(wanted, what)):
                return f"it is of {what} {_shown(here)}, and wanted is {_shown(there)}"
        return None


def _shown(value: object) -> str:
    match value:
        case tuple():
            return ", ".join(f"{i.name} {i.dtype}{i.shapes}" for i in value)
        case Mapping():
            return ", ".join(f"{name} = {item}" for name, item in sorted(value.items()))
    text = str(value)
    return text[:12] if len(text) == 64 else text


@dataclass(frozen=True, slots=True)
class Proof:
    """The engine ran beside the module it was made from. `error` is the largest difference over the largest value."""

    error: float
    bound: float
    device: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """What is known of an engine. `weights` is the sha256 of the weights in it, `names` and `nesting` are its outputs
    and how they nest; without `proof` it has never been run."""

    key: Key
    weights: str
    names: tuple[str, ...]
    nesting: str
    size: int
    sha256: str
    proof: Proof | None = None
    version: int = VERSION
    path: Path = field(default=Path(), compare=False)

    @property
    def name(self) -> str:
        return f"{self.key.digest}-{self.weights[:16]}"

    def blob(self) -> bytes:
        """Raises Foreign unless it is what was put there."""
        try:
            found = (self.path / BLOB).read_bytes()
        except OSError as error:
            raise Foreign(f"{self.path / BLOB} cannot be read: {error.strerror}") from None
        if len(found) != self.size:
            raise Foreign(f"{self.path / BLOB} has {len(found)} bytes, and should have {self.size}")
        if (is_ := hashlib.sha256(found).hexdigest()) != self.sha256:
            raise Foreign(f"{self.path / BLOB} has sha256 {is_[:12]}, and should have {self.sha256[:12]}")
        return found

    def require(self, *, builder: str, version: str, architecture: str) -> None:
        """Raises Foreign, with both values, unless it runs there."""
        for what, here in (("architecture", architecture), ("builder", builder), ("version", version)):
            if (was := getattr(self.key, what)) != here:
                raise Foreign(f"{self.path} is an engine for {what} {was}, and here it is {here}: build again")

    def proven(self, proof: Proof) -> Artefact:
        """The same, with the proof written down."""
        made = replace(self, proof=proof)
        _write(self.path / ENTRY, made.dump())
        return made

    def dump(self) -> bytes:
        held = {name: value for name, value in asdict(self).items() if name != "path"}
        return (json.dumps(held, indent=2) + "\n").encode()


def read(path: Path) -> Artefact:
    """What is kept in a directory; its bytes are not looked at. Raises Foreign."""
    try:
        data = json.loads((path / ENTRY).read_bytes())
        if data.get("version") != VERSION:
            raise Foreign(f"{path} has layout {data.get('version')}, and this omnic reads {VERSION}: build again")
        return replace(msgspec.convert(data, Artefact), path=path)
    except OSError as error:
        raise Foreign(f"{path} holds no engine: {error.strerror}") from None
    except (ValueError, AttributeError) as error:  # JSON, and msgspec's ValidationError
        raise Foreign(f"{path / ENTRY} is damaged: {error}") from None


def put(made: Artefact, blob: bytes, path: Path) -> Artefact:
    """Writes an engine to `path` whole, in place of what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        partial, old = Path(folder) / "new", Path(folder) / "old"
        partial.mkdir()
        (partial / BLOB).write_bytes(blob)
        (partial / ENTRY).write_bytes(made.dump())
        if path.exists():
            path.replace(old)
        partial.replace(path)
    return replace(made, path=path)


def _write(file: Path, data: bytes) -> None:
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(file)
