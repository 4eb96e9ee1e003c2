"""One request on its way through the stages: `Flow`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from omnic.runtime.edges import Channel, Port, Segmenter
from omnic.runtime.errors import Cancelled, RequestError, StageFailed

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an output as it is made: a text delta (str) or audio (float32 array [samples])."""

    output: str
    index: int
    value: Any


@dataclass(frozen=True, slots=True)
class Step:
    """How far an iterative stage has come. The latest replaces those that nobody has read yet.

    `preview` is the newest rough picture that nobody has seen, uint8 [height, width, 3]: where the flow asks for
    previews, at some of the steps.
    """

    stage: str
    done: int
    total: int
    preview: Any = field(default=None, compare=False)


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
    """A request that runs: iterate it, once, for `Piece`s and one `Finished`.

    Every flow reaches exactly one end, named by `state`: it is `finished`, `failed` (the iteration raises
    RequestError or StageFailed) or `cancelled`. `cancel` makes the iteration raise Cancelled; leaving the iteration
    early cancels too. Whatever the end, each stage has let go of the request when it is reached.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = secrets.randbelow(1 << 31) if seed is None else seed
        self.previews = 0  # how many an iterative stage should give, spread evenly over its steps; set before it runs
        self.report = Report()
        self.state = "new"  # new | running | finished | failed | cancelled
        self._work: list[tuple[Work, str | None]] = []
        self._ends: list[Callable[[], None]] = []
        self._outputs: list[tuple[str, Channel[Any]]] = []
        self._remark: str | None = None  # on a port that feeds no output itself
        self._steps: dict[str, Step] = {}  # not yet read
        self._turn = 0  # which output was served last
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._cancelling = False

    # --- what stages and generated code call -----------------------------------------------------------------------

    def run(self, work: Work, end: Callable[[], None] | None = None, stage: str | None = None) -> None:
        """Adds a stage's work, begun when the flow is iterated, and `end`, called once when the flow ends, however
        it ends, after the work was told to stop. Named, what the work raises is a StageFailed of that stage."""
        self._work.append((work, stage))
        if end:
            self._ends.append(end)

    def output(self, name: str, port: Port, window: int = 64) -> None:
        """Declares that what `port` gives is output `name` of the answer."""
        self._outputs.append((name, port.channel(window, on_arrival=self._wake.set)))

    def given(self, value: Any, segmenter: Segmenter | None = None) -> Channel[Any]:
        """An edge fed by the request itself: all of `value` at once, cut by `segmenter`."""
        channel: Channel[Any] = Channel(1 << 30, segmenter, given=True)
        channel.send(value)
        channel.close()
        return channel

    def progress(self, stage: str, done: int, total: int, preview: Any = None) -> None:
        """An iterative stage has taken `done` of `total` steps, and what it makes looks like `preview` by now."""
        if preview is None and (unread := self._steps.get(stage)):
            preview = unread.preview
        self._steps[stage] = Step(stage, done, total, preview)
        self._wake.set()

    def note(self, port: Port, reason: str) -> None:
        """Reports why what `port` gives is empty or cut, under the outputs it feeds: where other stages lie between,
        under those that are empty in the end."""
        fed = [name for name, channel in self._outputs if port.feeds(channel)]
        self.report.notes |= dict.fromkeys(fed, reason)
        self._remark = self._remark or (None if fed else reason)

    # --- what callers use ------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Stops the request where it is. Does nothing once it has ended."""
        if self.state == "new":
            self.state = "cancelled"
        elif self.state == "running":
            self._cancelling = True
            self._stop.set()
            self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Piece | Step | Finished]:
        if self.state == "cancelled":
            raise Cancelled
        if self.state != "new":
            raise RuntimeError("a flow can be iterated once")
        self.state, end = "running", "cancelled"
        # a task of its own, so that stages are stopped in order whatever befalls the one who iterates
        driver = asyncio.create_task(self._drive())
        driver.add_done_callback(self._driven)
        try:
            while (event := await self._next(driver)) is not None:
                yield event
            if self._remark:
                empty = {name: self._remark for name, channel in self._outputs if not channel.taken}
                self.report.notes = empty | self.report.notes
            end = "finished"
        except Cancelled:
            raise
        except Exception:
            end = "failed"
            raise
        finally:
            self.state = end
            for _, channel in self._outputs:
                channel.drop()
            self._stop.set()
            await asyncio.wait({driver})
        yield self.report.finished(self.seed)

    async def result(self) -> dict[str, Any]:
        """Runs to the end; each output whole (text joined, audio concatenated), and `finished`."""
        pieces: dict[str, list[Any]] = {name: [] for name, _ in self._outputs}
        finished: Finished | None = None
        async for event in self:
            if isinstance(event, Finished):
                finished = event
            elif isinstance(event, Piece):
                pieces[event.output].append(event.value)
        return {name: join(parts) for name, parts in pieces.items()} | {"finished": finished}

    # --- inside ----------------------------------------------------------------------------------------------------

    async def _next(self, driver: asyncio.Task[None]) -> Piece | Step | None:
        """The next event, outputs taking turns; None when all is said. Raises what ended the stages, at once."""
        while True:
            self._wake.clear()
            if self._cancelling:
                raise Cancelled
            if driver.done():
                _raise(driver)
            if self._steps:  # before what they led to
                return self._steps.pop(next(iter(self._steps)))
            for _ in self._outputs:
                self._turn = (self._turn + 1) % len(self._outputs)
                name, channel = self._outputs[self._turn]
                if channel.waiting:
                    return Piece(name, channel.taken, channel.take())
                if channel.error is not None:
                    raise channel.error
            if driver.done():
                return None
            await self._wake.wait()

    async def _drive(self) -> None:
        """Runs all stages at once. When one raises, or the flow is to stop, the others are stopped."""
        tasks = [asyncio.create_task(_guarded(work, stage)) for work, stage in self._work]
        stop = asyncio.create_task(self._stop.wait())
        try:
            while not stop.done() and not all(task.done() for task in tasks):
                await asyncio.wait({stop, *(t for t in tasks if not t.done())}, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:  # of several that failed together, the one furthest up is to blame
                    if task.done():
                        task.result()
        finally:
            stop.cancel()
            for task in tasks:
                task.cancel()
            faults = list(map(_fault, self._ends))  # all are called, whatever one of them raises
            await asyncio.gather(stop, *tasks, return_exceptions=True)
            for fault in filter(None, faults):
                raise fault

    def _driven(self, driver: asyncio.Task[None]) -> None:
        if not driver.cancelled():
            driver.exception()  # seen, even if whoever iterates has gone
        self._wake.set()


def _fault(end: Callable[[], None]) -> Exception | None:
    try:
        end()
    except Exception as error:
        return error
    return None


def _raise(driver: asyncio.Task[None]) -> None:
    if driver.cancelled():
        raise Cancelled
    if (error := driver.exception()) is not None:
        raise error


async def _guarded(work: Work, stage: str | None) -> None:
    """Runs a stage's work; what it raises becomes RequestError, Cancelled or StageFailed."""
    try:
        await work()
    except (RequestError, StageFailed, Cancelled):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StageFailed(stage or "?", "its work stopped without being asked to") from None
    except Exception as error:
        if stage is None:
            raise
        raise StageFailed.because(stage, error) from error


def join(parts: list[Any]) -> Any:
    """Text deltas, audio chunks or frames of a video as one value; a lone value as it is; None if there were none.
    Several pictures [height, width, channels] stay a list."""
    if len(parts) < 2:
        return parts[0] if parts else None
    if isinstance(parts[0], str):
        return "".join(parts)
    if parts[0].ndim == 3:
        return parts
    import numpy as np

    return np.concatenate(parts)


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
