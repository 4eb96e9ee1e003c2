"""`serve`: each endpoint exists and every field of it finds its place in the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from omnic.catalog.part import Part
from omnic.contract.domains import within
from omnic.contract.endpoints import (
    ENDPOINTS,
    BindError,
    Endpoint,
    Knob,
    ParamSpec,
    Signature,
    Slice,
    bind,
    nearly,
    offered,
)
from omnic.contract.types import Type
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check.bound import Edge, End, Given, Param, Pipeline, Stage, Use
from omnic.expr import Name
from omnic.source import Span
from omnic.spelling import did_you_mean


class Served(NamedTuple):
    """What of a pipeline endpoints bind to. `complete` tells that no stage or edge is in doubt."""

    inputs: Mapping[str, Given]
    outputs: Mapping[str, Given]
    params: Mapping[str, Param]
    stages: Mapping[str, Stage]
    edges: Sequence[Edge]
    complete: bool

    @property
    def signature(self) -> Signature:
        return Signature(
            inputs={g.name: g.type for g in self.inputs.values()},
            outputs={g.name: g.type for g in self.outputs.values()},
            params={p.name: ParamSpec(p.type, p.domain, p.default) for p in self.params.values()},
            knobs=tuple(knob for stage in self.stages.values() for knob in knobs(stage)),
        )


def knobs(stage: Stage, prefix: str = "") -> Iterator[Knob]:
    """The keys of a stage that it leaves to requests."""
    if stage.inner is not None:
        for inner in stage.inner.stages.values():
            yield from knobs(inner, f"{prefix}{stage.name}.")
        return
    pinned = {value.key.name for value in stage.values}
    for key in stage.part.keys if stage.part else ():
        if key.field is not None and key.name not in pinned:
            yield Knob(f"{prefix}{stage.name}", key.name, key.field, key.type, key.domain, key.default, key.doc)


def check_fields(served: Served, sink: Sink) -> None:
    """An input cannot have the name of a field that requests have anyway, nor can a param that would not do for it."""
    taken = {"seed": "the draws of all stages"}
    open_ = [knob for stage in served.stages.values() for knob in knobs(stage)]
    taken |= {knob.field: f"`{knob.stage}.{knob.key}`" for knob in open_}
    for given in served.inputs.values():
        if given.name in taken:
            message = f"requests have a field `{given.name}` already, for {taken[given.name]}"
            sink.error("field-taken", message, given.span, "name this otherwise")
    for knob in open_ if served.complete else ():
        param = served.params.get(knob.field)
        if param is not None and knob.field != "seed" and (why := _unlike(param, knob)):
            message = f"requests have a field `{param.name}` already, for `{knob.stage}.{knob.key}`, which takes {why}"
            help_ = [f"`{knob.key} = {param.name}` in the stage makes them one, once the param fits it"]
            sink.error("field-taken", message, param.span, "name this otherwise", help=help_)


def _unlike(param: Param, knob: Knob) -> str:
    """What a key takes that a param of its field's name does not promise to be; nothing if the param does."""
    if param.type != knob.type:
        return f"`{knob.type}`"
    covered = knob.domain is None or (param.domain is not None and within(param.domain, knob.domain))
    return "" if covered else str(knob.domain)


def uses(serves: Sequence[ast.Serve], served: Served, name: Span, sink: Sink) -> tuple[Use, ...]:
    """The served endpoints; without a `serve`, those that the types fit. `name` is the pipeline's."""
    if not serves:
        names = offered(served.signature) if served.complete else ()
        return tuple(Use(e, None, (), name) for e in names if _idle(bind(e, served.signature), served) is None)
    found: dict[str, Use] = {}
    for declared in (use for serve in serves for use in serve.uses):
        endpoint = str(declared.endpoint)
        if endpoint in found:
            first = Label(found[endpoint].span, "served here")
            sink.error("duplicate-endpoint", f"`{endpoint}` is served twice", declared.endpoint.span, secondary=[first])
        elif (use := _use(declared, served, sink)) is not None:
            found[endpoint] = use
    return tuple(found.values())


def unserved(pipeline: Pipeline, sink: Sink) -> None:
    """Warns of a sound pipeline that serves nothing, without a word on it, where an endpoint nearly fits."""
    one = Served(pipeline.inputs, pipeline.outputs, pipeline.params, pipeline.stages, pipeline.edges, True)
    silent = not pipeline.uses and not any(isinstance(item, ast.Serve) for item in pipeline.declared.items)
    if silent and (close := nearly(one.signature)) is not None:
        error, endpoint = close
        help_ = [f"write `serve {endpoint} {{ … }}` to say how it is bound"]
        sink.warning("not-served", f"nothing is served: {error.message}", pipeline.declared.name.span, help=help_)


def _use(declared: ast.Use, served: Served, sink: Sink) -> Use | None:
    name = str(declared.endpoint)
    if name not in ENDPOINTS:
        hint = did_you_mean(name, ENDPOINTS) or f"there are {listing(ENDPOINTS, most=len(ENDPOINTS))}"
        sink.error("unknown-endpoint", f"unknown endpoint `{name}`", declared.endpoint.span, hint)
        return None
    if ENDPOINTS[name].later:
        sink.error("not-supported-yet", ENDPOINTS[name].later, declared.endpoint.span)
        return None
    entry: str | None = None
    entry_type: Type | None = None
    fields: dict[str, tuple[str, Span]] = {}
    for setting in declared.block.settings if declared.block else ():
        field = str(setting.path)
        if not isinstance(setting.value, Name):
            sink.error("cannot-bind", f"`{field}` of `{name}` is bound to a name", setting.value.span or setting.span)
            return None
        if field in fields or (entry is not None and field == "input"):
            sink.error("duplicate-key", f"`{field}` is bound twice", setting.path.span)
            return None
        if field == "input" and len(setting.value.path) > 1:
            port = _entry(setting, served, sink)
            if port is None:
                return None
            entry, entry_type = port
        else:
            fields[field] = str(setting.value), setting.span
    if not served.complete:
        return Use(name, entry, tuple((f, n) for f, (n, _) in fields.items()), declared.span)
    overrides = {field: bound for field, (bound, _) in fields.items()}
    slices = (Slice("", reached(entry, served), ()),) if entry else ()
    try:
        bound = bind(name, served.signature, overrides, entry, slices, entry_type=entry_type)
    except BindError as error:
        at = fields[error.field][1] if error.field in fields else declared.endpoint.span
        sink.error(error.id, error.message, at)
        return None
    if entry is None and (idle := _idle(bound, served)) is not None:
        message = f"`{dict(bound.outputs)[_answer(name)]}` does not come of `{idle}`, which `{name}` sends"
        sink.error("cannot-bind", message, declared.endpoint.span)
        return None
    return Use(name, entry, tuple(overrides.items()), declared.span)


def _answer(endpoint: str) -> str:
    """The role that every answer of an endpoint has."""
    return ENDPOINTS[endpoint].answers[0][0]


def _idle(bound: Endpoint, served: Served) -> str | None:
    """The input that requests carry, if what they are answered with does not come of it."""
    feeders: dict[str, list[End]] = {}
    for edge in served.edges:
        feeders.setdefault(edge.target.stage or f"output {edge.target.name}", []).append(edge.source)
    given = next((f.target.removeprefix("input ") for f in bound.fields if f.target.startswith("input ")), None)
    pending, seen = [f"output {dict(bound.outputs)[_answer(bound.name)]}"], set[str]()
    while pending:
        for end in feeders.get(pending.pop(), ()):
            if end.stage is None and end.name == given:
                return None
            if end.stage is not None and end.stage not in seen:
                seen.add(end.stage)
                pending.append(end.stage)
    return given


def _entry(setting: ast.Setting, served: Served, sink: Sink) -> tuple[str, Type | None] | None:
    """The port that an endpoint enters at, and its type; no type where its stage is in doubt."""
    assert isinstance(setting.value, Name)
    stage_name, *rest = setting.value.path
    span: Span = setting.value.span
    stage = served.stages.get(stage_name)
    if stage is None:
        hint = did_you_mean(stage_name, served.stages)
        sink.error("unknown-name", f"there is no stage `{stage_name}` to enter at", span, hint)
        return None
    port = ".".join(rest)
    part: Part | None = stage.part
    if part is None:
        return f"{stage_name}.{port}", None
    found = part.input(port)
    if found is None:
        ports = [p.name for p in part.inputs]
        hint = did_you_mean(port, ports) or f"it takes {listing(ports)}"
        sink.error("unknown-port", f"stage `{stage_name}` has no input `{port}`", span, hint)
        return None
    return f"{stage_name}.{port}", found.type


def reached(entry: str, served: Served) -> tuple[str, ...]:
    """The outputs that a request entering at a port can have: those that need nothing but that port."""
    feeds = {str(edge.target): edge.source for edge in served.edges}
    known: dict[str, bool] = {}

    def runs(stage: str) -> bool:
        """Whether all that a stage requires comes from the entry."""
        if stage not in known:
            known[stage] = False  # in a circle nothing comes from the entry
            part = served.stages[stage].part
            ports = [f"{stage}.{p.name}" for p in part.inputs if p.required] if part else []
            sources = [feeds.get(port) for port in ports if port != entry]
            above = all(source is not None and source.stage is not None and runs(source.stage) for source in sources)
            known[stage] = bool(ports) and above
        return known[stage]

    targets = [(edge.target.name, edge.source.stage) for edge in served.edges if edge.target.stage is None]
    return tuple(name for name, stage in targets if stage is not None and runs(stage))
