"""The denoise stage: from noise to a picture, a sound or a video, step by step, many requests at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import ChainMap, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omnic.contract.adapters import BASE
from omnic.runtime import families, lora
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Denoiser, Job
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.flow import Flow
from omnic.runtime.forward import asks
from omnic.runtime.home import CPU, Home, moved
from omnic.runtime.making import Request
from omnic.runtime.offload import Offload
from omnic.runtime.sketch import Sketches
from omnic.runtime.stage import Progress, Running
from omnic.runtime.stepcache import StepCaches
from omnic.runtime.stepping import Eager, Rest, Shape, Stepping, with_graphs
from omnic.runtime.tensors import Loaded
from omnic.runtime.weights import Checkpoint

if TYPE_CHECKING:
    from omnic.runtime.engines.ahead import Ahead

log = logging.getLogger("omnic.denoise")

Hook = Callable[[str, int], None]
"""Called before a step with the stage's name and how many jobs are in it. For tests: sleep, or raise."""


class Denoise:
    """Runs the iterative part of a model. Satisfies `stage.Stage`.

    At most `slots` requests are in work, the rest wait in line; up to `batch` of them whose groups are equal step
    together. In `step` mode requests join and leave at any step; in `request` mode a batch is formed once and runs
    whole. Requests that cannot step together take turns, so that none blocks another.

    Those that step together share a forward, except in float32: a matrix product sums in another order for another
    number of rows, and in float32 a request gives the same bytes whoever runs beside it. Nor do they with a
    `step_cache` (one of `stepcache.KINDS`), which leaves out blocks for one that another needs.

    The adapters `fuse` are added to the weights, `loras` lie beside them: a request picks one by its settings `lora`
    (a name, or `base` for none) and `lora_scale`, and steps with those alone that picked the same.

    With the engine `cuda_graph` a step is one captured graph, or each call of the model is, for each of `sizes`
    (`stepping.Shape`), number of jobs, and length of `texts` to which prompts are padded; other sizes run the same
    kernels without a graph. With `inductor` the model's repeated blocks are compiled, and captured so. With
    `engines`, those made ahead run in the place of its modules. With `resident`, so many blocks of each transformer
    stay on the device, and the weights of the others lie on the host (`offload.Offload`).
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
        step_cache: str | None = None,
        step_cache_threshold: float = 0.0,
        loras: Mapping[str, Checkpoint] | None = None,
        fuse: Mapping[str, Checkpoint] | None = None,
        fuse_scale: float = 1.0,
        engine: str = "eager",
        sizes: Sequence[str] = (),
        texts: Sequence[int] = (),
        engines: Ahead | None = None,
        resident: int | None = None,
        hook: Hook | None = None,
    ) -> None:
        self.name, self.checkpoint, self._device = name, checkpoint, device
        self._part, self._inputs, self._outputs = part, inputs, outputs
        self._offload = None if resident is None else Offload(resident, device.torch)
        self._home = Home(dtype, device.torch, self._offload)
        self._slots, self._batch, self._mode, self._hook = slots, batch, mode, hook
        self._alone = dtype == "float32" or step_cache is not None
        self._step_cache = None if step_cache is None else (step_cache, step_cache_threshold)
        self._loras, self._fuse, self._fuse_scale = dict(loras or {}), dict(fuse or {}), fuse_scale
        self._engine, self._sizes, self._texts, self._ahead = engine, tuple(sizes), tuple(texts), engines
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._ended: list[tuple[Request, Mapping[str, Any] | Exception]] = []  # in the step that runs
        self._turns = self._batches = 0
        self._totals = dict.fromkeys(("requests", "steps", "rows", "skipped", "busy_seconds"), 0.0)
        self._denoiser: Denoiser | None = None
        self._stepping: Stepping | None = None
        self._sketches: Sketches | None = None
        self._closed = False

    def load(self, progress: Progress) -> None:
        """Raises Missing or Damaged for a checkpoint that cannot be used, what `Ahead.install` does for an engine."""
        family = families.load(self.checkpoint.model.family)

        def loaded(done: int, total: int) -> None:
            progress(self.name, done, total)

        self._device.submit(partial(self._begin, family, loaded)).result()
        self._device.attend(self._turn)

    def start(self, flow: Flow, **given: Any) -> Running:
        ports = {name: Port() for name in self._outputs}
        flow.run(lambda: self._serve(flow, given, ports), stage=self.name)
        return Running(ports)

    async def close(self) -> None:
        """Fails what is still in work or in line, and lets go of the model."""
        self._closed = True
        self._device.leave(self._turn)
        try:
            await self._device.run(self._shut)
        except RuntimeError:  # the device was closed, and nothing runs there any more
            self._shut()

    def stats(self) -> dict[str, float]:
        """`rows` counts the jobs that stepped, over all `steps`: by steps, the mean batch size. `skipped` counts
        forwards of one guidance branch that a step cache made short, in requests that have ended."""
        more = ChainMap(*(part.stats() for part in (self._stepping, self._offload) if part is not None))
        runs = None if self._stepping is None else "tensorrt" if self._ahead is not None else self._stepping.engine
        engine = {} if runs is None else {f"engine_{runs}": 1.0}
        now = {"queue": float(len(self._waiting)), "running": float(len(self._running))}
        return {**self._totals, **more, **engine, **now}

    # --- one request, on the event loop ----------------------------------------------------------------------------

    async def _serve(self, flow: Flow, given: Mapping[str, Any], ports: Mapping[str, Port]) -> None:
        """One after the other where several values come, and with seeds that count up from the request's."""
        flow.report.stages[self.name] = {}
        async with aclosing(asks(flow, given, self._inputs, getattr(self._denoiser, "streams", None))) as each:
            async for ask in each:
                found = await self._made(flow, ask)
                for port in ports.values():
                    await port.room()
                for name, port in ports.items():
                    port.send(found[name])
        for port in ports.values():
            port.close()

    async def _made(self, flow: Flow, ask: Ask) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Mapping[str, Any]] = loop.create_future()
        request = Request(ask, loop, done, partial(flow.progress, self.name), flow.previews)
        self._waiting.append(request)
        if self._closed:  # looked at last, as `close` looks at the line last
            raise self._was_closed()
        self._device.wake()
        try:
            found = await done
        finally:
            request.cancelled = True  # of no effect once it is done
            self._device.wake()
        self._totals["requests"] += 1
        report = flow.report.stages[self.name]
        for name, count in {
            "steps": float(request.taken),
            "seconds": time.perf_counter() - request.began_at,
            "busy_seconds": request.busy_seconds,
            **({"skipped": float(request.skipped)} if self._step_cache else {}),
        }.items():
            report[name] = report.get(name, 0.0) + count
        return found

    def _was_closed(self) -> StageFailed:
        return StageFailed(self.name, "its engine was closed")

    # --- the engine, on the device's thread ------------------------------------------------------------------------

    def _begin(self, family: Any, loaded: Loaded) -> None:
        denoiser: Denoiser = family.load(self.checkpoint, self._part, self._home, loaded)
        if self._ahead is not None:
            self._ahead.install(denoiser)
        for checkpoint in self._fuse.values():
            lora.fuse(lora.read(checkpoint, denoiser), self._fuse_scale)
        if self._offload is not None:
            self._offload.begin()
        loras = {name: lora.read(checkpoint, denoiser) for name, checkpoint in self._loras.items()}
        caches = StepCaches(*self._step_cache, denoiser) if self._step_cache else None
        self._stepping = Eager(denoiser, caches, lora.Adapters(loras) if loras else None)
        if self._engine != "eager" and not loras and caches is None:
            shapes = [Shape.parse(size) for size in self._sizes]
            graphs = with_graphs(self.name, denoiser, self._home.device, self._engine, shapes, self._texts, self._batch)
            self._stepping = graphs or self._stepping
        # the VAE is read when the first picture is asked for, and by no stage that nobody looks at
        home = replace(self._home, offload=None)
        vae = partial(family.load, self.checkpoint, "vae_decode", home, lambda done, total: None)
        self._sketches = Sketches(denoiser, vae)
        self._denoiser = denoiser

    def _turn(self) -> bool:
        """One step of one batch; whether there was one to take."""
        self._running = [r for r in self._running if not r.cancelled]
        self._admit()
        batch = self._chosen()
        if not batch:
            return False
        self._turns += 1
        began = time.perf_counter()
        self._step(batch)
        seconds = time.perf_counter() - began
        self._totals["busy_seconds"] += seconds
        for request in batch:
            request.turn = self._turns
            request.busy_seconds += seconds / len(batch)
        for request, result in self._ended:
            request.post(result)
        self._ended.clear()
        return True

    def _admit(self) -> None:
        """Gives free slots to those that wait, in the order they came."""
        assert self._denoiser is not None
        while self._waiting and len(self._running) < self._slots:
            request = self._waiting.popleft()
            if request.cancelled:
                continue
            try:
                job = self._prepared(request.ask)
                if request.adapter[0] not in (BASE, *self._loras):
                    raise RequestError(f"there is no adapter `{request.adapter[0]}`", "lora")
                if not job.steps:
                    raise RequestError("no step is left to take", "num_inference_steps")
            except BaseException as error:
                request.post(self._failure(error, "before its first step"))
            else:
                request.job = job
                self._running.append(request)

    def _prepared(self, ask: Ask) -> Job:
        """Host work on the processor's tensors; what the steps need of it is then where they run."""
        assert self._denoiser is not None
        assert self._stepping is not None
        job = self._denoiser.prepare(replace(ask, inputs=moved(ask.inputs, CPU)))
        job.move(self._home.device)
        self._stepping.begin(job)
        return job

    def _chosen(self) -> Sequence[Request]:
        """Those that step together next: the one that has waited longest, and others like it."""
        if not self._running:
            return ()
        first = min(self._running, key=lambda r: r.turn)
        alike = [r for r in self._running if r.group == first.group]
        if self._mode == "step":
            return sorted(alike, key=lambda r: r.turn)[: self._batch]
        if not first.fused:
            self._batches += 1
            for request in [r for r in alike if not r.fused][: self._batch]:
                request.fused = self._batches
        return [r for r in alike if r.fused == first.fused]

    def _step(self, batch: Sequence[Request]) -> None:
        self._totals["steps"] += 1
        self._totals["rows"] += len(batch)
        try:
            if self._hook:
                self._hook(self.name, len(batch))
        except BaseException as error:
            self._fail(batch, error)
            return
        for part in [[request] for request in batch] if self._alone else [batch]:
            self._forward(part)

    def _forward(self, batch: Sequence[Request]) -> None:
        """One forward. What fails in it fails them all; what fails after it, one of them."""
        assert self._stepping is not None
        before = [request.work.x for request in batch]
        wheres = [request.where for request in batch]
        try:
            rests = self._stepping.step(batch)
        except BaseException as error:
            self._fail(batch, error)
            return
        for request, x, where, rest in zip(batch, before, wheres, rests, strict=True):
            try:
                self._take(request, x, where, rest)
            except BaseException as error:
                self._end(request, self._failure(error, where))

    def _take(self, request: Request, before: tuple[Any, ...], where: str, rest: Rest) -> None:
        assert self._denoiser is not None
        assert self._sketches is not None
        job = request.work
        if not rest():
            raise StageFailed(self.name, f"{where} gave numbers that are not finite")
        request.taken = job.step
        preview = self._sketches.of(job, before) if request.shows else None
        found = self._denoiser.finish(job) if job.step == job.steps else None
        request.call(request.stepped, job.step, job.steps, preview)
        if found is not None:
            self._end(request, found)

    def _fail(self, batch: Sequence[Request], error: BaseException) -> None:
        for request in batch:
            self._end(request, self._failure(error, request.where))

    def _failure(self, error: BaseException, where: str) -> Exception:
        """What the request is told. A fault of ours goes to the log, too."""
        if isinstance(error, RequestError | StageFailed):
            return error.with_traceback(None)  # its frames would hold the job's tensors
        log.error("stage `%s`: %s failed", self.name, where, exc_info=error)
        return StageFailed.because(self.name, error, where)

    def _end(self, request: Request, result: Mapping[str, Any] | Exception) -> None:
        self._running.remove(request)
        request.let_go()
        self._totals["skipped"] += request.skipped
        self._ended.append((request, result))

    def _shut(self) -> None:
        for request in (*self._running, *self._waiting):
            request.let_go()
            request.post(self._was_closed())
        self._running.clear()
        self._waiting.clear()
        self._denoiser = self._sketches = self._stepping = None
        if self._offload is not None:
            self._offload.close()
