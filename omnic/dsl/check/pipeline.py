"""One pipeline, from its declarations to its endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from omnic import expr
from omnic.contract.domains import Domain
from omnic.contract.types import Type
from omnic.diagnostics import Label, Sink
from omnic.dsl import ast
from omnic.dsl.check import adapters, endpoints, types
from omnic.dsl.check.bound import Edge, Given, Param, Pipeline, Rule, Stage
from omnic.dsl.check.edges import Graph, edge
from omnic.dsl.check.expressions import Scope, kind_of, plain, span_of
from omnic.dsl.check.graph import check_graph
from omnic.dsl.check.keys import narrowed
from omnic.dsl.check.names import check_names, declared
from omnic.dsl.check.shared import agreed
from omnic.dsl.check.stages import Surroundings, model, stage
from omnic.expr import Expr, Name

T = TypeVar("T")


def check_pipeline(written: ast.Pipeline, around: Surroundings, sink: Sink) -> Pipeline:
    """The pipeline with all that could be bound. Whether it holds up is in `sink`."""
    names = list(declared(written))
    check_names(names, sink)
    inputs = {i.name.text: types.given(i, sink) for i in _of(written, ast.Input)}
    outputs = {o.name.text: types.given(o, sink) for o in _of(written, ast.Output)}
    params = {p.name: p for item in _of(written, ast.Param) if (p := types.param(item, sink))}
    scope = _scope(written, params)
    models = {m.name.text: model(m, around, sink) for m in _of(written, ast.Model)}
    wired = _wired(written)
    stages = {
        s.name.text: stage(s, models, wired.get(s.name.text, ()), scope, around, sink) for s in _of(written, ast.Stage)
    }
    stages = agreed(stages, sink)
    others = {name.text: what for what, name in names if what in ("model", "param")}
    ends = [item for item in written.items if isinstance(item, ast.Input | ast.Output)]
    doubtful = frozenset(e.name.text for e in ends if not types.check_type(e.type, Sink()))
    graph = Graph(inputs, outputs, stages, others, doubtful, scope)
    bound = [edge(item, graph, sink) for item in _of(written, ast.Edge)]
    edges = tuple(e for e in bound if e is not None)
    whole = len(edges) == len(bound)
    check_graph(inputs, outputs, stages, edges, whole, sink)
    outputs = _filled(outputs, edges)
    requires = tuple(r for item in _of(written, ast.Require) if (r := _rule(item.rule, scope, sink)))
    _check_models(written, models, stages, sink)
    params = _narrow(params, stages, sink)
    _check_use(written, params, stages, requires, sink)
    served = endpoints.Served(
        inputs, outputs, params, stages, edges, whole and all(s.part for s in stages.values()) and not sink.has_errors
    )
    endpoints.check_fields(served, sink)
    uses = endpoints.uses(_of(written, ast.Serve), served, written.name.span, sink)
    return Pipeline(
        written.name.text, around.base, written, models, inputs, outputs, params, requires, stages, edges, uses
    )


def _of(written: ast.Pipeline, kind: type[T]) -> list[T]:
    return [item for item in written.items if isinstance(item, kind)]


def _wired(written: ast.Pipeline) -> dict[str, set[str]]:
    """The ports of each stage that some edge leads to."""
    found: dict[str, set[str]] = {}
    for item in _of(written, ast.Edge):
        if item.target.tail is not None:
            found.setdefault(item.target.head.text, set()).add(str(item.target.tail))
    return found


def _scope(written: ast.Pipeline, params: dict[str, Param]) -> Scope:
    """Inputs and params by name; None for those whose type makes no sense."""
    known: dict[str, Type | None] = {}
    for item in written.items:
        if isinstance(item, ast.Input):
            known[item.name.text] = item.type.type if types.check_type(item.type, Sink()) else None
        elif isinstance(item, ast.Param):
            known[item.name.text] = params[item.name.text].type if item.name.text in params else None
    return Scope(known, {param.name: param.domain for param in params.values()})


def _filled(outputs: dict[str, Given], edges: Iterable[Edge]) -> dict[str, Given]:
    """Outputs with what their types leave open (a rate) as what feeds them has it."""
    made = dict(outputs)
    for one in edges:
        given = made.get(one.target.name) if one.target.stage is None else None
        if given is not None and given.type.kind == one.type.kind != "enum":
            args = given.type.args + one.type.args[len(given.type.args) :]
            made[given.name] = given._replace(type=replace(given.type, args=args))
    return made


def _rule(value: Expr, scope: Scope, sink: Sink) -> Rule | None:
    made = plain(value, sink)
    kind = None if made is None else kind_of(made, scope, sink)
    if made is None or kind is None:
        return None
    if kind != "bool":
        sink.error("bad-expression", "a rule is true or false", span_of(value))
        return None
    return Rule(made, span_of(value))


def _check_models(written: ast.Pipeline, models: Iterable[str], stages: dict[str, Stage], sink: Sink) -> None:
    named = {s.value.path[0] for s in _of(written, ast.Stage) if isinstance(s.value, Name)}
    named |= {name for s in _of(written, ast.Stage) for name in adapters.used(s)}
    for item in _of(written, ast.Model):
        if item.name.text not in named:
            sink.warning("unused-model", f"no stage is a part of model `{item.name}`", item.name.span)


def _narrow(params: dict[str, Param], stages: dict[str, Stage], sink: Sink) -> dict[str, Param]:
    """Params without a domain take that of the keys they are bound to."""
    bound: dict[str, list[tuple[str, Domain, Name]]] = {}
    for one in stages.values():
        for value in one.values:
            name, domain = value.value, value.key.domain
            if domain is not None and isinstance(name, Name) and len(name.path) == 1:
                bound.setdefault(name.path[0], []).append((f"{one.name}.{value.key.name}", domain, name))
    made: dict[str, Param] = {}
    for param in params.values():
        keys = bound.get(param.name, [])
        domain = narrowed(param.domain, [domain for _, domain, _ in keys])
        if domain is None and keys:
            sink.error(
                "domain-unknown",
                f"`{param.name}` sets keys that take different values; give it a domain",
                param.span,
                secondary=[Label(span_of(name), f"`{key}` takes {domain}") for key, domain, name in keys],
            )
        elif domain is not None and param.domain is None and param.default is not None and param.default not in domain:
            key, _, name = keys[0]
            sink.error(
                "default-outside-domain",
                f"the default of `{param.name}` is not a value that `{key}` takes",
                param.span,
                f"not in {domain}",
                secondary=[Label(span_of(name), "bound here")],
            )
        made[param.name] = param._replace(domain=domain)
    return made


def _check_use(
    written: ast.Pipeline, params: dict[str, Param], stages: dict[str, Stage], requires: tuple[Rule, ...], sink: Sink
) -> None:
    """A param that nothing reads would be accepted and ignored."""
    used = {
        n.path[0] for s in stages.values() for v in s.values if isinstance(v.value, Expr) for n in expr.names(v.value)
    }
    used |= {n.path[0] for rule in requires for n in expr.names(rule.expr)}
    for param in params.values():
        if param.name not in used and param.name != "seed":  # the seed of a request reaches every stage
            sink.warning("unused-param", f"nothing reads param `{param.name}`", param.span)
