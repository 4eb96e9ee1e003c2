"""One request on its way through the stages: `Flow`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from omnic.runtime.edges import Channel, Port, Segmenter


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an output as it is made: a text delta (str) or audio (float32 array [samples])."""

    output: str
    index: int
    value: Any


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a flow that completed."""

    seed: int
    finish_reason: str | None = None  # stop | length, of the stage that generated the text
    prompt_tokens: int = 0
    completion_tokens: int = 0
    notes: dict[str, str] = field(default_factory=dict)  # output: why it is empty or cut
    stages: dict[str, dict[str, float]] = field(default_factory=dict)  # stage: what it measured


class Flow:
    """A request that runs: iterate it for `Piece`s and one `Finished`.

    Every flow reaches exactly one end: it finishes, raises (RequestError, StageFailed), or is cancelled; leaving
    the iteration early cancels. Whatever the end, each stage has let go of the request when it is reached.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = secrets.randbelow(1 << 31) if seed is None else seed
        self.report = Report()
        self._starts: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._outputs: list[tuple[str, Channel[Any]]] = []
        self._ends: list[Callable[[], None]] = []

    # --- what stages and generated code call -----------------------------------------------------------------------

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], end: Callable[[], None]) -> None:
        """Adds a stage's work, begun when the flow is iterated; `end` lets go of the request, called once, always."""
        self._starts.append(work)
        self._ends.append(end)

    def output(self, name: str, port: Port, window: int = 64) -> None:
        """Declares that what `port` gives is output `name` of the answer."""
        self._outputs.append((name, port.channel(window)))

    def given(self, value: Any, segmenter: Segmenter | None = None) -> Channel[Any]:
        """An edge fed by the request itself: all of `value` at once, cut by `segmenter`."""
        channel: Channel[Any] = Channel(1 << 30, segmenter)
        channel.send(value)
        channel.close()
        return channel

    # --- what callers use ------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Piece | Finished]:
        merged: asyncio.Queue[Piece] = asyncio.Queue(maxsize=1)
        work = [asyncio.create_task(start()) for start in self._starts]
        work += [asyncio.create_task(_forward(name, channel, merged)) for name, channel in self._outputs]
        done = asyncio.gather(*work)
        try:
            while not done.done() or not merged.empty():
                getter = asyncio.ensure_future(merged.get())
                await asyncio.wait({getter, done}, return_when=asyncio.FIRST_COMPLETED)
                if getter.done():
                    yield getter.result()
                else:
                    getter.cancel()
            await done  # raises what the first failing stage raised
            yield self.report.finished(self.seed)
        finally:
            for task in work:
                task.cancel()
            for end in self._ends:
                end()
            await asyncio.gather(*work, return_exceptions=True)

    async def result(self) -> dict[str, Any]:
        """Runs to the end; each output whole (text joined, audio concatenated), and `finished`."""
        pieces: dict[str, list[Any]] = {name: [] for name, _ in self._outputs}
        finished: Finished | None = None
        async for event in self:
            if isinstance(event, Finished):
                finished = event
            else:
                pieces[event.output].append(event.value)
        return {name: join(parts) for name, parts in pieces.items()} | {"finished": finished}


def join(parts: list[Any]) -> Any:
    """Text deltas or audio chunks as one value; None if there were none."""
    if not parts or isinstance(parts[0], str):
        return "".join(parts) if parts else None
    import numpy as np

    return np.concatenate(parts)


async def _forward(name: str, channel: Channel[Any], merged: asyncio.Queue[Piece]) -> None:
    index = 0
    async for value in channel:
        await merged.put(Piece(name, index, value))
        index += 1


class Report:
    """What stages say about a request, gathered into its `Finished`."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.prompt_tokens = self.completion_tokens = 0
        self.notes: dict[str, str] = {}
        self.stages: dict[str, dict[str, float]] = {}

    def finished(self, seed: int) -> Finished:
        return Finished(
            seed, self.finish_reason, self.prompt_tokens, self.completion_tokens, dict(self.notes), dict(self.stages)
        )
