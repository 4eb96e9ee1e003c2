"""The keys `loras` and `fuse` of a stage: models that are adapters of the stage's own model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnic.catalog.lora import FAMILY, misfit
from omnic.catalog.part import Key, Part
from omnic.contract.adapters import BASE
from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check.bound import Model, Stage, Value
from omnic.dsl.check.expressions import span_of
from omnic.expr import Expr, Literal, Name
from omnic.source import Span
from omnic.spelling import did_you_mean

KEYS = ("loras", "fuse")


def offered(declared: ast.Stage, part: Part) -> Part:
    """The part with the keys by which requests choose among the adapters that the stage's block names in `loras`."""
    names = [name for s in _settings(declared) if str(s.path) == "loras" for name, _ in _names(s.value)]
    if not names:
        return part
    choices = (BASE, *dict.fromkeys(names))
    which = Key("lora", Type("enum", choices), BASE, Choices(choices), "an adapter, or `base` for none", field="lora")
    scale = Key("lora_scale", Type("float"), 1.0, Range(-8.0, 8.0), "what the adapter is multiplied by",
                field="lora_scale")  # fmt: skip
    return replace(part, keys=(*part.keys, which, scale))


def bound(
    values: tuple[Value, ...], declared: ast.Stage, stage: Stage, models: Mapping[str, Model], sink: Sink
) -> tuple[Value, ...]:
    """The values of a stage with those of `loras` and `fuse` as the names of models; errors where they are none, or
    do not fit."""
    spans = {name: span for s in _settings(declared) for name, span in _names(s.value)}
    return tuple(_bound(value, spans, stage, models, sink) if value.key.name in KEYS else value for value in values)


def used(declared: ast.Stage) -> set[str]:
    """The models that a stage's block names as adapters."""
    return {name for s in _settings(declared) for name, _ in _names(s.value)}


def _settings(declared: ast.Stage) -> list[ast.Setting]:
    """Those of the block that name adapters."""
    return [s for s in declared.block.settings if str(s.path) in KEYS] if declared.block else []


def _bound(value: Value, spans: Mapping[str, Span], stage: Stage, models: Mapping[str, Model], sink: Sink) -> Value:
    given = value.value if isinstance(value.value, tuple) else (value.value,)
    adapters = [m.name for m in models.values() if m.model is not None and m.model.family == FAMILY]
    for name in given:
        at = spans.get(name, value.span)
        if not isinstance(name, str) or name == BASE:
            why = "`base` stands for none" if name == BASE else 'such as `["neon"]`'
            sink.error("wrong-value", f"`{value.key.name}` takes names of models that are adapters", at, why)
        elif name not in models:
            there = f"adapters are {listing(adapters)}" if adapters else "no model here is an adapter"
            sink.error("unknown-model", f"there is no model `{name}`", at, did_you_mean(name, adapters) or there)
        elif (model := models[name].model) is not None and stage.part is not None:
            declared = [Label(models[name].span, f"`{name}`")]
            if model.family != FAMILY:
                why = f"it is a `{model.family}`"
                sink.error("not-an-adapter", f"`{name}` is no adapter", at, why, secondary=declared)
            elif (why_not := misfit(model, stage.part)) is not None:
                headline = f"adapter `{name}` does not fit `{stage.what}`: {why_not}"
                sink.error("adapter-does-not-fit", headline, at, secondary=declared)
    if len(set(given)) < len(given):
        sink.error("wrong-value", f"`{value.key.name}` names an adapter twice", value.span)
    return value._replace(value=tuple(given))


def _names(value: Expr) -> list[tuple[str, Span]]:
    """The strings and bare words of a value, as far as it holds them, and where they stand."""
    match value:
        case ast.List():
            return [found for item in value.items for found in _names(item)]
        case Literal(value=str(name)) | Name(path=(name,)):
            return [(name, span_of(value))]
    return []
