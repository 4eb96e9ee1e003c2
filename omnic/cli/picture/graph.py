"""What a picture of a pipeline shows: boxes with a few lines of fact, and arrows with what flows along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnic.ir.pipeline import Channel, Pipeline, Setting, Stage, get
from omnic.target import memory_text


@dataclass(frozen=True, slots=True)
class Box:
    """`id` is unique in the picture; `lines` are the facts under the title."""

    id: str
    kind: str  # input | stage | output
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    source: str  # id of a box
    target: str
    text: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A picture's content; boxes in data-flow order. `notes` belong to the whole."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    notes: tuple[str, ...] = ()


def of(pipeline: Pipeline) -> Graph:
    """The graph of a pipeline, with whatever is decided so far."""
    boxes = [Box(f"input {i.name}", "input", i.name, (str(i.type),)) for i in pipeline.inputs]
    boxes += [Box(f"stage {s.name}", "stage", s.name, _facts(pipeline, s)) for s in pipeline.stages]
    boxes += [Box(f"output {o.name}", "output", o.name, (str(o.type),)) for o in pipeline.outputs]
    channels = {c.name: c for c in pipeline.channels}
    arrows = [
        Arrow(_origin(channels, source), f"stage {stage.name}", _text(channels.get(source), port))
        for stage in pipeline.stages
        for port, source in stage.inputs
    ]
    leading = {c.target: c for c in pipeline.channels}
    arrows += [
        Arrow(_origin(channels, o.source), f"output {o.name}", _text(leading.get(f"output {o.name}")))
        for o in pipeline.outputs
    ]
    title = f"{pipeline.name} on {pipeline.target}" if pipeline.target else pipeline.name
    return Graph(title, tuple(boxes), tuple(arrows), _notes(pipeline))


def _origin(channels: dict[str, Channel], source: str) -> str:
    """The box that feeds an edge: `source` is an input, a channel, or a stage's port."""
    source = channels[source].source if source in channels else source
    stage = source.rpartition(".")[0]  # that of a stage which is a pipeline has dots of its own
    return f"stage {stage}" if stage else f"input {source}"


def _text(channel: Channel | None, port: str = "") -> str:
    if channel is None:
        return port
    stream = get(channel.how, "stream")
    mode = f", {_shown(stream.value)}" if stream else ""
    when = get(channel.how, "when")
    return f"{channel.type}{mode}{f' when {when.value}' if when else ''}"


def _facts(pipeline: Pipeline, stage: Stage) -> tuple[str, ...]:
    what = f"{stage.model}.{stage.part}" if stage.model else f"{stage.kind} {stage.part}"
    decided = [f"{name} = {_shown(setting.value)}" for name, setting in stage.how if _told(setting)]
    held = [
        f"{item.removeprefix(stage.name + ' ')}: {memory_text(count)} on {device.name}"
        for device in pipeline.devices
        for item, count in device.items
        if item.startswith(f"{stage.name} ")
    ]
    return (what, *decided, *held)


def _told(setting: Setting) -> bool:
    return setting.value not in (None, False, ())


def _notes(pipeline: Pipeline) -> tuple[str, ...]:
    params = [f"{p.name}: {p.type}{f' in {p.domain}' if p.domain else ''}" for p in pipeline.params]
    served = [endpoint.name for endpoint in pipeline.endpoints]
    lines = (("params", params), ("serves", served))
    return tuple(f"{name}  {', '.join(values)}" for name, values in lines if values)


def _shown(value: Any) -> str:
    return " ".join(map(_shown, value)) if isinstance(value, tuple) else str(value)
