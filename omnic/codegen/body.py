"""The statements of one slice: its arguments, then its stages, channels and outputs in data-flow order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from omnic.codegen import layout
from omnic.codegen import python as py
from omnic.codegen.names import Names, identifier
from omnic.codegen.stages import SAMPLER_KEYS, settled
from omnic.contract.types import Type
from omnic.expr import Expr
from omnic.expr import names as names_in
from omnic.ir.edges import stream_mode
from omnic.ir.pipeline import Channel, Endpoint, Open, Pipeline, Slice, Stage, get

_FRAMES_AHEAD = 2  # pieces of a video that may wait for a slow reader: each is some frames, uncompressed
_SEGMENTERS = {"word": "Words()", "clause": "Clauses()", "sentence": "Sentences()", "whole": "Whole()"}


@dataclass(frozen=True, slots=True)
class Argument:
    """A keyword of a slice's method. `name` is the Python name, `field` what errors call it."""

    name: str
    field: str
    annotation: str
    default: str | None  # as source; None where the caller must give it

    def __str__(self) -> str:
        return f"{self.name}: {self.annotation}" + ("" if self.default is None else f" = {self.default}")


@dataclass(slots=True)
class Body:
    """Writes the statements of one slice. A stage that needs what may be absent (an optional input, or what another
    such stage gives) is guarded by its presence: `guards` has the variables that must not be None."""

    pipeline: Pipeline
    names: Names
    endpoint: Endpoint
    slice_: Slice
    stages: list[Stage] = field(init=False)
    guards: dict[str, tuple[str, ...]] = field(init=False)
    varied: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stages = [self.pipeline.stage(name) for name in self.slice_.stages]
        self.guards = {}
        self.varied = varied(self.pipeline)
        for stage in self.stages:
            self.guards[stage.name] = tuple(dict.fromkeys(self._guards(stage)))

    # --- arguments ---------------------------------------------------------------------------------------------------

    def arguments(self) -> Iterator[Argument]:
        """Inputs, then params, then open knobs, in source order; `seed` last."""
        taken: set[str] = set()
        for argument in self._all():
            if argument.name not in taken:
                taken.add(argument.name)
                yield argument
        if not any((s := get(stage.keys, "seed")) and settled(s.value) for stage in self.stages):
            yield self._seed()

    def _seed(self) -> Argument:
        """What the flow draws with: the pipeline's param of that name, or a number that the flow draws itself."""
        for param in self.pipeline.params:
            if param.name == "seed":
                return Argument("seed", "seed", "int", None if param.default is None else py.literal(param.default))
        return Argument("seed", "seed", "int | None", "None")

    def _all(self) -> Iterator[Argument]:
        fed = {source for stage in self.stages for source in self._sources(stage)}
        if self.endpoint.entry:
            port = self.endpoint.entry.rpartition(".")[2]
            yield Argument(self.names.entries[self.endpoint.name], port, py.annotation(self._entry_type()), None)
        for given in self.pipeline.inputs:
            if given.name in fed:
                default = "None" if given.type.optional else None
                yield Argument(self.names.arguments[given.name], given.name, py.annotation(given.type), default)
        used = set(_read(self.stages)) | {
            s.value.field for stage in self.stages for _, s in stage.keys if isinstance(s.value, Open)
        }
        used |= set(self._ruled(used | fed))
        for param in self.pipeline.params:
            if param.name in used - {"seed"}:
                absent = "None" if param.type.optional else None
                default = absent if param.default is None else py.literal(param.default)
                yield Argument(self.names.arguments[param.name], param.name, py.annotation(param.type), default)
        for one in self.stages:
            for key, setting in one.keys:
                if isinstance(setting.value, Open) and key != "seed":
                    knob = setting.value
                    kind = "tuple[str, ...]" if key == "stop" else py.annotation(knob.type)
                    default = "()" if key == "stop" else py.literal(knob.default)
                    if knob.field in self.varied:
                        kind, default = f"{kind} | None", "None"
                    yield Argument(self.names.arguments[knob.field], knob.field, kind, default)

    def _ruled(self, known: set[str]) -> Iterator[str]:
        """Params that no stage reads, only rules that this slice has all else for."""
        read = set(_read(self.pipeline.stages))
        free = {p.name for p in self.pipeline.params if p.name not in read}
        for rule in self.pipeline.requires:
            used = {n.path[0] for n in names_in(rule)}
            if used <= known | free:
                yield from used & free

    def _entry_type(self) -> Type:
        """What feeds the port where the slice begins gives the type it takes."""
        stage, _, port = (self.endpoint.entry or "").rpartition(".")
        source = dict(self.pipeline.stage(stage).inputs)[port]
        if channel := self._channel(source):
            return channel.type.required
        return next(i.type for i in self.pipeline.inputs if i.name == source).required

    # --- statements --------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        for stage in self.stages:
            block = [*self._channels(stage), self._start(stage)]
            if guards := self.guards[stage.name]:
                yield f"{self.names.stages[stage.name]} = None"
                yield layout.condition([f"{variable} is not None" for variable in guards], indent=8)
                yield from ("    " + line.replace("\n", "\n    ") for line in block)
            else:
                yield from block
        for name in self.slice_.outputs:
            output = next(o for o in self.pipeline.outputs if o.name == name)
            producer, _, port = output.source.rpartition(".")
            running = self.names.stages[producer]
            window = f", window={_FRAMES_AHEAD}" if output.type.kind == "video" else ""
            call = f'flow.output("{name}", {running}.{identifier(port)}{window})'
            yield f"if {running}:\n            {call}" if self.guards[producer] else call

    def _start(self, stage: Stage) -> str:
        args = ["flow"]
        for port, source in stage.inputs:
            value = self._value(f"{stage.name}.{port}", source)
            if value is not None:
                args.append(f"{identifier(port)}={value}")
        for key, setting in stage.keys:
            value = setting.value
            if key == "seed" or not stage.model:
                continue
            if isinstance(value, Open):
                args.append(f"{identifier(key)}={self._open(value)}")
            elif isinstance(value, Expr):
                args.append(f"{identifier(key)}={py.expression(value, self.names.arguments)}")
            elif value is not None and not (stage.kind == "generate" and key in SAMPLER_KEYS):
                args.append(f"{identifier(key)}={py.literal(value)}")
        name = self.names.stages[stage.name]
        return layout.call(f"{name} = self.{name}.start", args, indent=8)

    def _open(self, knob: Open) -> str:
        name = self.names.arguments[knob.field]
        return f"{py.literal(knob.default)} if {name} is None else {name}" if knob.field in self.varied else name

    def _value(self, target: str, source: str) -> str | None:
        """What is passed to a port: a channel's variable, an argument, or nothing if its source is not in the slice."""
        channel = self._channel(source)
        if channel is None:
            entry = target == self.endpoint.entry
            return self.names.entries[self.endpoint.name] if entry else self.names.arguments[source]
        producer = channel.source.rpartition(".")[0]
        here = target == self.endpoint.entry or not producer or producer in self.slice_.stages
        return self.names.channels[channel.name] if here else None

    def _channels(self, stage: Stage) -> Iterator[str]:
        for port, source in stage.inputs:
            channel = self._channel(source)
            if channel is None:
                continue
            comment = f"  # {where}" if (where := py.where(channel.span)) else ""
            args = []
            if segmenter := _segmenter(channel):
                args.append(f"segmenter={segmenter}")
            target = self.names.channels[channel.name]
            producer, _, out = channel.source.rpartition(".")
            absent = ""
            if f"{stage.name}.{port}" == self.endpoint.entry:
                made, args = "flow.given", [self.names.entries[self.endpoint.name], *args]
            elif not producer:
                name = self.names.arguments[channel.source]
                absent = f" if {name} is not None else None" if self._unguarded(stage, channel.source) else ""
                made, args = "flow.given", [name, *args]
            elif producer in self.slice_.stages:
                source = self.names.stages[producer]
                missing = self.guards[producer] and source not in self.guards[stage.name]
                absent = f" if {source} else None" if missing else ""
                made, args = f"{source}.{identifier(out)}.channel", [f"window={_window(channel)}", *args]
            else:
                continue
            yield layout.call(f"{target} = {made}", args, absent + comment, indent=8)

    def _unguarded(self, stage: Stage, given: str) -> bool:
        """Whether a pipeline input may be absent where the stage runs all the same."""
        optional = any(i.name == given and i.type.optional for i in self.pipeline.inputs)
        return optional and self.names.arguments[given] not in self.guards[stage.name]

    def _channel(self, source: str) -> Channel | None:
        return next((c for c in self.pipeline.channels if c.name == source), None)

    def _sources(self, stage: Stage) -> Iterator[str]:
        """Names of pipeline inputs that feed the stage directly."""
        for port, source in stage.inputs:
            if f"{stage.name}.{port}" == self.endpoint.entry:
                continue
            channel = self._channel(source)
            name = channel.source if channel else source
            if "." not in name:
                yield name

    def _guards(self, stage: Stage) -> Iterator[str]:
        optional = {i.name for i in self.pipeline.inputs if i.type.optional}
        for port, source in stage.inputs:
            if f"{stage.name}.{port}" == self.endpoint.entry or port in stage.optional:
                continue
            channel = self._channel(source)
            name = channel.source if channel else source
            producer = name.rpartition(".")[0]
            if not producer and name in optional:
                yield self.names.arguments[name]
            elif self.guards.get(producer):
                yield self.names.stages[producer]


def _read(stages: Iterable[Stage]) -> Iterator[str]:
    """Params that keys of the stages are computed from."""
    for stage in stages:
        for _, setting in stage.keys:
            if isinstance(setting.value, Expr):
                yield from (name.path[0] for name in names_in(setting.value))


def varied(pipeline: Pipeline) -> frozenset[str]:
    """Fields of requests that set keys of several stages whose defaults differ: left out, each keeps its own."""
    first: dict[str, Any] = {}
    params = {p.name for p in pipeline.params}
    open_ = [s.value for stage in pipeline.stages for _, s in stage.keys if isinstance(s.value, Open)]
    return frozenset(k.field for k in open_ if first.setdefault(k.field, k.default) != k.default) - params


def _segmenter(channel: Channel) -> str | None:
    stream = get(channel.how, "stream")
    mode, size = stream_mode(stream.value if stream else "whole")
    if channel.type.kind == "latents" and mode == "chunk":
        first = get(channel.how, "first")
        return f"Chunks({size})" if first is None else f"Chunks({size}, first={py.literal(first.value)})"
    return _SEGMENTERS.get(mode) if channel.type.kind == "text" else None


def _window(channel: Channel) -> str:
    setting = get(channel.how, "window")
    assert setting is not None, "the stream pass gives every channel its window"
    return py.literal(setting.value)
