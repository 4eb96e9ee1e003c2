"""Stages that make something once a request, at once or in pieces: text encoders, VAEs."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from omnic.runtime import families
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Transform
from omnic.runtime.edges import Channel, Port
from omnic.runtime.flow import Flow
from omnic.runtime.home import Home, moved
from omnic.runtime.stage import Progress, Running
from omnic.runtime.tensors import Loaded
from omnic.runtime.weights import Checkpoint

if TYPE_CHECKING:
    from omnic.runtime.engines.ahead import Ahead

T = TypeVar("T")


class Forward:
    """A part of a model that runs once a request. Satisfies `stage.Stage`.

    `inputs` and `outputs` name its ports; every other argument of `start` is a setting. Long work, and what comes over
    an edge that is cut into pieces, is a call of the device for each part of it: other work goes on in between, and a
    request that is cancelled stops there.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        device: Device,
        *,
        part: str,
        dtype: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        engines: Ahead | None = None,
    ) -> None:
        self.name, self.checkpoint, self._device = name, checkpoint, device
        self._part, self._inputs, self._outputs = part, inputs, outputs
        self._home = Home(dtype, device.torch)
        self._engines = engines
        self._totals = {"requests": 0.0, "busy_seconds": 0.0}
        self._transform: Transform | None = None

    def load(self, progress: Progress) -> None:
        """Raises Missing or Damaged for a checkpoint that cannot be used, what `Ahead.install` does for an engine."""
        family = families.load(self.checkpoint.model.family)

        def loaded(done: int, total: int) -> None:
            progress(self.name, done, total)

        self._transform = self._device.submit(partial(self._loaded, family, loaded)).result()

    def _loaded(self, family: Any, loaded: Loaded) -> Transform:
        transform: Transform = family.load(self.checkpoint, self._part, self._home, loaded)
        if self._engines is not None:
            self._engines.install(transform)
        return transform

    def start(self, flow: Flow, **given: Any) -> Running:
        ports = {name: Port() for name in self._outputs}
        flow.run(lambda: self._serve(flow, given, ports), stage=self.name)
        return Running(ports)

    async def close(self) -> None:
        self._transform = None

    def stats(self) -> dict[str, float]:
        return {**self._totals, **({} if self._engines is None else {"engine_tensorrt": 1.0})}

    async def _serve(self, flow: Flow, given: Mapping[str, Any], ports: Mapping[str, Port]) -> None:
        report = flow.report.stages[self.name] = {"seconds": 0.0}
        streamed = self._streamed(given)
        rest = {name: value for name, value in given.items() if name != streamed}
        ask = await asked(flow, rest, tuple(name for name in self._inputs if name != streamed))
        made = self._whole(ask, report) if streamed is None else self._pieces(ask, given[streamed], report, ports)
        async with aclosing(made) as parts:
            async for values in parts:
                for name, value in values.items():
                    ports[name].send(value)
        self._totals["requests"] += 1
        for port in ports.values():
            port.close()

    def _streamed(self, given: Mapping[str, Any]) -> str | None:
        """The port at which this request's input comes in pieces."""
        name: str | None = getattr(self._transform, "streams", None)
        edge = given.get(name) if name else None
        return name if isinstance(edge, Channel) and edge.segmenter is not None else None

    async def _whole(self, ask: Ask, report: dict[str, float]) -> AsyncGenerator[Mapping[str, Any], None]:
        assert self._transform is not None
        ask = replace(ask, inputs=moved(ask.inputs, self._home.device))
        found = await self._timed(report, partial(self._transform.run, ask))
        if not isinstance(found, Iterator):
            yield found
            return
        while (values := await self._timed(report, partial(next, found, None))) is not None:
            yield values

    async def _pieces(
        self, ask: Ask, pieces: Channel[Any], report: dict[str, float], ports: Mapping[str, Port]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """One call of the device a piece, once those who read can take what it gives."""
        transform: Any = self._transform
        push = await self._timed(report, partial(transform.begin, ask))
        async for piece in pieces:
            for port in ports.values():
                await port.room()
            yield await self._timed(report, partial(push, moved(piece, self._home.device)))

    async def _timed(self, report: dict[str, float], work: Callable[[], T]) -> T:
        seconds, found = await self._device.run(lambda: timed(work))
        report["seconds"] += seconds
        self._totals["busy_seconds"] += seconds
        return found


async def asked(flow: Flow, given: Mapping[str, Any], inputs: tuple[str, ...]) -> Ask:
    """The whole values of the ports among `given`, once they have come, and the settings that the rest are."""
    values = {name: await whole(given.get(name)) for name in inputs}
    return Ask(flow.seed, values, {name: value for name, value in given.items() if name not in inputs})


async def asks(
    flow: Flow, given: Mapping[str, Any], inputs: tuple[str, ...], streamed: str | None
) -> AsyncGenerator[Ask, None]:
    """What is asked for each value that comes at the port `streamed`, with a seed of its own: the request's for the
    first, one more for each next. Without such a port, or with a value there that is no channel, it is one."""
    edge = given.get(streamed) if streamed else None
    if streamed is None or not isinstance(edge, Channel):
        yield await asked(flow, given, inputs)
        return
    rest = {name: value for name, value in given.items() if name != streamed}
    ask = await asked(flow, rest, tuple(name for name in inputs if name != streamed))
    seeds = itertools.count(flow.seed)
    async for value in edge:
        yield replace(ask, seed=next(seeds) % (1 << 63), inputs={**ask.inputs, streamed: value})


async def whole(value: Any) -> Any:
    """What a port is given: a value, or the one item of a channel; text that comes in pieces is joined."""
    if not isinstance(value, Channel):
        return value
    items = [item async for item in value]
    if items and isinstance(items[0], str):
        return "".join(items)
    if len(items) > 1:
        raise ValueError(f"a port that takes one value got {len(items)}")
    return items[0] if items else None


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """How many seconds `work` took, and what it gave."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found
