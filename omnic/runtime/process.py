"""One worker process as the server sees it: the socket to it, the calls that run in it, whether it lives."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from omnic.runtime import messages as m
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Finished, Piece, Step

log = logging.getLogger("omnic.worker")


class WorkerLost(RuntimeError):
    """No worker can take the request, or the one that ran it died. The same request may succeed in `retry_seconds`."""

    def __init__(self, message: str, retry_seconds: int = 5) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, in seconds."""

    beat: float = 0.5  # between heartbeats
    hung: float = 3.0  # without a word from a loaded worker: it hangs
    hung_loading: float = 120.0  # the same while it loads, when native code may hold it for long
    stuck: float = 600.0  # between two reports of progress while it loads
    backoff: tuple[float, ...] = (0.25, 1.0)  # before each next try; one more failure is the last
    settled: float = 30.0  # ready for this long, or one request served: earlier failures no longer count
    stop: float = 3.0  # for a worker to leave by itself


class Call:
    """A request in the worker: iterate it, once, for Pieces, Steps (the newest of each stage) and one Finished.

    Raises RequestError, StageFailed, WorkerLost or Cancelled. Leaving the iteration early cancels. `over` is set
    when the worker has let go of the request.
    """

    def __init__(self, worker: Process, id: int, credit: int) -> None:
        self._worker, self._id = worker, id
        self._credit = max(2, credit)
        self._events: deque[m.Part | Finished | Exception] = deque()
        self._steps: dict[str, Step] = {}  # not yet read
        self._arrived = asyncio.Event()
        self._over_callbacks: list[Callable[[], None]] = []
        self._taken = self._owed = 0
        self.over = False

    def when_over(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the worker has let go of the request; at once if it has."""
        if self.over:
            callback()
        else:
            self._over_callbacks.append(callback)

    def cancel(self) -> None:
        """Stops the request at its next step. Does nothing once it is over."""
        if not self.over:
            self._worker.send(m.Cancel(self._id))

    def fail(self, error: Exception) -> None:
        """Cancels the request, and has whoever iterates it get `error` in place of what is left."""
        self.cancel()
        self._events.clear()
        self.give(error)

    async def __aiter__(self) -> AsyncIterator[Piece | Step | Finished]:
        try:
            while True:
                while self._steps or self._events:
                    if self._steps:
                        yield self._steps.pop(next(iter(self._steps)))
                        continue
                    event = self._events.popleft()
                    if isinstance(event, Exception):
                        raise event
                    if isinstance(event, Finished):
                        yield event
                        return
                    self._take(event)
                    yield event.piece
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self.cancel()

    def _take(self, part: m.Part) -> None:
        if part.number != self._taken:
            raise m.ProtocolError(f"piece {part.number} came where {self._taken} was due")
        self._taken += 1
        self._owed += 1
        if self._owed * 2 >= self._credit and not self.over:
            self._worker.send(m.Credit(self._id, self._owed))
            self._owed = 0

    # --- called by the process   ---------------------------------------------------------------------------------

    def give(self, event: m.Part | Finished | Exception) -> None:
        self._events.append(event)
        self._arrived.set()

    def stepped(self, step: Step) -> None:
        unread = self._steps.get(step.stage)
        if step.preview is None and unread is not None:
            step = replace(step, preview=unread.preview)
        self._steps[step.stage] = step
        self._arrived.set()

    def end(self, event: Finished | Exception) -> None:
        self.over = True
        self.give(event)
        for callback in self._over_callbacks:
            callback()


@dataclass(eq=False, slots=True)
class Process:
    """One worker process and the socket to it."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_ready: Callable[[], None]
    on_lost: Callable[[], None]
    loading: dict[str, tuple[int, int]] = field(default_factory=dict)  # stage: bytes loaded, bytes to load
    calls: dict[int, Call] = field(default_factory=dict)
    output: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    stats: dict[str, dict[str, float]] = field(default_factory=dict)
    broken: m.Broken | None = None
    ready_at: float | None = None
    served: bool = False
    leaving: bool = False
    heard: float = field(default_factory=time.monotonic)
    progressed: float = field(default_factory=time.monotonic)
    killed: str = ""  # why this side ended it
    pings: int = 0
    pongs: dict[int, asyncio.Future[None]] = field(default_factory=dict)
    last_id: int = 0

    @classmethod
    async def spawn(
        cls, python: str, build: Path, on_ready: Callable[[], None], on_lost: Callable[[], None]
    ) -> Process:
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            try:
                process = await asyncio.create_subprocess_exec(
                    *(
                        python,
                        "-P",
                        "-m",
                        "omnic.runtime.workers",
                        str(build),
                        "--fd",
                        str(fd),
                        "--parent",
                        str(os.getpid()),
                    ),
                    pass_fds=(fd,),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    env=os.environ | {"PYTHONUNBUFFERED": "1"},
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer, on_ready, on_lost)

    @property
    def pid(self) -> int:
        return self.process.pid

    def proved(self, settled: float) -> bool:
        """Whether it worked well enough that its end is no repetition of an earlier failure."""
        return self.served or (self.ready_at is not None and time.monotonic() - self.ready_at >= settled)

    def send(self, message: m.ToWorker) -> None:
        if not self.writer.is_closing():
            self.writer.write(m.pack(message))

    def submit(self, method: str, arguments: dict[str, Any], credit: int, previews: int) -> Call:
        self.last_id += 1
        call = self.calls[self.last_id] = Call(self, self.last_id, credit)
        self.send(m.Start.of(self.last_id, method, arguments, credit, previews))
        return call

    async def fresh_stats(self, wait: float) -> dict[str, dict[str, float]]:
        pong = self._ping()
        await asyncio.wait({pong}, timeout=wait)
        return self.stats

    async def stop(self, seconds: float) -> None:
        """Asks the worker to leave by closing the socket; kills it if it does not."""
        self.leaving = True
        self.writer.close()
        try:
            await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self.process.wait()

    def kill(self) -> None:
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                # not Process.kill: it polls first, and would take the status of one that has died from asyncio
                os.kill(self.pid, signal.SIGKILL)

    async def run(self, patience: Patience) -> str:
        """Serves the socket until the worker is gone; returns why, in one line. Every call has ended then."""
        copying = asyncio.create_task(self._copy_output())
        beating = asyncio.create_task(self._beat(patience))
        try:
            await self._listen()
        except m.ProtocolError as error:
            self.broken = m.Broken(f"the worker process sent what it should not: {error}", final=False)
        finally:
            self.on_lost()
            beating.cancel()
            for future in self.pongs.values():
                future.cancel()
            for call in list(self.calls.values()):
                call.end(WorkerLost("the worker process died while it ran the request"))
            self.calls.clear()
            self.writer.close()
            if not self.leaving:
                self.kill()
        status = await self.process.wait()
        await asyncio.wait({copying}, timeout=1.0)  # whatever it started may still hold its output open
        copying.cancel()
        return self._reason(status)

    def _reason(self, status: int) -> str:
        if self.broken:
            return self.broken.reason
        if self.killed:
            return f"the worker process {self.killed} and was killed"
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"the worker process {how}{'' if self.ready_at else ' while it loaded'}"

    async def _listen(self) -> None:
        while (body := await m.receive(self.reader)) is not None:
            self.heard = time.monotonic()
            self._handle(m.to_server(body))

    def _handle(self, message: m.ToServer) -> None:
        match message:
            case m.Part(id=id):
                if call := self.calls.get(id):
                    call.give(message)
            case m.Stepped(id=id):
                if call := self.calls.get(id):
                    call.stepped(message.step)
            case m.Ended(id=id, finished=finished):
                self._end(id, finished)
            case m.Failed(id=id):
                self._end(id, _exception(message))
            case m.Cancelled(id=id):
                self._end(id, Cancelled())
            case m.Pong(number=number, stats=stats):
                self.stats = stats or self.stats
                if (future := self.pongs.pop(number, None)) and not future.done():
                    future.set_result(None)
            case m.Loading(stage=stage, done=done, total=total):
                self.loading[stage], self.progressed = (done, total), self.heard
            case m.Ready():
                self.ready_at = time.monotonic()
                self.on_ready()
            case m.Broken():
                self.broken = message

    def _end(self, id: int, event: Finished | Exception) -> None:
        self.served = True
        if call := self.calls.pop(id, None):
            call.end(event)

    async def _beat(self, patience: Patience) -> None:
        """Asks for a sign of life, again and again. A worker that gives none is killed, which ends `run`; so is one
        that lives and gets nowhere with loading."""
        while not self.killed:
            pong, asked = self._ping(), time.monotonic()
            limit = patience.hung if self.ready_at else patience.hung_loading
            while not pong.done() and time.monotonic() - max(asked, self.heard) < limit:
                await asyncio.wait({pong}, timeout=patience.beat)
            heard = self.heard
            await asyncio.sleep(patience.beat)  # also lets a reply in that came while this process was busy
            if not pong.done() and self.heard == heard:
                self.killed = "did not answer"
            elif not self.ready_at and time.monotonic() - self.progressed > patience.stuck:
                self.killed = f"made no progress with loading for {patience.stuck:g} s"
        self.kill()

    def _ping(self) -> asyncio.Future[None]:
        self.pings += 1
        future = self.pongs[self.pings] = asyncio.get_running_loop().create_future()
        self.send(m.Ping(self.pings))
        return future

    async def _copy_output(self) -> None:
        """What the worker prints goes to the log: at once when it serves, while it loads only if that fails."""
        assert self.process.stdout is not None
        async for line in _lines(self.process.stdout):
            self.output.append(line)
            log.log(logging.INFO if self.ready_at else logging.DEBUG, line)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines as they come; one that is endless is cut into pieces."""
    rest = b""
    while data := await stream.read(65536):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip()
        if len(rest) > 65536:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _exception(failed: m.Failed) -> Exception:
    if failed.fault == "request":
        return RequestError(failed.message, failed.field, status=failed.status, code=failed.code)
    if failed.stage is None:
        return RuntimeError(failed.message)
    return StageFailed(failed.stage, failed.message, retryable=failed.retryable)
