"""One request from the command line: `--in NAME=VALUE` and `--out NAME=file`, held against the build's contract."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omnic.cli import files
from omnic.cli.refusal import Refusal
from omnic.contract.endpoints import Endpoint, Field, Slice
from omnic.contract.validate import Violation, validate
from omnic.contract.values import MAX_PIXELS, Upload
from omnic.manifest import Manifest

TERMINAL = "-"  # as the file of an output: standard output
_SUFFIXES = {"audio": "wav", "image": "png", "video": "mp4"}


@dataclass(frozen=True, slots=True)
class Request:
    """The generated method to call, with what, and where each output goes (a path, or `-`)."""

    method: str
    arguments: dict[str, Any]
    outputs: dict[str, str]


def request(manifest: Manifest, given: Iterable[str], wanted: Iterable[str]) -> Request:
    """The request that `NAME=VALUE` and `NAME=file` words ask for. Raises Refusal.

    A value that starts with `@` names a file that holds it, `@@` stands for `@`. Of the endpoints that take these
    names, the first that gives these outputs; of its slices, the one with the fewest stages.
    """
    values = dict(_pairs(given, "--in"))
    outputs = dict(_pairs(wanted, "--out"))
    for name in outputs:
        if name not in manifest.outputs:
            raise Refusal(f"--out {name}: {manifest.pipeline} gives {_listed(manifest.outputs)}")
    endpoint, named = _endpoint(manifest, values.keys())
    chosen = _slice(manifest, endpoint, outputs)
    outputs = outputs or {name: TERMINAL for name in chosen.outputs if manifest.outputs[name].kind == "text"}
    called = _called(named)
    body = _nested({field.name: _parsed(field, name, values[name]) for name, field in named.items()})
    if endpoint.field("modalities") is not None:
        body["modalities"] = [role for role, output in endpoint.outputs if output in chosen.outputs]
    try:
        accepted = validate(endpoint, body, manifest.requires, asked=chosen)
    except Violation as violation:
        field = violation.field or ""
        message = violation.message.replace(f"`{field}`", f"`{called.get(field, field)}`")
        raise Refusal(f"--in: {message}") from None
    arguments = {name: _read(endpoint, called, name, value) for name, value in accepted.arguments.items()}
    if "seed" in chosen.arguments and accepted.options.get("seed") is not None:
        arguments["seed"] = accepted.options["seed"]
    return Request(chosen.method, arguments, outputs)


def _pairs(words: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for word in words:
        name, given, value = word.partition("=")
        if not name or not given or not value:
            raise Refusal(f"{option} takes NAME={'VALUE' if option == '--in' else 'file'}, not `{word}`")
        if name in seen:
            raise Refusal(f"{option} {name} is given twice")
        seen.add(name)
        yield name, value


def _picture(name: str, text: str) -> Upload:
    """The file of a picture, opened but not read."""
    if not text.startswith("@") or text.startswith("@@"):
        raise Refusal(f"--in {name} takes a picture: name its file, {name}=@picture.png")
    return Upload(text[1:], io.BytesIO(files.read_bytes(text[1:])))


def _called(named: Mapping[str, Field]) -> dict[str, str]:
    """What each field is called on this command line. Raises Refusal for one that is called by two of its names."""
    found: dict[str, str] = {}
    for name, field in named.items():
        if (other := found.setdefault(field.name, name)) != name:
            raise Refusal(f"--in {other} and --in {name} mean the same: give one of them")
    return found


def _read(endpoint: Endpoint, called: Mapping[str, str], argument: str, value: Any) -> Any:
    """An argument with the picture that it may be read."""
    if not isinstance(value, Upload):
        return value
    from omnic.runtime.errors import RequestError
    from omnic.runtime.picture_files import read

    field = next(f for f in endpoint.fields if f.argument == argument and f.type.kind == "image")
    name = called.get(field.name, field.name)
    try:
        return read(value.file, name, int(field.type.bound("pixels") or MAX_PIXELS), alpha=field.name == "mask")
    except RequestError as error:
        raise Refusal(f"--in: {error}") from None


def _is_text(word: str) -> bool:
    """Whether a word of the command line was text: bytes that were none stand in it as halves of characters."""
    return not any("\ud800" <= c <= "\udfff" for c in word)


def _value(text: str) -> str:
    if text.startswith("@") and not text.startswith("@@"):
        return files.read_text(text[1:])
    if not _is_text(text):
        raise Refusal(f"--in takes UTF-8 text, not {text.encode(errors='backslashreplace').decode()}")
    return text.removeprefix("@")


def _names(endpoint: Endpoint) -> dict[str, Field]:
    """What a field may be called here: as in a request, or as the pipeline calls what takes its value."""
    found: dict[str, Field] = {}
    for field in endpoint.fields:
        if field.target == "server":
            continue
        kind, _, name = field.target.partition(" ")
        own = endpoint.entry if kind == "entry" else name
        for word in filter(None, (field.name, own)):
            found.setdefault(word, field)
    return found


def _endpoint(manifest: Manifest, given: Iterable[str]) -> tuple[Endpoint, dict[str, Field]]:
    """The first endpoint that takes all the given names and misses no required one, with the field of each name."""
    takes: list[str] = []
    for endpoint in manifest.endpoints:
        names = _names(endpoint)
        takes += [f"{endpoint.name} takes {_listed(names)}"]
        named = {name: names[name] for name in given if name in names}
        met = {field.argument for field in named.values()}
        if named.keys() == set(given) and all(f.argument in met for f in endpoint.fields if f.required):
            return endpoint, named
    if not takes:
        raise Refusal(f"{manifest.pipeline} serves no endpoint, so there is nothing to run")
    raise Refusal(f"--in {', '.join(given) or 'is missing'}: {'; '.join(takes)}")


def _slice(manifest: Manifest, endpoint: Endpoint, outputs: Mapping[str, str]) -> Slice:
    by_size = sorted(endpoint.slices, key=lambda s: len(s.stages))
    fitting = [s for s in by_size if outputs.keys() <= set(s.outputs)] if outputs else list(endpoint.slices)
    if not fitting:
        offers = " or ".join(_listed(s.outputs, " and ") for s in endpoint.slices)
        raise Refusal(f"--out {', '.join(outputs)}: with this input {endpoint.name} gives {offers}")
    chosen = fitting[0]
    silent = [name for name in chosen.outputs if manifest.outputs[name].kind != "text"]
    if not outputs and len(silent) == len(chosen.outputs):
        kind = manifest.outputs[silent[0]].kind
        raise Refusal(f"say where the {kind} goes: --out {silent[0]}={silent[0]}.{_SUFFIXES.get(kind, 'txt')}")
    return chosen


def _parsed(field: Field, called: str, text: str) -> Any:
    """The value as a request body would carry it, of a field that is `called` so here; a wrong one is left to the
    contract, which says what is wrong."""
    kind = field.type.kind
    if kind == "image":
        return _picture(called, text)
    text = _value(text)
    if kind == "chat":
        if text.lstrip().startswith("["):
            return _json(text)
        return [{"role": "user", "content": text}]
    if field.many:
        return _json(text) if text.lstrip().startswith("[") else [text]
    return text if kind in ("text", "enum", "size") else _json(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """`{"audio.voice": v}` as `{"audio": {"voice": v}}`."""
    body: dict[str, Any] = {}
    for name, value in flat.items():
        outer, dot, inner = name.partition(".")
        if dot:
            body.setdefault(outer, {})[inner] = value
        else:
            body[name] = value
    return body


def _listed(names: Iterable[str], word: str = ", ") -> str:
    return word.join(f"`{name}`" for name in names)
