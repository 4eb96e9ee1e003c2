"""The graph as a whole: what is fed twice or not at all, what runs in circles, what nothing comes of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omnic.diagnostics import Label, Sink
from omnic.dsl.check.bound import Edge, Given, Stage


def check_graph(
    inputs: Mapping[str, Given],
    outputs: Mapping[str, Given],
    stages: Mapping[str, Stage],
    edges: Sequence[Edge],
    complete: bool,
    sink: Sink,
) -> None:
    """`complete` tells that every declared edge is among `edges`; else nothing is said of what is missing."""
    _fed_once(edges, sink)
    if complete:
        _all_fed(outputs, stages, edges, sink)
    _no_cycle(stages, edges, sink)
    _absence(inputs, outputs, stages, edges, sink)
    _all_used(inputs, stages, edges, sink)


def _fed_once(edges: Sequence[Edge], sink: Sink) -> None:
    first: dict[str, Edge] = {}
    for edge in edges:
        target = str(edge.target)
        if target in first:
            what = "output" if edge.target.stage is None else "port"
            again = "has two producers" if what == "output" else "is fed twice"
            other = Label(first[target].span, f"fed by `{first[target].source}` here")
            sink.error("fed-twice", f"{what} `{target}` {again}", edge.target.span, secondary=[other])
        first.setdefault(target, edge)


def _all_fed(outputs: Mapping[str, Given], stages: Mapping[str, Stage], edges: Sequence[Edge], sink: Sink) -> None:
    fed = {str(edge.target) for edge in edges}
    for output in outputs.values():
        if output.name not in fed:
            help_ = [f"end an edge at it: `stage.port -> {output.name}`"]
            sink.error("no-producer", f"nothing produces output `{output.name}`", output.span, help=help_)
    for stage in stages.values():
        for port in stage.part.inputs if stage.part else ():
            if port.required and f"{stage.name}.{port.name}" not in fed:
                sink.error(
                    "unwired-port",
                    f"`{stage.name}` needs its input `{port.name}`, and nothing feeds it",
                    stage.span,
                    f"`{stage.name}.{port.name}` takes `{port.type}`",
                    help=[f"end an edge at it: `… -> {stage.name}.{port.name}`"],
                )


def _all_used(inputs: Mapping[str, Given], stages: Mapping[str, Stage], edges: Sequence[Edge], sink: Sink) -> None:
    feeders: dict[str, list[str]] = {}
    feeding = {edge.source.stage for edge in edges}
    for edge in edges:
        if edge.source.stage:
            feeders.setdefault(edge.target.stage or "", []).append(edge.source.stage)
    used: set[str] = set()
    pending = feeders.get("", [])  # of outputs
    while pending:
        name = pending.pop()
        if name not in used:
            used.add(name)
            pending += feeders.get(name, [])
    for stage in stages.values():
        if stage.name not in used:
            where = "what it feeds is unused too" if stage.name in feeding else "no edge begins at it"
            sink.warning("unused-stage", f"no output needs stage `{stage.name}`", stage.span, where)
    given = {edge.source.name for edge in edges if edge.source.stage is None}
    for one in inputs.values():
        if one.name not in given:
            sink.warning("unused-input", f"nothing takes input `{one.name}`", one.span)


def _no_cycle(stages: Mapping[str, Stage], edges: Iterable[Edge], sink: Sink) -> None:
    """Says of each circle, once, which edge closes it. Ports that a part declares as feedback may close one."""
    out: dict[str, list[Edge]] = {name: [] for name in stages}
    for edge in edges:
        if edge.source.stage and edge.target.stage and not _feedback(stages[edge.target.stage], edge.target.name):
            out[edge.source.stage].append(edge)
    done: set[str] = set()
    for start in stages:
        path: dict[str, int] = {}  # stages on the way here, each with how many of its edges were followed
        if start not in done:
            path[start] = 0
        while path:
            name = next(reversed(path))
            at = path[name]
            if at == len(out[name]):
                del path[name]
                done.add(name)
                continue
            path[name] = at + 1
            edge = out[name][at]
            target = edge.target.stage or ""
            if target in path:
                way = list(path)
                circle = " -> ".join([*way[way.index(target) :], target])
                label = "this edge closes it"
                sink.error("cycle", f"stages feed each other in a circle: {circle}", edge.span, label)
            elif target not in done:
                path[target] = 0


def _feedback(stage: Stage, port: str) -> bool:
    found = stage.part.input(port) if stage.part else None
    return found is not None and found.feedback


def _absence(
    inputs: Mapping[str, Given],
    outputs: Mapping[str, Given],
    stages: Mapping[str, Stage],
    edges: Sequence[Edge],
    sink: Sink,
) -> None:
    """An output that can be absent must say so: a stage whose required input is absent does not run."""
    reasons: dict[str, str] = {}  # stage: the optional thing it may lack
    leaving: dict[str, list[Edge]] = {}
    for edge in edges:
        leaving.setdefault(edge.source.stage or "", []).append(edge)
    pending = list(edges)
    while pending:
        edge = pending.pop()
        target = edge.target.stage
        reason = _may_lack(edge, inputs, stages, reasons)
        if target is None or target in reasons or reason is None:
            continue
        part = stages[target].part
        port = part.input(edge.target.name) if part else None
        if port is not None and port.required:
            reasons[target] = reason
            pending += leaving.get(target, [])
    for edge in edges:
        if edge.target.stage is not None or edge.target.name not in outputs:
            continue
        output, reason = outputs[edge.target.name], _may_lack(edge, inputs, stages, reasons)
        if reason is not None and not output.type.optional:
            sink.error(
                "may-be-absent",
                f"output `{output.name}` is absent without {reason}",
                edge.span,
                secondary=[Label(output.span, f"declare it `{output.type}?`")],
            )


def _may_lack(
    edge: Edge, inputs: Mapping[str, Given], stages: Mapping[str, Stage], reasons: Mapping[str, str]
) -> str | None:
    """What an edge may carry nothing for want of."""
    if edge.source.stage is None:
        given = inputs.get(edge.source.name)
        return f"`{edge.source.name}`, which is optional" if given and given.type.optional else None
    part = stages[edge.source.stage].part
    port = part.output(edge.source.name) if part else None
    if port is not None and port.type.optional:
        return f"`{edge.source}`, which is optional"
    return reasons.get(edge.source.stage)
