"""Runs jobs: takes them from the store when there is room, films what they make, says how far they are."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import msgspec

from omnic.runtime import video_files
from omnic.runtime.errors import RequestError
from omnic.runtime.flow import Finished, Step
from omnic.runtime.messages import ProtocolError, pack_arguments, unpack_arguments
from omnic.runtime.server.filming import Filming
from omnic.runtime.server.jobs import Job, Store, directory_of
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.pictures import Picture
from omnic.runtime.server.problems import Problem, problem_of
from omnic.runtime.server.service import Service

log = logging.getLogger("omnic.server")
T = TypeVar("T")
ENDPOINT = "videos"
_LOOK_SECONDS = 0.5  # between looks at what other servers did
_TEND_SECONDS = 5.0  # between looks at which servers live
_REPORT_SECONDS = 0.25  # between two reports of progress


class Runner:
    """The jobs of one server. `start` and `stop` belong to the app's life; all from its event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        build = hashlib.sha256((service.build / "manifest.json").read_bytes()).hexdigest()[:16]
        directory = service.settings.jobs or directory_of(service.build, service.model)
        self._thread = ThreadPoolExecutor(1, "omnic jobs")  # the one that uses the database
        self._open = functools.partial(Store, directory, build, service.settings.video_seconds)
        self._store: Store | None = None
        self._wake = asyncio.Event()
        self._asking = False  # whether the first job in line stands before the door, too
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def store(self) -> Store:
        assert self._store is not None, "started"
        return self._store

    async def start(self) -> None:
        """Raises OSError or sqlite3.Error if the store cannot be opened."""
        self._store = await self.do(self._open)
        with suppress(RequestError):  # said when a video is asked for
            await asyncio.to_thread(video_files.rehearse)
        await self.do(self.store.tend)
        self._service.lines[ENDPOINT] = self._in_line
        self._tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._look())]

    async def stop(self) -> None:
        """Takes no more jobs, gives running ones the time that settings grant, then says that they have failed."""
        self._service.lines.pop(ENDPOINT, None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.do(int)  # after a job that was being taken
        await asyncio.sleep(0)
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._service.settings.drain_seconds)
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._store is not None:
            for id in await self.do(self.store.mine):
                await self.do(self.store.fail, id, "server_stopped", "the server was shut down before it was done")
            await self.do(self.store.close)
        self._thread.shutdown()

    async def do(self, work: Callable[..., T], *values: Any) -> T:
        """`work` on the thread that uses the database."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(work, *values))

    async def add(self, job: Job, arguments: dict[str, Any]) -> Job:
        """Puts a job in line. Raises Problem if the line is full, RequestError for a damaged picture."""
        door = self._service.doors[ENDPOINT]
        if await self.do(self.store.waiting) >= door.line:
            headers = {"retry-after": str(door.retry_seconds)}
            raise Problem(429, f"{door.line} jobs wait already: try again later", "queue_full", headers=headers)
        pictures = {}
        for name, value in arguments.items():
            if isinstance(value, Picture):
                await value.pixels()  # one that cannot be read is refused now
                pictures[name] = await value.data(), value.field, value.max_pixels, value.alpha
        plain = {name: value for name, value in arguments.items() if name not in pictures}
        body = msgspec.msgpack.encode((pack_arguments(plain), pictures))
        added = await self.do(self.store.add, job, body)
        self._wake.set()
        return added

    async def delete(self, id: str) -> bool:
        """Cancels a job if it runs, and forgets it. Whether there was one."""
        gone = await self.do(self.store.delete, id)
        if task := self._running.get(id):
            task.cancel()
        return gone

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _in_line(self) -> int:
        """Jobs that wait and are not counted at the door."""
        return max(0, await self.do(self.store.waiting) - self._asking)

    async def _take(self) -> None:
        """Takes jobs as long as there are any and there is room for them."""
        while True:
            self._wake.clear()
            try:
                while self._service.ready and await self.do(self.store.waiting) > 0:
                    self._asking = True
                    leave = await self._service.doors[ENDPOINT].enter(patient=True)
                    self._asking = False
                    await asyncio.shield(self._claim(leave))
            except sqlite3.Error as error:
                log.error("the store of jobs: %s", error)
            except Problem:  # sent away: the server is shutting down
                return
            await _within(self._wake.wait(), _LOOK_SECONDS)

    async def _claim(self, leave: Callable[[], None]) -> None:
        """Runs the oldest job in the place that was had for it."""
        claimed = None
        try:
            if self._service.ready:
                claimed = await self.do(self.store.claim)
        finally:
            if claimed is None:
                leave()
        if claimed is not None:
            job, body = claimed
            task = self._running[job.id] = asyncio.create_task(self._run(job, body, leave))
            task.add_done_callback(lambda _: self._running.pop(job.id, None))

    async def _look(self) -> None:
        """Stops what another server's client has deleted; tends the store."""
        tended = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                running = dict(self._running)
                there = await self.do(self.store.mine) if running else set()
                for id in running.keys() - there:
                    running[id].cancel()
                if time.monotonic() - tended > _TEND_SECONDS:
                    tended = time.monotonic()
                    await self.do(self.store.tend)
            except sqlite3.Error as error:
                log.error("the store of jobs: %s", error)

    async def _run(self, job: Job, body: bytes, leave: Callable[[], None]) -> None:
        """One job to its end, and says which it was."""
        measure = Measure(self._service.metrics, ENDPOINT)
        measure.entered(max(0.0, time.time() - job.created))
        film = Filming(self._service, self.store.part(job.id), measure)
        try:
            await self._film(job, body, leave, film, measure)
            size, seconds = await film.close()
            done = await self.do(self.store.complete, job.id, size, seconds)
            measure.end("completed" if done else "cancelled")
        except asyncio.CancelledError:
            measure.end("cancelled")
            raise
        except Exception as error:
            problem = problem_of(error)
            if problem.code == "internal_error":
                log.error("%s: a fault of the server", job.id, exc_info=error)
            measure.end(problem.outcome)
            await self.do(self.store.fail, job.id, problem.code or "failed", problem.message)
        finally:
            await film.drop()

    async def _film(self, job: Job, body: bytes, leave: Callable[[], None], film: Filming, measure: Measure) -> None:
        try:
            arguments = _unpacked(body, self._service)
            if job.seed is not None:
                arguments["seed"] = job.seed
        except BaseException:
            leave()
            raise
        stages = self._service.iterative(ENDPOINT, job.method)
        taken: dict[str, float] = {}
        reported = 0.0
        async with aclosing(self._service.admitted(job.method, arguments, leave)) as events:
            async for each in events:
                if isinstance(each, Step):
                    taken[each.stage] = each.done / each.total
                    if time.monotonic() - reported > _REPORT_SECONDS:
                        reported = time.monotonic()
                        percent = int(99 * sum(taken.values()) / max(len(stages), len(taken)))
                        await self.do(self.store.progress, job.id, percent)
                elif isinstance(each, Finished):
                    measure.finished(each)
                else:
                    await film.take(each)


def _unpacked(body: bytes, service: Service) -> dict[str, Any]:
    """What `add` packed. Raises RequestError if another version of omnic packed it."""
    try:
        plain, pictures = msgspec.msgpack.decode(body, type=tuple[bytes, dict[str, tuple[bytes, str, int, bool]]])
        arguments = unpack_arguments(plain)
    except (msgspec.DecodeError, ProtocolError):
        raise RequestError("what this job was to run can no longer be read", code="pipeline_changed") from None
    for name, (data, field, max_pixels, alpha) in pictures.items():
        arguments[name] = Picture.of(data, field, max_pixels, service.reading, alpha=alpha)
    return arguments


async def _within(waiting: Any, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        return
