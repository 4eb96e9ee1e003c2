"""Bound AST to IR: pipelines used as stages written out, channels numbered, every key with its value and origin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from omnic import expr
from omnic.catalog.part import Model as CatalogModel
from omnic.catalog.part import Part
from omnic.catalog.resolve import ModelSource
from omnic.diagnostics import Sink, listing
from omnic.dsl.check import adapters
from omnic.dsl.check.bound import Checked, Deploy, Pipeline, Stage, Value
from omnic.dsl.flags import settings_of
from omnic.dsl.seeds import one_seed
from omnic.dsl.wires import Instance, Wire, entries, wires
from omnic.expr import Expr, Literal, Name
from omnic.ir import pipeline as ir
from omnic.ir.shared import alike
from omnic.source import Span
from omnic.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class Lowered:
    """A pipeline as IR, with what the catalog says of its models and stages.

    `sources` are all files it was made of; paths in the IR start from the directory of the first of them.
    """

    pipeline: ir.Pipeline
    models: dict[str, CatalogModel]
    parts: dict[str, Part]
    deploy: Deploy | None
    sources: tuple[Path, ...]


def lower(
    checked: Checked, pipeline: str | None, deploy: str | None, overrides: Sequence[str], sink: Sink
) -> Lowered | None:
    """A pipeline of a checked file, the only one if `pipeline` is None, as a deploy block would run it.

    `overrides` are settings as flags give them (`think.slots = 4`); they win over the deploy block, and that over the
    stage. None, and errors, if a name leads nowhere or a setting does not fit.
    """
    chosen_deploy = _deploy(checked, deploy, sink)
    if deploy is not None and chosen_deploy is None:
        return None
    chosen = _pipeline(checked, pipeline, chosen_deploy, sink)
    if chosen is None:
        return None
    found = Sink()
    flags = settings_of(overrides, chosen, found)
    flat = _Flat(chosen, chosen_deploy.values if chosen_deploy else {}, flags, found)
    flat.take(Instance(chosen), {})
    made = flat.pipeline(chosen_deploy)
    for diagnostic in found.diagnostics:
        sink.add(diagnostic)
    return None if made is None else Lowered(made, flat.catalog, flat.parts, chosen_deploy, checked.sources)


def _deploy(checked: Checked, name: str | None, sink: Sink) -> Deploy | None:
    if name is None or name in checked.deploys:
        return checked.deploys.get(name) if name else None
    known = checked.deploys
    there = f"there are {listing(known)}" if known else "the file has none"
    sink.error("unknown-deploy", f"there is no deploy block `{name}`", help=[did_you_mean(name, known) or there])
    return None


def _pipeline(checked: Checked, name: str | None, deploy: Deploy | None, sink: Sink) -> Pipeline | None:
    known = checked.pipelines
    name = name or (deploy.pipeline if deploy else None)
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        there = f"the file has {listing(known)}; say which" if known else "the file holds no pipeline"
        sink.error("which-pipeline", there)
        return None
    if name not in known:
        hint = did_you_mean(name, known) or f"there are {listing(known)}"
        sink.error("unknown-pipeline", f"there is no pipeline `{name}`", help=[hint])
        return None
    if deploy is not None and deploy.pipeline != name:
        sink.error("unknown-deploy", f"deploy block `{deploy.name}` is for pipeline `{deploy.pipeline}`", deploy.span)
        return None
    return known[name]


class _Flat:
    """Gathers the parts of a pipeline and of those inside it, under names that begin with the stage they are."""

    def __init__(
        self,
        top: Pipeline,
        deploy: Mapping[str, tuple[Value, ...]],
        flags: Mapping[str, tuple[Value, ...]],
        sink: Sink,
    ) -> None:
        self._top, self._deploy, self._flags, self._sink = top, deploy, flags, sink
        self._models: list[ir.Model] = []
        self._stages: dict[str, ir.Stage] = {}
        self._requires: list[Expr] = []
        self._wires: list[Wire] = []
        self.catalog: dict[str, CatalogModel] = {}
        self.parts: dict[str, Part] = {}

    def take(self, one: Instance, values: Mapping[str, Expr]) -> None:
        """Takes in what a pipeline holds. `values` are what its params, and those of its inputs that a request
        carries, stand for; none at the top, where they stay."""
        names = self._take_models(one)
        for stage in one.pipeline.stages.values():
            inner = one.inside(stage.name)
            if inner is not None:
                params = self._params(stage, f"{one.prefix}{stage.name}", values)
                self.take(inner, params | _inputs(one, stage, values))
            else:
                self._take_stage(stage, one.prefix, names, values)
        self._wires += wires(one)
        for rule in one.pipeline.requires:
            self._take_rule(rule.expr, rule.span, one.prefix, values)

    # --- models and stages --------------------------------------------------------------------------------------------

    def _take_models(self, one: Instance) -> dict[str, str]:
        """The models of a pipeline by the names they get: `lm` of stage `answer` is `answer_lm`."""
        names: dict[str, str] = {}
        for model in one.pipeline.models.values():
            assert model.model is not None, "a pipeline with an unknown model does not hold up"
            assert model.source is not None, "as above"
            name = f"{one.prefix}{model.name}".replace(".", "_")
            while name in self.catalog:
                name += "_"
            names[model.name] = name
            source = str(self._rebased(model.source, one.pipeline.base))
            self.catalog[name] = model.model
            self._models.append(ir.Model(name, source, model.model.family, model.model.revision, model.span))
        return names

    def _rebased(self, source: ModelSource, base: Path) -> ModelSource:
        """A path as it is written in the top file's directory."""
        if source.kind != "path" or base == self._top.base:
            return source
        return replace(source, name=os.path.relpath(base / source.name, self._top.base))

    def _take_stage(self, stage: Stage, prefix: str, models: Mapping[str, str], values: Mapping[str, Expr]) -> None:
        part = stage.part
        assert part is not None, "a pipeline with an unknown stage does not hold up"
        name = prefix + stage.name
        given = self._given(stage, name, values)
        part = part.with_types({key: s.value for key, s in given.items() if not isinstance(s.value, Expr)})
        called = part.name
        if stage.file is not None:
            file, _, function = part.name.rpartition(":")
            called = f"{os.path.relpath(stage.file, self._top.base) if prefix else file}:{function}"
        keys = tuple((key.name, given.get(key.name) or _default(key)) for key in part.keys)
        how = tuple((key, _named(key, setting, models)) for key, setting in given.items() if part.key(key) is None)
        outputs = tuple((port.name, port.type) for port in part.outputs)
        model = models[stage.model] if stage.model is not None else None
        self._stages[name] = ir.Stage(name, part.kind, model, called, (), outputs, (), keys, how, stage.span)
        self.parts[name] = part

    def _given(self, stage: Stage, name: str, values: Mapping[str, Expr]) -> dict[str, ir.Setting]:
        """What is set of a stage, each key by the strongest that sets it."""
        found: dict[str, ir.Setting] = {}
        layers = (
            ("stage block", stage.values),
            ("deploy block", self._deploy.get(name, ())),
            ("flag", self._flags.get(name, ())),
        )
        for origin, layer in layers:
            for value in layer:
                try:
                    content = _substituted(value.value, values) if isinstance(value.value, Expr) else value.value
                except expr.ExprError as error:
                    self._sink.error("bad-expression", f"`{name}`: {error}", value.span)
                    content = None
                found[value.key.name] = ir.Setting(content, origin, span=value.span)
        return found

    def _params(self, stage: Stage, name: str, values: Mapping[str, Expr]) -> dict[str, Expr]:
        """What the params of a pipeline stand for where stage `name` is that pipeline."""
        assert stage.inner is not None
        given = self._given(stage, name, values)
        bound: dict[str, Expr] = {}
        for param in stage.inner.params.values():
            content = given[param.name].value if param.name in given else param.default
            bound[param.name] = content if isinstance(content, Expr) else Literal(content)
        return bound

    # --- rules --------------------------------------------------------------------------------------------------------

    def _take_rule(self, rule: Expr, span: Span, prefix: str, values: Mapping[str, Expr]) -> None:
        if not prefix:
            self._requires.append(rule)
            return
        if any(name.path[0] not in values for name in expr.names(rule)):
            self._refuse(rule, span)  # over an input that a stage feeds
            return
        try:
            known = _substituted(rule, values)
        except expr.ExprError:
            known = None
        if isinstance(known, Expr):
            self._requires.append(known)
        elif known is not True:
            self._refuse(rule, span)

    def _refuse(self, rule: Expr, span: Span) -> None:
        self._sink.error("not-supported-yet", f"omnic cannot hold `{rule}` of a stage that is a pipeline yet", span)

    # --- the whole ----------------------------------------------------------------------------------------------------

    def pipeline(self, deploy: Deploy | None) -> ir.Pipeline | None:
        top = self._top
        channels, fed, produced = self._connect()
        stages = alike([self._wired(stage, fed) for stage in self._in_flow_order()], self._sink)
        one_seed(stages, self._sink)
        endpoints = tuple(self._endpoints())
        self._all_fed(fed, produced)
        if self._sink.has_errors:
            return None
        outputs = [ir.Output(o.name, o.type, produced[o.name], o.span) for o in top.outputs.values()]
        return ir.Pipeline(
            top.name,
            (deploy.target if deploy else None) or "cpu",
            models=tuple(self._models),
            inputs=tuple(ir.Input(i.name, i.type, i.span) for i in top.inputs.values()),
            params=tuple(ir.Param(p.name, p.type, p.default, p.domain, p.span) for p in top.params.values()),
            requires=tuple(self._requires),
            stages=tuple(stages),
            channels=tuple(channels),
            outputs=tuple(outputs),
            endpoints=endpoints,
            limits=tuple(limit.expr for limit in deploy.limits) if deploy else (),
        )

    def _connect(self) -> tuple[list[ir.Channel], dict[str, str], dict[str, str]]:
        """Channels, what feeds each port, and what each output comes from."""
        top = self._top
        names = (
            name for n in count() if (name := f"c{n}") not in {*top.inputs, *top.params, *top.outputs, *top.stages}
        )
        channels: list[ir.Channel] = []
        fed: dict[str, str] = {}
        produced: dict[str, str] = {}
        for wire in sorted(self._wires, key=lambda w: w.at):
            if wire.target.startswith("output "):
                produced[wire.target.removeprefix("output ")] = wire.source
            elif "." in wire.source or self._streams(wire):
                name = next(names)
                how = tuple((key, ir.Setting(value, "stage block", span=span)) for key, value, span in wire.how)
                channels.append(ir.Channel(name, wire.source, wire.target, wire.type, how, wire.span))
                fed[wire.target] = name
            else:
                fed[wire.target] = wire.source
        return channels, fed, produced

    def _streams(self, wire: Wire) -> bool:
        """Whether a wire from an input leads to a port that takes less than the whole at once, unasked (then it takes
        an edge, also one that brings the whole) or as told."""
        stage, _, port = wire.target.rpartition(".")
        found = self.parts[stage].input(port)
        pinned = next((value for key, value, _ in wire.how if key == "stream"), "whole")
        return found is not None and (found.streams[0], pinned) != ("whole", "whole")

    def _wired(self, stage: ir.Stage, fed: Mapping[str, str]) -> ir.Stage:
        ports = [p for p in self.parts[stage.name].inputs if f"{stage.name}.{p.name}" in fed]
        return replace(
            stage,
            inputs=tuple((port.name, fed[f"{stage.name}.{port.name}"]) for port in ports),
            optional=tuple(port.name for port in ports if not port.required),
        )

    def _in_flow_order(self) -> list[ir.Stage]:
        """Stages after those that feed them; in source order where the flow leaves it open."""
        needs: dict[str, list[str]] = {name: [] for name in self._stages}
        for wire in self._wires:
            target, _, port = wire.target.rpartition(".")
            source = wire.source.rpartition(".")[0]
            if target in needs and source in needs:
                found = self.parts[target].input(port)
                if found is None or not found.feedback:
                    needs[target].append(source)
        order: dict[str, None] = {}
        pending = list(reversed(self._stages))
        while pending:
            name = pending[-1]
            waiting = [other for other in needs[name] if other not in order]
            if name in order or not waiting:
                order.setdefault(name)
                pending.pop()
            else:
                pending += reversed(waiting)
        return [self._stages[name] for name in order]

    def _all_fed(self, fed: Mapping[str, str], produced: Mapping[str, str]) -> None:
        """An optional input of a pipeline inside may be left open only if nothing inside needs it."""
        for name, part in self.parts.items():
            for port in part.inputs:
                if port.required and f"{name}.{port.name}" not in fed:
                    message = f"`{name}` could never run: nothing feeds its `{port.name}` here"
                    self._sink.error("not-supported-yet", message, self._stages[name].span)
        for output in self._top.outputs.values():
            if output.name not in produced:
                self._sink.error("not-supported-yet", f"output `{output.name}` could never be there", output.span)

    def _endpoints(self) -> Iterator[ir.Endpoint]:
        for use in self._top.uses:
            entry = use.entry
            if entry is not None:
                stage, _, port = entry.partition(".")
                inner = Instance(self._top).inside(stage)
                ports = list(entries(inner, port)) if inner else [entry]
                if len(ports) != 1:
                    message = f"omnic cannot enter at `{entry}` yet: it leads to {listing(ports) or 'no port'}"
                    self._sink.error("not-supported-yet", message, use.span)
                    continue
                entry = ports[0]
            yield ir.Endpoint(use.name, entry, use.fields, (), use.span)


def _named(key: str, setting: ir.Setting, models: Mapping[str, str]) -> ir.Setting:
    """Adapters by the names that models have in the whole: `neon`, or `neon=answer_neon` where that is another."""
    if key not in adapters.KEYS:
        return setting
    names = tuple(name if models[name] == name else f"{name}={models[name]}" for name in setting.value)
    return replace(setting, value=names)


def _default(key: Any) -> ir.Setting:
    """A key that nothing sets: left to requests where they can say it, else the catalog's default."""
    if key.field is not None:
        return ir.Setting(ir.Open(key.field, key.type, key.default, key.domain, key.doc), "catalog default")
    return ir.Setting(key.default, "catalog default")


def _inputs(one: Instance, stage: Stage, values: Mapping[str, Expr]) -> dict[str, Expr]:
    """What the inputs of the pipeline that `stage` is stand for, as far as a request carries it."""
    assert stage.inner is not None
    fed = {str(edge.target): edge.source for edge in one.pipeline.edges}
    found: dict[str, Expr] = {}
    for name in stage.inner.inputs:
        source = fed.get(f"{stage.name}.{name}")
        if source is None:
            found[name] = Literal(None)
        elif source.stage is None and one.outer is None:
            found[name] = Name((source.name,))
        elif source.stage is None and source.name in values:
            found[name] = values[source.name]
    return found


def _substituted(value: Expr, values: Mapping[str, Expr]) -> Any:
    """`value` with params replaced by what they stand for, as a literal value where nothing is left open."""
    if not values:
        return value
    known = {name: literal.value for name, literal in values.items() if isinstance(literal, Literal)}
    made = expr.fold(_replaced(value, values), known)
    return made.value if isinstance(made, Literal) else made


def _replaced(value: Expr, values: Mapping[str, Expr]) -> Expr:
    match value:
        case Name(path=(head, *fields)) if head in values:
            other = values[head]
            if isinstance(other, Name):
                return Name((*other.path, *fields), span=value.span)
            return value if isinstance(other, Literal) else other
        case expr.Call(function=function, args=args):
            return expr.Call(function, tuple(_replaced(arg, values) for arg in args), span=value.span)
        case expr.Unary(op=op, operand=operand):
            return expr.Unary(op, _replaced(operand, values), span=value.span)
        case expr.Binary(op=op, left=left, right=right):
            return expr.Binary(op, _replaced(left, values), _replaced(right, values), span=value.span)
    return value
