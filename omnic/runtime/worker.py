"""The worker process: hosts a generated pipeline and runs its slices for the server at the other end of a socket.

It lives only as long as that server: the kernel kills it when the parent dies, and a closed socket ends it, also
while it loads.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import functools
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import aclosing
from pathlib import Path
from typing import Any

from omnic.contract.domains import BrokenRule, OutOfDomain
from omnic.manifest import Manifest, ManifestError
from omnic.runtime import errors
from omnic.runtime import messages as m
from omnic.runtime.flow import Finished, Flow, Piece, Step
from omnic.runtime.pipeline import Build, Pipeline, generated
from omnic.runtime.weights import Damaged, Missing

_PR_SET_PDEATHSIG = 1
_PROGRESS_SECONDS = 0.05
_CLOSE_SECONDS = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m omnic.runtime.workers", description="Started by a server.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--fd", type=int, required=True, help="the inherited end of a socket pair")
    parser.add_argument("--parent", type=int, required=True, help="process id of the server")
    args = parser.parse_args()
    die_with(args.parent)
    for ignored in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; the server decides when work stops
        signal.signal(ignored, signal.SIG_IGN)
    status = asyncio.run(_serve(args.build, socket.socket(fileno=args.fd)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of engines may still sit in native code


def die_with(parent: int) -> None:
    """Has the kernel kill this process when `parent` dies; exits at once if it is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


async def _serve(path: Path, sock: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=sock)
    link = _Link(writer)
    listening = asyncio.create_task(_listen(reader, link))
    try:
        content = Build.open(path).manifest
        pipeline_class = await asyncio.to_thread(generated, path, content.class_name)
        async with pipeline_class.load(progress=link.progress) as pipeline:
            link.host = _Host(pipeline, content, link)
            link.send(m.Ready())
            await listening
            _exit_in(_CLOSE_SECONDS)
            await link.host.close()
        return 0
    except (
        Missing,
        Damaged,
        errors.Stale,
        errors.Elsewhere,
        ManifestError,
        errors.RequestError,
        ImportError,
        SyntaxError,
    ) as error:
        link.send(m.Broken(str(error).splitlines()[0] if str(error) else type(error).__name__, final=True))
    except Exception as error:
        traceback.print_exc()
        link.send(m.Broken(f"{type(error).__name__}: {error}", final=False))
    await writer.drain()
    return 1


def _exit_in(seconds: float) -> None:
    """Ends the process after a while, whatever it is doing then."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


class _Link:
    """The way to the server. `host` is set once the pipeline is loaded."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.host: _Host | None = None
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._progress_due = 0.0

    def send(self, message: m.ToServer) -> None:
        if not self._writer.is_closing():
            self._writer.write(m.pack(message))

    def progress(self, stage: str, done: int, total: int) -> None:
        """Called by stages, from the thread that loads them."""
        now = time.monotonic()
        if done >= total or now >= self._progress_due:
            self._progress_due = now + _PROGRESS_SECONDS
            self._loop.call_soon_threadsafe(self.send, m.Loading(stage, done, total))


async def _listen(reader: asyncio.StreamReader, link: _Link) -> None:
    """Takes orders until the server is gone. While nothing is loaded, its going ends the process on the spot."""
    while (body := await m.receive(reader)) is not None:
        match m.to_worker(body):
            case m.Ping(number=number):
                link.send(m.Pong(number, link.host.stats() if link.host else {}))
            case m.Start() as start if link.host:
                link.host.start(start)
            case m.Cancel(id=id) if link.host:
                link.host.cancel(id)
            case m.Credit(id=id, pieces=pieces) if link.host:
                link.host.credit(id, pieces)
            case message:
                raise m.ProtocolError(f"{type(message).__name__} before Ready")
    if link.host is None:
        os._exit(1)


class _Request:
    """A running request and the pieces it may still send."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.granted = asyncio.Event()
        self.task: asyncio.Task[m.Ended] | None = None

    async def take(self) -> None:
        while self.credit <= 0:
            self.granted.clear()
            await self.granted.wait()
        self.credit -= 1


class _Host:
    """The loaded pipeline and the requests that run in it."""

    def __init__(self, pipeline: Pipeline, content: Manifest, link: _Link) -> None:
        self._pipeline, self._link = pipeline, link
        self._methods = frozenset(s.method for e in content.endpoints for s in e.slices)
        self._tuples = frozenset(f.argument for e in content.endpoints for f in e.fields if f.many and f.argument)
        self._running: dict[int, _Request] = {}

    def stats(self) -> dict[str, dict[str, float]]:
        return {stage.name: {k: float(v) for k, v in stage.stats().items()} for stage in self._pipeline.stages}

    def start(self, start: m.Start) -> None:
        request = self._running[start.id] = _Request(start.credit)
        request.task = asyncio.create_task(self._answer(start, request))
        request.task.add_done_callback(functools.partial(self._end, start.id))

    def cancel(self, id: int) -> None:
        if (request := self._running.get(id)) and request.task:
            request.task.cancel()

    def credit(self, id: int, pieces: int) -> None:
        if request := self._running.get(id):
            request.credit += pieces
            request.granted.set()

    async def close(self) -> None:
        tasks = [r.task for r in self._running.values() if r.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, id: int, task: asyncio.Task[m.Ended]) -> None:
        """Says which end a request came to. A task that is cancelled before it began has run no line of its own."""
        del self._running[id]
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, errors.Cancelled):
            self._link.send(m.Cancelled(id))
        else:
            self._link.send(task.result() if error is None else _failure(id, error))

    async def _answer(self, start: m.Start, request: _Request) -> m.Ended:
        flow = self._flow(start)
        finished, number = None, 0
        async with aclosing(aiter(flow)) as events:  # type: ignore[type-var]  # Flow's iterator is a generator
            async for event in events:
                if isinstance(event, Piece):
                    for value in m.portions(event.value):
                        await request.take()
                        self._link.send(m.Part(start.id, number, event.output, event.index, value))
                        number += 1
                elif isinstance(event, Step):
                    self._link.send(m.Stepped(start.id, event.stage, event.done, event.total, event.preview))
                else:
                    finished = event
        assert isinstance(finished, Finished), "a flow that does not raise ends in Finished"
        return m.Ended(start.id, number, finished)

    def _flow(self, start: m.Start) -> Flow:
        if start.method not in self._methods:
            raise m.ProtocolError(f"the build has no slice `{start.method}`")
        arguments: dict[str, Any] = {
            name: tuple(value) if name in self._tuples else value for name, value in start.arguments.items()
        }
        flow: Flow = getattr(self._pipeline, start.method)(**arguments)
        flow.previews = start.previews
        return flow


def _failure(id: int, error: BaseException) -> m.Failed:
    """What the server is told of an exception. Details of our own faults go to the log, not to the client."""
    match error:
        case errors.RequestError():
            return m.Failed(id, "request", error.message, error.field, error.status, error.code)
        case OutOfDomain():
            return m.Failed(id, "request", str(error), error.field, 400, "invalid_value")
        case BrokenRule():
            return m.Failed(id, "request", str(error), None, 400, "rule_violated")
    traceback.print_exception(error)
    if isinstance(error, errors.StageFailed):
        why, status = ("out of memory", 503) if error.retryable else ("the log of the server says why", 500)
        return m.Failed(id, "stage", why, status=status, stage=error.stage, retryable=error.retryable)
    return m.Failed(id, "bug", "the pipeline failed on this request")
