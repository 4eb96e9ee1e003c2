"""A server as a process: its socket, its signals, its exit status."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from omnic.manifest import ManifestError
from omnic.runtime import lock
from omnic.runtime.errors import Elsewhere, Stale
from omnic.runtime.pipeline import Build
from omnic.runtime.server.app import application
from omnic.runtime.server.service import Service
from omnic.runtime.server.settings import Settings
from omnic.runtime.weights import Damaged, Missing
from omnic.runtime.workers import Patience, State, WorkerFailed

log = logging.getLogger("omnic.server")
GRACE_SECONDS = 1.0  # for answers that were cut off at the deadline to leave the process


def main(build: Path) -> int:
    """`python server.py`; returns the exit status."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description=f"Serve the build in {build} over HTTP, in the form of OpenAI's API.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument(
        "--port", type=_whole(0, 65535), default=8000, help="port to listen on; 0 picks one (default %(default)s)"
    )
    parser.add_argument("--running", type=_whole(1), help="requests at work at once, for each endpoint")
    parser.add_argument(
        "--queued", type=_whole(0), default=defaults.queued, help="requests in line (default %(default)s)"
    )
    parser.add_argument(
        "--stall",
        type=_seconds,
        default=defaults.stall_seconds,
        help="seconds a client may read nothing (default %(default)s)",
    )
    parser.add_argument(
        "--drain",
        type=_seconds,
        default=defaults.drain_seconds,
        help="seconds to finish in on SIGTERM (default %(default)s)",
    )
    parser.add_argument(
        "--jobs", type=Path, help="directory of video jobs; servers may share one (default: of this build)"
    )
    parser.add_argument(
        "--keep-videos",
        type=float,
        default=defaults.video_seconds,
        help="seconds to keep a job after its end (default %(default)s)",
    )
    parser.add_argument(
        "--keep-pictures",
        type=float,
        default=defaults.picture_seconds,
        help="seconds to keep a picture given as an address (default %(default)s)",
    )
    args = parser.parse_args()
    settings = Settings(
        running=args.running,
        queued=args.queued,
        stall_seconds=args.stall,
        drain_seconds=args.drain,
        jobs=args.jobs,
        video_seconds=args.keep_videos,
        picture_seconds=args.keep_pictures,
    )
    return serve(build, host=args.host, port=args.port, settings=settings)


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """What reads a whole number of these bounds for argparse."""
    bounds = f"from {low}" if high is None else f"in {low}..{high}"

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
            raise argparse.ArgumentTypeError(f"must be a whole number {bounds}, not {text}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0, not {text}")
    return seconds


def serve(
    build: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: Settings | None = None,
    patience: Patience | None = None,
) -> int:
    """Serves a build until a signal ends it. Returns the exit status: 0 after a full drain, 1 after a failure.

    What stops it before it serves (a stale build, missing weights, a port in use) is one line on standard error.
    """
    _log_to_stderr()
    failures: list[WorkerFailed] = []
    try:
        Build.open(build)
        lock.verify(build)
        app = application(build, settings, patience=patience, on_failure=failures.append)
        listener = _listen(host, port)
    except (Elsewhere, Stale, Missing, Damaged, ManifestError, OSError) as error:
        print(f"omnic: {error}", file=sys.stderr)
        return 1
    with listener:
        clean = asyncio.run(_run(app, listener, failures))
    for failure in failures:
        print(*failure.output, f"omnic: {failure}", sep="\n", file=sys.stderr)
    return 0 if clean and not failures else 1


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError that says in words what is wrong."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        why = {
            errno.EADDRINUSE: f"port {port} on {host} is in use",
            errno.EACCES: f"port {port} needs more rights than this process has",
        }
        raise OSError(why.get(error.errno or 0, f"cannot listen on {host}:{port}: {error.strerror}")) from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its own signals: a signal that was obeyed is no reason to die of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(app: FastAPI, listener: socket.socket, failures: list[WorkerFailed]) -> bool:
    """Serves until told to stop, or until the worker has failed for good. Returns whether all answers were finished."""
    service: Service = app.state.service
    drain = service.settings.drain_seconds
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", server_header=False,
        timeout_graceful_shutdown=math.ceil(drain + GRACE_SECONDS),
    )  # fmt: skip
    server = _Server(config)
    stopping = _Stopping(service, server)
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopping.signalled)
    watching = asyncio.create_task(_watch(service, stopping, listener, failures))
    try:
        await server.serve([listener])
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if server.force_exit:  # uvicorn then leaves the app's lifespan open
            await server.lifespan.shutdown()
    return not stopping.cut


class _Stopping:
    """How a server stops: the first signal drains it to a deadline, a second one ends it now."""

    def __init__(self, service: Service, server: uvicorn.Server) -> None:
        self._service, self._server = service, server
        self._drain = service.settings.drain_seconds
        self.cut = False  # answers were ended before they were finished

    def signalled(self) -> None:
        if self._service.draining:
            self.now()
            return
        log.info("stopping: no new requests; running ones have %g s", self._drain)
        self._service.draining = True
        self._server.should_exit = True
        asyncio.get_running_loop().call_later(self._drain, self._deadline)

    def now(self) -> None:
        """Ends everything at once."""
        log.info("stopping now")
        self.cut = True
        self._service.draining = True
        self._service.abort()
        self._service.supervisor.kill()
        self._server.should_exit = self._server.force_exit = True

    def _deadline(self) -> None:
        self._service.abort()


async def _watch(service: Service, stopping: _Stopping, listener: socket.socket, failures: list[WorkerFailed]) -> None:
    """Says how loading goes, and stops the server when there is nothing left to serve with."""
    began, said = time.monotonic(), -1
    host, port = listener.getsockname()[:2]
    where = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print(f"omnic: {service.model} on {where}, loading", file=sys.stderr)
    ready = False
    while not failures:
        state = service.supervisor.state
        if state is State.ready and not ready:
            print(f"omnic: {service.model} on {where}, ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
        elif state in (State.loading, State.restarting):
            if ready:
                began, said = time.monotonic(), -1
            loading = service.supervisor.loading
            done, total = (sum(part) for part in zip(*loading.values(), strict=True)) if loading else (0, 0)
            tenth = 10 * done // total if total else 0
            if total and tenth > said:
                said = tenth
                print(f"omnic: loading {', '.join(loading)}: {100 * done // total} %", file=sys.stderr)
        ready = state is State.ready
        await asyncio.sleep(0.2 if ready else 0.05)
    stopping.now()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    for name in ("omnic", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(handler)
            logger.setLevel(logging.INFO if name == "omnic" else logging.WARNING)
