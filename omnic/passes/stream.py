"""`stream`: in what pieces each edge flows, and how many may wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.expr import Quantity
from omnic.ir.edges import STREAM_MODES, TEXT_CUTS, stream_mode
from omnic.ir.pipeline import Channel, Pipeline, Stage, get
from omnic.passes.base import Context, Pass, decide

_WINDOWS = {"token": 64, "word": 32, "clause": 8, "sentence": 4, "chunk": 4, "whole": 1}


@dataclass(frozen=True, slots=True)
class StreamPass(Pass):
    """Decides the mode of every channel (the finest that both ends share, unless pinned) and its window of credits, and
    tells each resampler the rate of what it is given.

    After it every channel has a mode possible at both ends and a window of at least 1; a ramp or left context stands
    only where chunks flow, the ramp rising to the chunk's size at most.
    """

    name: ClassVar[str] = "stream"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        for channel in pipeline.channels:
            pipeline = pipeline.with_channel(self._decided(pipeline, channel, context))
        for stage in pipeline.stages:
            if stage.model is None and stage.part == "resample":
                pipeline = pipeline.with_stage(self._source_rate(pipeline, stage, context))
        return pipeline

    def _source_rate(self, pipeline: Pipeline, stage: Stage, context: Context) -> Stage:
        types = {i.name: i.type for i in pipeline.inputs} | {c.name: c.type for c in pipeline.channels}
        source = dict(stage.inputs)["audio"]
        rate = next((arg for arg in types[source].args if isinstance(arg, Quantity)), None)
        if rate is None:
            context.sink.error(
                "unknown-rate",
                f"`{stage.name}` is given sound of no stated rate",
                stage.span,
                help=["state it where the sound comes from, such as `audio<24kHz>`"],
            )
            return stage
        return replace(stage, how=decide(stage.how, "source_rate", rate, "what feeds it"))

    def _decided(self, pipeline: Pipeline, channel: Channel, context: Context) -> Channel:
        gives, takes = modes(pipeline, channel, context)
        how = channel.how
        pinned = get(how, "stream")
        if (condition := get(how, "when")) is not None:
            context.sink.error("not-supported-yet", "omnic cannot run edges on a condition yet", condition.span)
        if pinned is None:
            shared = [m for m in STREAM_MODES if m in gives and m in takes and m != "chunk"]
            mode = shared[0] if shared else "whole"
            coarser = f"`{channel.target}` takes nothing finer" if gives[0] != mode else "the finest its source gives"
            how = decide(how, "stream", mode, coarser)
        else:
            mode = stream_mode(pinned.value)[0]
            if mode not in gives or mode not in takes:
                lacking, able = (channel.source, gives) if mode not in gives else (channel.target, takes)
                verb = "gives" if mode not in gives else "takes"
                context.sink.error(
                    "impossible-stream",
                    f"`{channel.source} -> {channel.target}` cannot stream by {mode}: `{lacking}` {verb} {_or(able)}",
                    pinned.span or channel.span,
                    help=[f"stream = {m}" for m in STREAM_MODES if m in gives and m in takes][:1],
                )
        self._ramp(channel, context)
        how = decide(how, "window", _WINDOWS.get(mode, 1), f"enough {mode} units to bridge a pause")
        return replace(channel, how=how)

    def _ramp(self, channel: Channel, context: Context) -> None:
        """Says what is wrong with the `first`, `context` and `window` of a channel."""
        stream = get(channel.how, "stream")
        mode, size = stream_mode(stream.value) if stream else ("", None)
        for name, low in (("first", 1), ("context", 0), ("window", 1)):
            setting = get(channel.how, name)
            if setting is None:
                continue
            counts = setting.value if isinstance(setting.value, tuple) else (setting.value,)
            if any(type(n) is not int or n < low for n in counts) or (name != "first" and len(counts) != 1):
                why = f"`{name}` must be a whole number from {low}" + (", or a list of them" if name == "first" else "")
            elif name != "window" and mode != "chunk":
                why = f"`{name}` needs `stream = chunk(n)`"
            elif name == "first" and (list(counts) != sorted(set(counts)) or (size is not None and counts[-1] > size)):
                why = f"`first` must rise, to at most the chunk's {size}"
            else:
                continue
            context.sink.error(f"bad-{name}", why, setting.span or channel.span)

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for channel in pipeline.channels:
            stream, window = get(channel.how, "stream"), get(channel.how, "window")
            if stream is None or window is None or window.value < 1:
                yield f"channel `{channel.name}` has no mode or no window"
            else:
                for ends in modes(pipeline, channel, context):
                    if stream_mode(stream.value)[0] not in ends:
                        yield f"channel `{channel.name}` cannot stream by {stream.value}"


def modes(pipeline: Pipeline, channel: Channel, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modes that the source of a channel can give, and those that its target can take, finest first."""
    return _given(channel, context), _taken(channel, context)


def _given(channel: Channel, context: Context) -> tuple[str, ...]:
    stage, dot, name = channel.source.rpartition(".")
    if not dot:
        return TEXT_CUTS if channel.type.kind == "text" else ("whole",)
    port = context.parts[stage].output(name)
    return port.streams if port is not None else ("whole",)


def _taken(channel: Channel, context: Context) -> tuple[str, ...]:
    if channel.target.startswith("output "):
        return STREAM_MODES
    stage, _, name = channel.target.rpartition(".")
    port = context.parts[stage].input(name)
    return port.streams if port is not None else ("whole",)


def _or(words: tuple[str, ...]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
