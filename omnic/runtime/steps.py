"""Whole denoise steps as captured graphs: network, guidance and scheduler in one launch."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.diffusion import Job, Predictions, advance
from omnic.runtime.graphs import Graphs
from omnic.runtime.guidance import weighed


class Network(Protocol):
    """A family's step as a fixed sequence of kernels, over buffers that stay where they are."""

    def examples(self, size: Size) -> Iterator[Job]:
        """A job of this size for each of the other shapes that a graph is captured for."""
        ...

    def shape(self, jobs: Sequence[Job]) -> Hashable:
        """What must be equal for two batches to run in the same buffers, besides how many jobs and branches."""
        ...

    def once(self, job: Job) -> None:
        """Makes what all steps of a request need and none changes, and keeps it in `job.fixed`."""
        ...

    def buffers(self, shape: Any, jobs: int, branches: int) -> Any: ...

    def feed(self, buffers: Any, jobs: Sequence[Job]) -> None:
        """Brings what the next step of each job needs, but for its `x`, into the buffers."""
        ...

    def run(self, buffers: Any, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """x: tensors [jobs, …] -> a prediction for each, float32 [jobs · branches, …], the branches of a job together.
        Reads nothing of the device, copies nothing from the host."""
        ...


@runtime_checkable
class Capturable(Protocol):
    """A denoiser whose steps can be captured. None for a checkpoint or a device that its network is not made for."""

    def network(self, texts: Sequence[int]) -> Network | None:
        """`texts`: lengths to which texts may be padded, shortest first."""
        ...


@dataclass(eq=False, slots=True)
class Batch:
    """The buffers of one graph. With `inside`, guidance and scheduler run in the graph."""

    x: tuple[Tensor, ...]  # [jobs, …]
    network: Any
    inside: bool
    keep_norm: bool  # of guidance
    predictions: tuple[Tensor, ...]  # of the last replay, [jobs · branches, …]
    scales: Tensor  # [jobs, branches - 1], of guidance
    line: Tensor  # [jobs, 2]: x becomes line[0] · x + line[1] · prediction
    finite: Tensor  # [jobs]


class Steps:
    """The captured steps of a denoiser. Graphs are made by `warm` alone; batches of other shapes run the same kernels
    one launch after the other, and are counted in `uncaptured`."""

    def __init__(self, network: Network, device: torch.device) -> None:
        self._network, self._device = network, device
        self._batches: dict[Hashable, Batch] = {}
        self.graphs = Graphs(device)
        self.uncaptured = 0

    def once(self, job: Job) -> None:
        self._network.once(job)

    def warm(self, jobs: Sequence[Job]) -> None:
        """Captures the graph of a batch like this. Raises CaptureFailed, or torch's OutOfMemoryError."""
        key, batch = self._key(jobs), self._batch(jobs)
        self._fed(batch, jobs)
        self.graphs.capture(key, partial(self._run, batch))
        self._batches[key] = batch

    def step(self, jobs: Sequence[Job]) -> list[bool]:
        """Takes the next step of each; whether what each has become is finite."""
        key = self._key(jobs)
        held = self._batches.get(key)
        batch = held or self._batch(jobs)
        self._fed(batch, jobs)
        if held is not None:
            self.graphs.replay(key)
        else:
            self.uncaptured += 1
            self._run(batch)
        return self._taken(batch, jobs)

    def stats(self) -> dict[str, float]:
        """`uncaptured` counts steps of batches that have no graph."""
        return {**self.graphs.stats(), "uncaptured": float(self.uncaptured)}

    def _key(self, jobs: Sequence[Job]) -> Hashable:
        guidance, inside = jobs[0].guidance, _inside(jobs)
        return (
            self._network.shape(jobs),
            len(jobs),
            guidance.active(jobs[0].step),
            inside and guidance.keep_norm,
            inside,
        )

    def _batch(self, jobs: Sequence[Job]) -> Batch:
        job, count = jobs[0], len(jobs)
        branches = job.guidance.active(job.step)
        return Batch(
            x=tuple(torch.empty(count, *x.shape[1:], device=self._device) for x in job.x),
            network=self._network.buffers(self._network.shape(jobs), count, branches),
            inside=_inside(jobs),
            keep_norm=job.guidance.keep_norm,
            predictions=tuple(torch.empty(count * branches, *x.shape[1:], device=self._device) for x in job.x),
            scales=torch.empty(count, max(branches - 1, 1), device=self._device),
            line=torch.empty(count, 2, device=self._device),
            finite=torch.empty(count, dtype=torch.bool, device=self._device),
        )

    def _fed(self, batch: Batch, jobs: Sequence[Job]) -> None:
        for number, job in enumerate(jobs):
            for held, x in zip(batch.x, job.x, strict=True):
                held[number].copy_(job.schedules[0].scaled(job.step, x)[0])
        self._network.feed(batch.network, jobs)
        if batch.inside:
            facts = [(*_scales(job, batch.scales.shape[1]), *_line(job)) for job in jobs]
            given = torch.tensor(facts, dtype=torch.float32)
            given = (given.pin_memory() if self._device.type == "cuda" else given).to(self._device, non_blocking=True)
            batch.scales.copy_(given[:, :-2])
            batch.line.copy_(given[:, -2:])

    def _run(self, batch: Batch) -> None:
        found = self._network.run(batch.network, batch.x)
        for held, made in zip(batch.predictions, found, strict=True):
            held.copy_(made)
        if not batch.inside:
            return
        (x,), (predictions,) = batch.x, batch.predictions
        parts = predictions.view(len(x), -1, *x.shape[1:]).unbind(1)
        ones = (1,) * (x.ndim - 1)
        combined = parts[0]
        if len(parts) > 1:
            scales = [scale.view(-1, *ones) for scale in batch.scales.unbind(1)]
            combined = weighed(parts, scales, keep_norm=batch.keep_norm)
        kept, added = (batch.line[:, at].view(-1, *ones) for at in (0, 1))
        x.copy_(kept * x + added * combined)
        batch.finite.copy_(x.flatten(1).isfinite().all(1))

    def _taken(self, batch: Batch, jobs: Sequence[Job]) -> list[bool]:
        if not batch.inside:
            each = len(batch.predictions[0]) // len(jobs)
            for number, job in enumerate(jobs):
                at = slice(number * each, (number + 1) * each)
                mine: Predictions = tuple(p[at].clone().chunk(each) for p in batch.predictions)
                advance(job, mine)
            return [all(bool(x.isfinite().all()) for x in job.x) for job in jobs]
        for number, job in enumerate(jobs):
            job.x = (batch.x[0][number : number + 1].clone(),)
            job.step += 1
        found: list[bool] = batch.finite.tolist()
        return found


def _inside(jobs: Sequence[Job]) -> bool:
    """Whether guidance and scheduler of all are such that the graph can hold them."""
    return all(
        len(job.x) == 1 and job.guidance.own is None and not job.guidance.rescale and job.schedules[0].line is not None
        for job in jobs
    ) and len({job.guidance.keep_norm for job in jobs}) == 1  # fmt: skip


def _line(job: Job) -> tuple[float, float]:
    line = job.schedules[0].line
    assert line is not None, "jobs inside have one"
    return line[job.step]


def _scales(job: Job, count: int) -> tuple[float, ...]:
    found = job.guidance.scales[job.step] if job.guidance.scales else 0.0
    return ((found if isinstance(found, tuple) else (found,)) + (0.0,) * count)[:count]
