"""Edges: both ends exist, types agree, and what the block asks for is possible at both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from omnic import expr
from omnic.catalog.part import Port
from omnic.contract.types import Type, mismatch
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check.bound import Edge, End, Given, Stage
from omnic.dsl.check.expressions import MISSING, Scope, constant, kind_of, plain, span_of
from omnic.expr import Expr, Literal, Name, Quantity
from omnic.ir.edges import STREAM_MODES, TEXT_CUTS, TRANSPORTS
from omnic.source import Span
from omnic.spelling import did_you_mean

KEYS = ("stream", "first", "context", "window", "when", "via")


class Graph(NamedTuple):
    """What edges of a pipeline can join. `others` says what any other declared name is; `doubtful` are inputs and
    outputs whose type makes no sense."""

    inputs: Mapping[str, Given]
    outputs: Mapping[str, Given]
    stages: Mapping[str, Stage]
    others: Mapping[str, str]
    doubtful: frozenset[str]
    scope: Scope

    def type_of(self, given: Given) -> Type | None:
        return None if given.name in self.doubtful else given.type


class _Side(NamedTuple):
    """An end, and what is known of what it belongs to; `type` is None where its stage could not be found out."""

    end: End
    type: Type | None
    streams: tuple[str, ...]
    origin: str
    declared: Span
    kind: str  # kind of the stage; "" for inputs and outputs


def edge(declared: ast.Edge, graph: Graph, sink: Sink) -> Edge | None:
    """An edge between what exists; None, and errors, otherwise or if its types do not agree."""
    source, target = _source(declared.source, graph, sink), _target(declared.target, graph, sink)
    known = source if source and source.type else None
    how = _Block(declared, known, target if target and target.type else None, graph, sink).read()
    if source is None or target is None:
        return None
    if source.type is not None and target.type is not None and (why := mismatch(source.type, target.type)):
        _mismatch(declared, source, target, why, sink)
        return None
    return Edge(source.end, target.end, source.type or target.type or Type("json"), how, declared.span)


# --- ends -------------------------------------------------------------------------------------------------------------


def _source(path: ast.Path, graph: Graph, sink: Sink) -> _Side | None:
    head, rest = path.head, path.tail
    if head.text in graph.stages:
        return _port(path, graph.stages[head.text], "output", sink)
    if head.text in graph.inputs:
        given = graph.inputs[head.text]
        if rest is not None:
            help_ = [f"write `{head}`"]
            sink.error("unknown-port", f"`{head}` is an input; it has no ports", rest.span, help=help_)
            return None
        streams = TEXT_CUTS if given.type.kind == "text" else ("whole",)
        return _Side(End(None, head.text, path.span), graph.type_of(given), streams, "", given.span, "")
    if head.text in graph.outputs:
        sink.error("wrong-end", f"`{head}` is an output; an edge begins at an input or a stage", head.span)
        return None
    _unknown(head, graph, (*graph.inputs, *graph.stages), "input or stage", sink)
    return None


def _target(path: ast.Path, graph: Graph, sink: Sink) -> _Side | None:
    head, rest = path.head, path.tail
    if head.text in graph.stages:
        return _port(path, graph.stages[head.text], "input", sink)
    if head.text in graph.outputs:
        given = graph.outputs[head.text]
        if rest is not None:
            sink.error("unknown-port", f"`{head}` is an output; it has no ports", rest.span, help=[f"write `{head}`"])
            return None
        return _Side(End(None, head.text, path.span), graph.type_of(given), STREAM_MODES, "", given.span, "")
    if head.text in graph.inputs:
        sink.error("wrong-end", f"`{head}` is an input; an edge ends at an output or a stage", head.span)
        return None
    _unknown(head, graph, (*graph.outputs, *graph.stages), "output or stage", sink)
    return None


def _unknown(head: ast.Name, graph: Graph, candidates: tuple[str, ...], what: str, sink: Sink) -> None:
    if head.text in graph.others:
        sink.error(
            "wrong-end", f"`{head}` is a {graph.others[head.text]}; an edge joins inputs, stages and outputs", head.span
        )
        return
    sink.error("unknown-name", f"there is no {what} `{head}`", head.span, did_you_mean(head.text, candidates))


def _port(path: ast.Path, stage: Stage, side: str, sink: Sink) -> _Side | None:
    part, rest = stage.part, path.tail
    name = str(rest) if rest else ""
    end = End(stage.name, name, path.span)
    if part is None:
        return _Side(end, None, (), "", stage.span, "") if rest else None
    ports, others = (part.outputs, part.inputs) if side == "output" else (part.inputs, part.outputs)
    verb = "produces" if side == "output" else "takes"
    has = Label(stage.span, f"`{stage.name}` {verb} {listing(p.name for p in ports) or 'nothing'}")
    found = next((p for p in ports if p.name == name), None)
    if found is not None:
        return _Side(end, found.type, found.streams, found.origin, stage.span, part.kind)
    if rest is None:
        hint = f"write `{stage.name}.{ports[0].name}`" if len(ports) == 1 else ""
        sink.error("needs-port", f"`{stage.name}` is a stage; an edge joins ports", path.span, hint, secondary=[has])
    elif any(p.name == name for p in others):
        where = "begins at an output" if side == "output" else "ends at an input"
        message = f"`{path}` is an {'input' if side == 'output' else 'output'} of its stage; an edge {where}"
        sink.error("wrong-end", message, rest.span, secondary=[has])
    else:
        hint = did_you_mean(name, [p.name for p in ports])
        sink.error("unknown-port", f"stage `{stage.name}` has no port `{name}`", rest.span, hint, secondary=[has])
    return None


# --- types ------------------------------------------------------------------------------------------------------------


def _mismatch(declared: ast.Edge, source: _Side, target: _Side, why: str, sink: Sink) -> None:
    sink.error(
        "type-mismatch",
        f"`{source.end}` does not fit `{target.end}`: {why}",
        source.end.span.to(target.end.span),
        f"`{source.type}` into `{target.type}`",
        secondary=[_typed(side) for side in (source, target)],
        help=_conversion(source, target),
    )


def _typed(side: _Side) -> Label:
    """What is known of the type of an end, where its stage, input or output is declared."""
    read = f", read from {side.origin}" if side.origin else ""
    return Label(side.declared, f"`{side.end}` is `{side.type}`{read}")


def _conversion(source: _Side, target: _Side) -> list[str]:
    """A stage that turns one type into the other, where omnic has one."""
    assert source.type is not None
    assert target.type is not None
    rate = next((a for a in target.type.args if isinstance(a, Quantity)), None)
    if source.type.kind == target.type.kind == "audio" and rate is not None:
        return [
            "put a stage between them:\n"
            f"stage resampled = std.resample {{ rate = {rate} }}\n"
            f"{source.end} -> resampled.audio\n"
            f"resampled.audio -> {target.end}"
        ]
    return []


# --- the block --------------------------------------------------------------------------------------------------------


class _Block:
    """Reads the keys of one edge; ends that are not known are not held against it."""

    def __init__(
        self, declared: ast.Edge, source: _Side | None, target: _Side | None, graph: Graph, sink: Sink
    ) -> None:
        self.declared, self.source, self.target, self.graph, self.sink = declared, source, target, graph, sink
        self.chunk: int | None = None

    def read(self) -> tuple[tuple[str, Any, Span], ...]:
        settings = self.declared.block.settings if self.declared.block else ()
        readers: dict[str, Callable[[Expr], Any]] = {
            "stream": self._stream, "first": self._first, "context": self._context, "window": self._window,
            "when": self._when, "via": self._via,
        }  # fmt: skip
        found: dict[str, tuple[str, Any, Span]] = {}
        for setting in sorted(
            settings, key=lambda s: str(s.path) != "stream"
        ):  # chunk sizes before what refers to them
            name = str(setting.path)
            if name not in readers:
                hint = did_you_mean(name, KEYS) or f"an edge has {listing(KEYS)}"
                self.sink.error("unknown-key", f"an edge has no key `{name}`", setting.path.span, hint)
                continue
            if name in found:
                first = Label(found[name][2], "set here")
                self.sink.error("duplicate-key", f"`{name}` is set twice", setting.path.span, secondary=[first])
                continue
            value = readers[name](setting.value)
            if value is not MISSING:
                found[name] = name, value, setting.span
        if found and self.target and self.target.end.stage is None:
            self._later(
                "omnic gives outputs as they come; an edge to an output takes no keys yet",
                next(iter(found.values()))[2],
            )
        return tuple(found.values())

    def _stream(self, value: Expr) -> Any:
        shape = "`token`, `word`, `clause`, `sentence`, `chunk(n)` or `whole`"
        match value:
            case Name(path=(mode,)) if mode in STREAM_MODES and mode != "chunk":
                made: Any = mode
            case ast.Call(path=path, args=(size,), named=()) if str(path) == "chunk":
                number = constant(size, self.sink, "a chunk's size")
                if number is MISSING:
                    return MISSING
                if not _positive(number):
                    return self._error("wrong-value", "a chunk holds one unit or more", size)
                mode, made, self.chunk = "chunk", expr.Call("chunk", (Literal(number),), span=value.span), number
            case Name(path=("chunk",)):
                return self._error("wrong-value", "`chunk` needs its size", value, "write `chunk(n)`")
            case Name(path=(word,)):
                hint = did_you_mean(word, STREAM_MODES)
                return self._error("wrong-value", f"`stream` is {shape}", value, hint or f"not `{word}`")
            case _:
                return self._error("wrong-value", f"`stream` is {shape}", value)
        for side, verb in ((self.source, "gives"), (self.target, "takes")):
            if side is not None and mode not in side.streams:
                modes = listing((m if m != "chunk" else "chunk(n)" for m in side.streams), last="or")
                return self._error("stream-mode", f"`{side.end}` {verb} {modes}, not `{mode}`", value)
        return made

    def _first(self, value: Expr) -> Any:
        """Sizes of the first chunks: a number or a ramp that rises to the chunk's size."""
        items = value.items if isinstance(value, ast.List) else (value,)
        numbers = [constant(item, self.sink, "`first`") for item in items]
        if MISSING in numbers or not self._chunked("first", value):
            return MISSING
        for item, number in zip(items, numbers, strict=True):
            if not _positive(number):
                return self._error("wrong-value", "`first` takes sizes of chunks, 1 or more", item)
        for item, before, number in zip(items[1:], numbers, numbers[1:], strict=False):
            if number <= before:
                return self._error("bad-ramp", "`first` is a ramp: each chunk is larger than the one before", item)
        if self.chunk is not None and numbers[-1] > self.chunk:
            return self._error("bad-ramp", f"the ramp ends above the chunk's size, {self.chunk}", items[-1])
        return tuple(numbers) if isinstance(value, ast.List) else numbers[0]

    def _context(self, value: Expr) -> Any:
        number = constant(value, self.sink, "`context`")
        if number is MISSING or not self._chunked("context", value):
            return MISSING
        if not _positive(number) and number != 0:
            return self._error("wrong-value", "`context` is a number of units, 0 or more", value)
        if self.target is not None and self.target.kind not in ("decode", "pipeline"):
            message = f"`{self.target.end}` keeps no left context; decode stages do"
            return self._error("no-context", message, value)
        return number

    def _chunked(self, key: str, value: Expr) -> bool:
        """Whether the edge streams in chunks, which `first` and `context` are about."""
        streams = {str(s.path): s.value for s in self.declared.block.settings} if self.declared.block else {}
        stream = streams.get("stream")
        if isinstance(stream, ast.Call):
            return True
        hint = "write `stream = chunk(n)` beside it" if stream is None else ""
        self._error("not-chunked", f"`{key}` is about chunks, and this edge does not stream in chunks", value, hint)
        return False

    def _window(self, value: Expr) -> Any:
        number = constant(value, self.sink, "`window`")
        if number is not MISSING and not _positive(number):
            return self._error("wrong-value", "`window` is how many items may wait, 1 or more", value)
        return number

    def _when(self, value: Expr) -> Any:
        flags = {
            f"{stage.name}.{port.name}": port
            for stage in self.graph.stages.values()
            for port in (stage.part.outputs if stage.part else ())
            if port.type.kind in ("bool", "int", "float", "enum")
        }
        made = plain(value, self.sink)
        if made is None:
            return MISSING
        if not self._names_known(made, flags):
            return MISSING
        stageless = not any(n.path[0] in self.graph.stages for n in expr.names(made))
        if stageless and (kind := kind_of(made, self.graph.scope, self.sink)) != "bool":
            return MISSING if kind is None else self._error("bad-expression", "`when` is true or false", value)
        return self._later("omnic cannot decide while a request runs yet", span_of(value))

    def _names_known(self, made: Expr, flags: Mapping[str, Port]) -> bool:
        known = True
        for name in expr.names(made):
            stage = self.graph.stages.get(name.path[0])
            if stage is not None and stage.part is not None and str(name) not in flags:
                self._error(
                    "unknown-name", f"stage `{stage.name}` gives no `{'.'.join(name.path[1:])}` to decide by", name
                )
                known = False
        return known

    def _via(self, value: Expr) -> Any:
        """A transport; whether both ends have it is known once they are placed."""
        word = value.value if isinstance(value, Literal) else str(value) if isinstance(value, Name) else None
        if word not in TRANSPORTS:
            hint = did_you_mean(str(word), TRANSPORTS) if word else ""
            return self._error("wrong-value", f"`via` is {listing(TRANSPORTS, last='or')}", value, hint)
        return word

    def _error(self, id: str, headline: str, at: Expr, label: str = "") -> Any:
        self.sink.error(id, headline, span_of(at), label)
        return MISSING

    def _later(self, why: str, span: Span) -> Any:
        self.sink.error("not-supported-yet", why, span)
        return MISSING


def _positive(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1
