"""Decode stages: units in, sound out, as a vocoder or a voice does it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from omnic.runtime import families
from omnic.runtime.edges import Channel, Port, Segmenter
from omnic.runtime.errors import RequestError
from omnic.runtime.flow import Flow
from omnic.runtime.segment import Sentences, Whole
from omnic.runtime.stage import Progress, Running
from omnic.runtime.weights import Checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")


class Units(Protocol):
    """Makes what a decoder decodes of what comes through the edge, for one request."""

    def push(self, item: Any) -> list[Any]: ...

    def flush(self) -> list[Any]: ...


class Decoder(Protocol):
    """What a decode family loads. `decode` is called from several threads at once and keeps no state between units:
    the same unit with the same noise is the same sound."""

    parts: tuple[str, ...]
    rate_hz: int
    options: Mapping[str, Any]  # what requests may set, and its default

    def warm_up(self) -> None: ...

    def units(self, segmenter: Segmenter | None) -> Units: ...

    def decode(self, unit: Any, noise: np.random.Generator, **options: Any) -> NDArray[np.float32]: ...


class Decode:
    """A decode stage: `text` in, `audio` out, float32 [samples] at the decoder's rate, one array a unit.

    At most `lanes` units are in work at once, each on a thread of its own; requests take turns. The noise of a unit
    is keyed by the request's seed and the unit's place in the text, so sound depends on neither lanes nor neighbours,
    nor on whether the text came whole or in deltas.
    """

    def __init__(self, name: str, checkpoint: Checkpoint, *, part: str, lanes: int, threads: int) -> None:
        self.name = name
        self._checkpoint, self._part, self._threads = checkpoint, part, threads
        self._decoder: Decoder | None = None
        self._lanes = Lanes(lanes, name)
        self._totals = dict.fromkeys(("requests", "units", "audio_seconds", "busy_seconds"), 0.0)

    def load(self, progress: Progress) -> None:
        """Raises weights.Missing."""
        size = sum(file.bytes for file in self._checkpoint.model.files)
        progress(self.name, 0, size)
        decoder: Decoder = families.load(self._checkpoint.model.family).load(self._checkpoint, self._threads)
        if self._part not in decoder.parts:
            raise ValueError(f"`{self._checkpoint.model.family}` has no part `{self._part}`")
        decoder.warm_up()
        self._decoder = decoder
        progress(self.name, size, size)

    def start(self, flow: Flow, *, text: Channel[str], **options: Any) -> Running:
        decoder = self._loaded()
        if unknown := options.keys() - decoder.options.keys():
            raise TypeError(f"stage `{self.name}` takes no {', '.join(sorted(unknown))}")
        # text that its edge left in one piece, or in deltas, is cut here
        cut = text.segmenter is not None and not isinstance(text.segmenter, Whole)
        units = decoder.units(None if cut else Sentences())
        audio = Port()
        request = _Request(flow, text, units, audio, {**decoder.options, **options})
        flow.run(lambda: self._serve(request), stage=self.name)
        return Running({"audio": audio})

    async def close(self) -> None:
        await self._lanes.close()

    def stats(self) -> dict[str, float]:
        return {**self._totals, "queue": float(self._lanes.waiting), "running": float(self._lanes.running)}

    # --- one request -----------------------------------------------------------------------------------------------

    async def _serve(self, request: _Request) -> None:
        self._totals["requests"] += 1
        report = request.flow.report.stages[self.name] = {"units": 0.0, "audio_seconds": 0.0, "busy_seconds": 0.0}
        line = Port()
        ahead = line.channel(self._lanes.count)
        reader = asyncio.create_task(self._read(request, line))
        try:
            async for unit in ahead:
                decoded: _Decoded = await unit
                for counts in (report, self._totals):
                    counts["units"] += 1
                    counts["audio_seconds"] += len(decoded.samples) / self._loaded().rate_hz
                    counts["busy_seconds"] += decoded.seconds
                if len(decoded.samples):
                    await request.audio.room()
                    request.audio.send(decoded.samples)
        finally:
            reader.cancel()
            await asyncio.wait({reader})
            request.text.drop()
            self._lanes.forget(request)
        if not report["audio_seconds"]:
            reason = "nothing in the text can be spoken" if report["units"] else "the text has no words to speak"
            if request.text.given:
                raise RequestError(reason, "input")
            request.flow.note(request.audio, reason)
        request.audio.close()

    async def _read(self, request: _Request, line: Port) -> None:
        """Puts units to work in the order of the text, a few ahead of what is heard; gives their futures."""
        numbers = itertools.count()

        async def put(units: list[Any]) -> None:
            for unit in units:
                await line.room()
                line.send(self._lanes.run(request, self._job(request, next(numbers), unit)))

        try:
            async for item in request.text:
                await put(request.units.push(item))
            await put(request.units.flush())
            line.close()
        except Exception as error:
            line.close(error)

    def _job(self, request: _Request, index: int, unit: Any) -> Callable[[], _Decoded]:
        decoder, seed, options = self._loaded(), request.flow.seed, request.options

        def decode() -> _Decoded:
            begun = time.perf_counter()
            samples = decoder.decode(unit, noise(seed, index), **options)
            return _Decoded(samples, time.perf_counter() - begun)

        return decode

    def _loaded(self) -> Decoder:
        assert self._decoder is not None, f"stage `{self.name}` is used before it is loaded"
        return self._decoder


def noise(seed: int, index: int) -> np.random.Generator:
    """The source of noise of unit `index` of a request: the same for the same two numbers, whatever else runs."""
    import numpy as np

    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(index,))))


@dataclass(eq=False, slots=True)
class _Request:
    flow: Flow
    text: Channel[str]
    units: Units
    audio: Port
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Decoded:
    samples: NDArray[np.float32]
    seconds: float


class Lanes:
    """`count` threads that requests share. A request has its work done in order; requests take turns at free lanes."""

    def __init__(self, count: int, name: str) -> None:
        self.count, self.running = count, 0
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._queues: dict[object, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}
        self._promised: dict[object, set[asyncio.Future[Any]]] = {}

    @property
    def waiting(self) -> int:
        """Jobs that no lane has taken yet."""
        return sum(len(queue) for queue in self._queues.values())

    def run(self, request: object, job: Callable[[], T]) -> asyncio.Future[T]:
        """What `job` returns, once it had its turn."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(request, deque()).append((job, future))
        self._promised.setdefault(request, set()).add(future)
        self._dispatch()
        return future

    def forget(self, request: object) -> None:
        """Drops what waits for `request`; what a lane has taken runs to its end, unheard."""
        self._queues.pop(request, None)
        for future in self._promised.pop(request, ()):
            future.cancel()

    async def close(self) -> None:
        """Waits for what runs."""
        for request in list(self._promised):
            self.forget(request)
        await asyncio.to_thread(self._threads.shutdown)

    def _dispatch(self) -> None:
        while self._queues and self.running < self.count:
            request = next(iter(self._queues))
            queue = self._queues.pop(request)
            job, future = queue.popleft()
            if queue:
                self._queues[request] = queue  # behind the others
            self._begin(job, future)

    def _begin(self, job: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.running += 1

        def finished(done: asyncio.Future[Any]) -> None:
            self.running -= 1
            if not future.done():
                if error := done.exception():
                    future.set_exception(error)
                else:
                    future.set_result(done.result())
            self._dispatch()

        asyncio.get_running_loop().run_in_executor(self._threads, job).add_done_callback(finished)
