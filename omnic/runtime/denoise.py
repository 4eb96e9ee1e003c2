"""The denoise stage: from noise to a picture, a sound or a video, step by step, many requests at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from omnic.runtime import families
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Denoiser, Job, advance
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.flow import Flow
from omnic.runtime.forward import asked, give
from omnic.runtime.stage import Progress, Running
from omnic.runtime.weights import Checkpoint

Hook = Callable[[str, int], None]
"""Called before a step with the stage's name and how many jobs are in it. For tests: sleep, or raise."""


@dataclass(eq=False, slots=True)
class Request:
    """What was asked for, on its way through the engine. The device's thread owns it, but for `cancelled`."""

    ask: Ask
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Mapping[str, Any]]
    stepped: Callable[[int, int], None]  # on the event loop: steps taken, steps in all
    job: Job | None = None  # once it has a slot
    cancelled: bool = False
    fused: int = 0  # in request mode, which batch it runs in; 0 while it waits for one
    turn: int = 0  # when it last stepped
    taken: int = 0  # steps
    busy_seconds: float = 0.0
    began_at: float = field(default_factory=time.perf_counter)


class Denoise:
    """Runs the iterative part of a model. Satisfies `stage.Stage`.

    At most `slots` requests are in work, the rest wait in line; up to `batch` of them whose keys are equal share a
    forward. In `step` mode requests join and leave at any step; in `request` mode a batch is formed once and runs
    whole. Requests that cannot share a forward take turns, so that none blocks another.
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
        slots: int,
        batch: int,
        mode: str = "step",
        hook: Hook | None = None,
    ) -> None:
        self.name, self.checkpoint, self._device = name, checkpoint, device
        self._part, self._dtype, self._inputs, self._outputs = part, dtype, inputs, outputs
        self._slots, self._batch, self._mode, self._hook = slots, batch, mode, hook
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._turns = self._batches = 0
        self._totals = dict.fromkeys(("requests", "steps", "rows", "busy_seconds"), 0.0)
        self._denoiser: Denoiser | None = None

    def load(self, progress: Progress) -> None:
        """Raises Missing or Damaged for a checkpoint that cannot be used."""
        family = families.load(self.checkpoint.model.family)

        def loaded(done: int, total: int) -> None:
            progress(self.name, done, total)

        load = partial(family.load, self.checkpoint, self._part, self._dtype, loaded)
        self._denoiser = self._device.submit(load).result()
        self._device.attend(self._turn)

    def start(self, flow: Flow, **given: Any) -> Running:
        ports = {name: Port() for name in self._outputs}
        flow.run(lambda: self._serve(flow, given, ports), stage=self.name)
        return Running(ports)

    async def close(self) -> None:
        for request in (*self._waiting, *self._running):
            request.cancelled = True

    def stats(self) -> dict[str, float]:
        """`rows` counts the jobs that stepped, over all `steps`: by steps, the mean batch size."""
        return {**self._totals, "queue": float(len(self._waiting)), "running": float(len(self._running))}

    # --- one request, on the event loop ----------------------------------------------------------------------------

    async def _serve(self, flow: Flow, given: Mapping[str, Any], ports: Mapping[str, Port]) -> None:
        ask = await asked(flow, given, self._inputs)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        request = Request(ask, loop, done, partial(flow.progress, self.name))
        self._waiting.append(request)
        self._device.wake()
        try:
            found = await done
        finally:
            request.cancelled = True  # of no effect once it is done
            self._device.wake()
        self._totals["requests"] += 1
        flow.report.stages[self.name] = {
            "steps": float(request.taken),
            "seconds": time.perf_counter() - request.began_at,
            "busy_seconds": request.busy_seconds,
        }
        give(ports, found)

    # --- the engine, on the device's thread ------------------------------------------------------------------------

    def _turn(self) -> bool:
        """One step of one batch; whether there was one to take."""
        self._running = [r for r in self._running if not r.cancelled]
        self._admit()
        batch = self._chosen()
        if not batch:
            return False
        self._turns += 1
        began = time.perf_counter()
        try:
            self._step(batch)
        except Exception as error:
            self._end([r for r in batch if r in self._running], StageFailed.because(self.name, error))
        seconds = time.perf_counter() - began
        self._totals["busy_seconds"] += seconds
        for request in batch:
            request.turn = self._turns
            request.busy_seconds += seconds / len(batch)
        return True

    def _admit(self) -> None:
        """Gives free slots to those that wait, in the order they came."""
        assert self._denoiser is not None
        while self._waiting and len(self._running) < self._slots:
            request = self._waiting.popleft()
            if request.cancelled:
                continue
            try:
                request.job = self._denoiser.prepare(request.ask)
            except RequestError as error:
                _post(request, error)
            except Exception as error:
                _post(request, StageFailed.because(self.name, error))
            else:
                self._running.append(request)

    def _chosen(self) -> Sequence[Request]:
        """Those that step together next: the one that has waited longest, and others like it."""
        if not self._running:
            return ()
        first = min(self._running, key=lambda r: r.turn)
        alike = [r for r in self._running if _alike(_job(r), _job(first))]
        if self._mode == "step":
            return sorted(alike, key=lambda r: r.turn)[: self._batch]
        if not first.fused:
            self._batches += 1
            for request in [r for r in alike if not r.fused][: self._batch]:
                request.fused = self._batches
        return [r for r in alike if r.fused == first.fused]

    def _step(self, batch: Sequence[Request]) -> None:
        assert self._denoiser is not None
        if self._hook:
            self._hook(self.name, len(batch))
        advance(self._denoiser, [_job(request) for request in batch])
        self._totals["steps"] += 1
        self._totals["rows"] += len(batch)
        for request in batch:
            job = _job(request)
            request.taken = job.step
            if not all(bool(x.isfinite().all()) for x in job.x):
                why = f"step {job.step} of {job.steps} gave numbers that are not finite"
                self._end([request], StageFailed(self.name, why))
            elif job.step < job.steps:
                request.loop.call_soon_threadsafe(request.stepped, job.step, job.steps)
            else:
                found = self._denoiser.finish(job)
                request.loop.call_soon_threadsafe(request.stepped, job.step, job.steps)
                self._end([request], found)

    def _end(self, requests: Sequence[Request], result: Mapping[str, Any] | Exception) -> None:
        for request in requests:
            self._running.remove(request)
            request.job = None  # its tensors are free now
            _post(request, result)


def _job(request: Request) -> Job:
    assert request.job is not None, "it has a slot"
    return request.job


def _post(request: Request, result: Mapping[str, Any] | Exception) -> None:
    request.loop.call_soon_threadsafe(_settle, request.done, result)


def _alike(a: Job, b: Job) -> bool:
    """Whether two jobs may share a forward now."""
    return a.key == b.key and a.guidance.active(a.step) == b.guidance.active(b.step)


def _settle(done: asyncio.Future[Mapping[str, Any]], result: Mapping[str, Any] | Exception) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
