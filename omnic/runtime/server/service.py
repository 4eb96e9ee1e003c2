"""What all requests of a server share: the worker, the doors before it, what is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias

from omnic.manifest import Manifest
from omnic.runtime.errors import RequestError
from omnic.runtime.flow import Finished, Piece, Step
from omnic.runtime.server.admission import Door
from omnic.runtime.server.kept import Kept
from omnic.runtime.server.metrics import Measure, Metrics
from omnic.runtime.server.pictures import pixels
from omnic.runtime.server.problems import unavailable
from omnic.runtime.server.settings import Settings
from omnic.runtime.workers import Call, State, Supervisor

Event: TypeAlias = Piece | Step | Finished
_READING = 2  # pictures unpacked at once
_WIDTHS = ("slots", "lanes", "batch")  # decisions that say how many requests a stage works on at once


class Service:
    """The state of one app, made before it starts and handed to every request."""

    def __init__(self, build: Path, content: Manifest, settings: Settings, supervisor: Supervisor) -> None:
        self.build, self.content, self.settings, self.supervisor = build, content, settings, supervisor
        self.created = int((build / "manifest.json").stat().st_mtime)
        self.metrics = Metrics(tuple(e.name for e in content.endpoints))
        self.draining = False
        self.kept = Kept(settings.picture_seconds, settings.pictures_bytes)
        self.reading = asyncio.Semaphore(_READING)
        self.doors = {
            e.name: Door(settings.running or _width(content, e.name), settings.queued, settings.queue_seconds)
            for e in content.endpoints
        }
        self.lines: dict[str, Callable[[], Awaitable[int]]] = {}  # endpoint: how many stand in a line of another kind
        self._calls: set[Call] = set()

    @property
    def model(self) -> str:
        """The name that requests give as `model`."""
        return self.content.pipeline

    @property
    def ready(self) -> bool:
        return self.supervisor.state is State.ready and not self.draining

    def require_ready(self) -> None:
        """Raises Problem unless requests can be served now."""
        if self.draining:
            raise unavailable("the server is shutting down")
        if self.supervisor.state is not State.ready:
            raise unavailable(f"the pipeline is {self.supervisor.state}")

    async def events(
        self, endpoint: str, method: str, arguments: dict[str, Any], measure: Measure
    ) -> AsyncGenerator[Piece | Finished, None]:
        """What a slice gives, once its turn has come. Leaving early cancels it, whether it waits or runs."""
        async with aclosing(self.run(endpoint, method, arguments, measure)) as events:
            async for event in events:
                if not isinstance(event, Step):
                    yield event

    async def run(
        self, endpoint: str, method: str, arguments: dict[str, Any], measure: Measure, previews: int = 0
    ) -> AsyncGenerator[Event, None]:
        """The same, and how far its iterative stages have come. Pictures among the arguments are read when its turn
        has come, so that those in line hold none. Raises RequestError, which names a field of the endpoint, for one
        that cannot be read and for what a stage refuses."""
        asked = time.monotonic()
        leave = await self.doors[endpoint].enter()
        measure.entered(time.monotonic() - asked)
        try:
            async with aclosing(self.admitted(method, arguments, leave, previews)) as events:
                async for event in events:
                    yield event
        except RequestError as error:
            served = self.content.endpoint(endpoint)
            error.field = served.blamed(error.field) if served else None
            raise

    async def admitted(
        self, method: str, arguments: dict[str, Any], leave: Callable[[], None], previews: int = 0
    ) -> AsyncGenerator[Event, None]:
        """The same for one that has a place, which it leaves by `leave`."""
        try:
            call = self.supervisor.submit(method, await pixels(arguments), previews)
        except BaseException:
            leave()
            raise
        self._calls.add(call)
        call.when_over(leave)  # the place is free when the worker has let go, not when the client has
        call.when_over(lambda: self._calls.discard(call))
        async with aclosing(aiter(call)) as events:  # type: ignore[type-var]  # a Call's iterator is a generator
            async for event in events:
                yield event

    def iterative(self, endpoint: str, method: str) -> tuple[str, ...]:
        """The stages of a slice that work in steps."""
        found = self.content.endpoint(endpoint)
        assert found is not None
        (slice_,) = (s for s in found.slices if s.method == method)
        return tuple(s.name for s in self.content.stages if s.kind == "denoise" and s.name in slice_.stages)

    def abort(self) -> None:
        """Ends every request there is, with an answer that says why."""
        reason = unavailable("the server is shutting down")
        for door in self.doors.values():
            door.turn_away(reason)
        for call in list(self._calls):
            call.fail(reason)

    async def scrape(self) -> bytes:
        """The metrics as they stand now."""
        metrics = self.metrics
        metrics.stages = await self.supervisor.stats()
        metrics.restarts = self.supervisor.restarts
        metrics.ready.set(self.ready)
        for name, door in self.doors.items():
            metrics.running.labels(name).set(door.inside)
            line = self.lines.get(name)
            metrics.waiting.labels(name).set(door.waiting + (await line() if line else 0))
        return metrics.text()


def _width(content: Manifest, endpoint: str) -> int:
    """How many requests of an endpoint to let in at once: what its widest stage works on, four at least."""
    found = content.endpoint(endpoint)
    assert found is not None
    stages = {name for s in found.slices for name in s.stages}
    widths = [s.how.get(key, 0) for s in content.stages if s.name in stages for key in _WIDTHS]
    return max([4, *(w for w in widths if isinstance(w, int))])
