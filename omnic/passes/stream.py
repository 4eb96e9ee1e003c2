"""`stream`: in what pieces each edge flows, and how many may wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.expr import Call, Literal, Quantity
from omnic.ir.edges import STREAM_MODES, TEXT_CUTS, stream_mode
from omnic.ir.pipeline import Channel, Pipeline, Stage, get
from omnic.passes.base import Context, Pass, decide

_WINDOWS = {"token": 64, "word": 32, "clause": 8, "sentence": 4, "chunk": 4, "whole": 1}


@dataclass(frozen=True, slots=True)
class StreamPass(Pass):
    """Decides the mode of every channel (unless pinned, the first that its target takes and its source gives: the
    finest, where finer is better) and its window of credits, and tells each resampler the rate of what it is given.

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
        self._single(pipeline, context)
        return pipeline

    def _single(self, pipeline: Pipeline, context: Context) -> None:
        """Says which endpoint, whose answers hold one picture, is given several."""
        for output in pipeline.outputs:
            mode = _made(pipeline, output.source, context)[0] if "." in output.source else "whole"
            served = [
                endpoint
                for endpoint in pipeline.endpoints
                if endpoint.name.startswith("images.") and any(output.name in s.outputs for s in endpoint.slices)
            ]
            if output.type.kind == "image" and mode != "whole" and served:
                context.sink.error(
                    "several-values",
                    f"an answer of `{served[0].name}` holds one picture; `{output.name}` comes once a {mode}",
                    output.span or served[0].span,
                    help=["serve it by `chat.completions`, or let it come `whole`"],
                )

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
            mode = _unpinned(gives, takes)
            if channel.type.kind == "latents" and "chunk" in gives and "chunk" in takes:
                mode, one = "chunk", Call("chunk", (Literal(1),))
                how = decide(how, "stream", one, "the finest both ends share: a frame of latents at a time")
            else:
                how = decide(how, "stream", mode, _why(mode, gives, takes, channel))
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


def _unpinned(gives: tuple[str, ...], takes: tuple[str, ...]) -> str:
    return next((m for m in takes if m in gives and m != "chunk"), "whole")


def _why(mode: str, gives: tuple[str, ...], takes: tuple[str, ...], channel: Channel) -> str:
    if mode == gives[0]:
        return "the finest its source gives"
    if all(STREAM_MODES.index(m) >= STREAM_MODES.index(mode) for m in takes):
        return f"`{channel.target}` takes nothing finer"
    return f"what `{channel.target}` takes unless told otherwise"


def modes(pipeline: Pipeline, channel: Channel, context: Context) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modes that the source of a channel can give, finest first, and those that its target can take, in the order
    in which it prefers them."""
    return _given(pipeline, channel, context), _taken(channel, context)


def _given(pipeline: Pipeline, channel: Channel, context: Context) -> tuple[str, ...]:
    if "." in channel.source:
        return _made(pipeline, channel.source, context)
    return TEXT_CUTS if channel.type.kind == "text" else ("whole",)


def _made(pipeline: Pipeline, source: str, context: Context) -> tuple[str, ...]:
    """The modes that the output `STAGE.PORT` can give."""
    stage, _, name = source.rpartition(".")
    port = context.parts[stage].output(name)
    if port is None:
        return ("whole",)
    if port.follows is None:
        return tuple(m for m in STREAM_MODES if m in port.streams)
    feeding = next((c for c in pipeline.channels if c.target == f"{stage}.{port.follows}"), None)
    if feeding is None:
        return ("whole",)
    pinned = get(feeding.how, "stream")
    return (stream_mode(pinned.value)[0] if pinned else _unpinned(*modes(pipeline, feeding, context)),)


def _taken(channel: Channel, context: Context) -> tuple[str, ...]:
    if channel.target.startswith("output "):
        return STREAM_MODES
    stage, _, name = channel.target.rpartition(".")
    port = context.parts[stage].input(name)
    return port.streams if port is not None else ("whole",)


def _or(words: tuple[str, ...]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
