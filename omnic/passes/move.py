"""`move`: what carries each edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.ir.edges import TRANSPORTS
from omnic.ir.pipeline import Channel, Pipeline, get
from omnic.passes.base import Context, Pass, decide, word


@dataclass(frozen=True, slots=True)
class MovePass(Pass):
    """Decides the transport of every channel: `local` inside one process, `shm` between two of one host.

    After it every channel has a transport that both of its ends have.
    """

    name: ClassVar[str] = "move"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        for channel in pipeline.channels:
            via, reason = _transport(pipeline, channel)
            pinned = get(channel.how, "via")
            if pinned is not None and word(pinned.value) != via:
                asked = word(pinned.value)
                known = asked in TRANSPORTS
                context.sink.error(
                    "not-supported-yet" if known else "unknown-transport",
                    f"`{channel.source} -> {channel.target}` cannot go via {asked}"
                    + (f" yet: {reason}" if known else f"; transports are {', '.join(TRANSPORTS)}"),
                    pinned.span or channel.span,
                    help=[f"via = {via}, or leave it out"],
                )
            how = channel.how if pinned is None else tuple(
                (n, replace(s, value=via) if n == "via" else s) for n, s in channel.how
            )  # fmt: skip
            pipeline = pipeline.with_channel(replace(channel, how=decide(how, "via", via, reason)))
        return pipeline

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for channel in pipeline.channels:
            via = get(channel.how, "via")
            if via is None or via.value != _transport(pipeline, channel)[0]:
                yield f"channel `{channel.name}` has no transport that both ends have"


def _transport(pipeline: Pipeline, channel: Channel) -> tuple[str, str]:
    """The transport of a channel, and why. Inputs are brought to, and outputs fetched from, where they are needed."""
    source, target = _process(pipeline, channel.source), _process(pipeline, channel.target)
    if source is None or target is None or source == target:
        return "local", "both ends are in one process"
    return "shm", f"`{source}` and `{target}` are processes of one host"


def _process(pipeline: Pipeline, port: str) -> str | None:
    """The process that hosts the stage of a port: one a device. What is on the host joins that of the first GPU."""
    stage = port.rpartition(".")[0]
    if not stage or port.startswith("output "):
        return None
    on = get(pipeline.stage(stage).how, "on")
    name: str = on.value[0] if on is not None else "cpu"
    return "gpu0" if name == "host" else name
