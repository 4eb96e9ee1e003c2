"""The server's side of a worker process: `Supervisor` starts it, talks to it, and replaces it when it dies.

A worker that dies or hangs fails its requests at once with WorkerLost, which is retryable, and is started again
with back-off; after three failures in a row there is no further try.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from omnic.runtime.process import Call, Patience, Process, WorkerLost

__all__ = ["GAUGES", "Call", "Patience", "State", "Supervisor", "WorkerFailed", "WorkerLost"]

log = logging.getLogger("omnic.worker")

_ENGINES = {f"engine_{name}" for name in ("eager", "cuda_graph", "inductor", "tensorrt")}
GAUGES = frozenset({"queue", "running", "slots", "graphs", "graph_bytes", *_ENGINES})
"""Stats that go down as well as up; all others only count."""


class WorkerFailed(RuntimeError):
    """The worker cannot be brought up. The message is one line; `output` the last lines it printed."""

    def __init__(self, reason: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.output = output


class State(StrEnum):
    loading = "loading"
    ready = "ready"
    restarting = "restarting"
    failed = "failed"
    stopped = "stopped"


class Supervisor:
    """Keeps one worker for a build alive. Used from one event loop.

    `start` begins; `ready` waits for the pipeline to be loaded; `submit` runs requests; `stop` ends it all.
    `on_failure` is called once, when there will be no further try.
    """

    def __init__(
        self,
        build: Path,
        *,
        python: str = sys.executable,
        patience: Patience | None = None,
        credit: int = 16,
        on_failure: Callable[[WorkerFailed], None] | None = None,
    ) -> None:
        self.build = build
        self.state = State.loading
        self.restarts = 0
        self.failure: WorkerFailed | None = None
        self._python, self._patience, self._credit = python, patience or Patience(), credit
        self._on_failure = on_failure
        self._worker: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set and replaced whenever the state changes
        self._totals: dict[str, dict[str, float]] = {}  # what workers that are gone had counted

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        return self._worker.pid if self._worker else None

    @property
    def loading(self) -> dict[str, tuple[int, int]]:
        """Stage: bytes loaded, bytes to load; of the stages that have begun."""
        return dict(self._worker.loading) if self._worker else {}

    @property
    def running(self) -> int:
        """Requests that the worker has not let go of."""
        return len(self._worker.calls) if self._worker else 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._supervise())
        self._task.add_done_callback(self._supervised)

    async def ready(self) -> None:
        """Waits until requests can be submitted. Raises WorkerFailed if that will not be."""
        while self.state in (State.loading, State.restarting):
            await self._changed.wait()
        if self.state is not State.ready:
            raise self.failure or WorkerFailed("stopped")

    def submit(self, method: str, arguments: dict[str, Any], previews: int = 0) -> Call:
        """Starts a slice of the pipeline; `previews` are wanted on the way. Raises WorkerLost if no worker is ready."""
        if self.state is not State.ready or self._worker is None:
            raise WorkerLost(f"the pipeline is {self.state}", retry_seconds=5 if self.state is State.restarting else 10)
        return self._worker.submit(method, arguments, self._credit, previews)

    async def stats(self, wait: float = 1.0) -> dict[str, dict[str, float]]:
        """What each stage has counted, over all workers so far. Fresh if the worker answers within `wait` seconds."""
        live = await self._worker.fresh_stats(wait) if self._worker and self.state is State.ready else {}
        return {stage: _added(self._totals.get(stage, {}), live.get(stage, {})) for stage in {**self._totals, **live}}

    async def stop(self) -> None:
        """Ends the worker. Requests in flight fail with WorkerLost."""
        self._become(State.stopped)
        if self._worker:
            await self._worker.stop(self._patience.stop)
        elif self._task:
            self._task.cancel()
        if self._task:
            await asyncio.gather(self._task, return_exceptions=True)

    def kill(self) -> None:
        """Ends the worker at once."""
        self._become(State.stopped)
        if self._worker:
            self._worker.kill()

    async def _supervise(self) -> None:
        failures = 0
        while True:
            try:
                worker = self._worker = await Process.spawn(self._python, self.build, self._loaded, self._lost)
            except OSError as error:
                self._fail(WorkerFailed(f"cannot start a worker process: {error}"))
                return
            reason = await worker.run(self._patience)
            self._count(worker)
            self._worker = None
            if self.state is State.stopped:
                return
            failures = 1 if worker.proved(self._patience.settled) else failures + 1
            final = worker.broken is not None and worker.broken.final
            if final or failures > len(self._patience.backoff):
                self._fail(WorkerFailed(reason, () if final else tuple(worker.output)))
                return
            for line in (f"{reason}; starting it again", *([] if worker.ready_at else worker.output)):
                log.error(line)
            self._become(State.restarting)
            await asyncio.sleep(self._patience.backoff[failures - 1])
            self.restarts += 1

    def _supervised(self, task: asyncio.Task[None]) -> None:
        """A fault of ours in here is the end, too: a server whose worker nobody looks after must not go on."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("nothing looks after the worker any more", exc_info=error)
        if self._worker:
            self._worker.kill()
        self._fail(WorkerFailed(f"supervision failed: {type(error).__name__}: {error}"))

    def _fail(self, failure: WorkerFailed) -> None:
        self.failure = failure
        self._become(State.failed)
        if self._on_failure:
            self._on_failure(failure)

    def _become(self, state: State) -> None:
        if self.state is not State.stopped:
            self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _count(self, worker: Process) -> None:
        """Keeps the counters of a worker that has gone; what it held right then is nobody's any more."""
        for stage, counts in worker.stats.items():
            kept = {k: v for k, v in counts.items() if k not in GAUGES}
            self._totals[stage] = _added(self._totals.get(stage, {}), kept)

    def _loaded(self) -> None:
        self._become(State.ready)

    def _lost(self) -> None:
        if self.state is State.ready:
            self._become(State.restarting)


def _added(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}


if __name__ == "__main__":
    from omnic.runtime.worker import main

    sys.exit(main())
