"""How the jobs of a batch take a step: `Eager`, one launch after the other, or `Captured`, all in one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Protocol

import torch

from omnic.expr import Size
from omnic.runtime.diffusion import Denoiser, Job, Predictions, advance, predict
from omnic.runtime.graphs import CaptureFailed
from omnic.runtime.lora import Adapters
from omnic.runtime.making import Request
from omnic.runtime.stepcache import StepCaches
from omnic.runtime.steps import Capturable, Steps

_PIXELS = 1 << 21  # a step of more than so many is far longer than its launches take, and has no graph

log = logging.getLogger("omnic.denoise")

Rest = Callable[[], bool]
"""What is left of a step for one job; whether what it has become is finite."""


class Stepping(Protocol):
    """Called on the device's thread."""

    @property
    def engine(self) -> str:
        """Which engine runs the steps: `eager` or `cuda_graph`."""
        ...

    def begin(self, job: Job) -> None:
        """Makes what all steps of a job need."""
        ...

    def step(self, batch: Sequence[Request]) -> list[Rest]:
        """What jobs do together. It fails for all; what is left, for one of them."""
        ...

    def stats(self) -> dict[str, float]: ...


class Eager:
    """The family's own forward, with the step cache and the adapter that a batch asks for."""

    engine = "eager"

    def __init__(self, denoiser: Denoiser, caches: StepCaches | None, adapters: Adapters | None) -> None:
        self._denoiser, self._caches, self._adapters = denoiser, caches, adapters

    def begin(self, job: Job) -> None: ...

    def step(self, batch: Sequence[Request]) -> list[Rest]:
        forward = self._denoiser.forward
        if self._caches is not None:
            forward = partial(self._caches.forward, batch[0].memories)
        with nullcontext() if self._adapters is None else self._adapters.using(*batch[0].adapter):
            predictions = predict(forward, [request.work for request in batch])
        return [partial(_advanced, r.work, mine) for r, mine in zip(batch, predictions, strict=True)]

    def stats(self) -> dict[str, float]:
        return {}


class Captured:
    """Whole steps as graphs, where the denoiser's family has such a network."""

    engine = "cuda_graph"

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def begin(self, job: Job) -> None:
        self._steps.once(job)

    def step(self, batch: Sequence[Request]) -> list[Rest]:
        finite = self._steps.step([request.work for request in batch])
        return [partial(bool, fine) for fine in finite]

    def stats(self) -> dict[str, float]:
        graphs = self._steps.graphs
        counts = {"graphs": graphs.captures, "graph_replays": graphs.replays, "graph_bytes": graphs.pool_bytes}
        return {name: float(count) for name, count in {**counts, "uncaptured": self._steps.uncaptured}.items()}


def captured(
    name: str, denoiser: Denoiser, device: torch.device, sizes: Sequence[Size], texts: Sequence[int], batch: int
) -> Captured | None:
    """The captured steps of a stage for each of `sizes`, length of `texts` and number of jobs up to `batch`; None, and
    why in the log, where they cannot be had: the stage then runs eagerly."""
    network = denoiser.network(texts) if isinstance(denoiser, Capturable) else None
    if network is None:
        log.warning("stage `%s`: its family has no steps to capture for this checkpoint here: it runs eagerly", name)
        return None
    steps = Steps(network, device)
    try:
        for size in sorted(sizes, key=lambda s: -s.area):  # the largest first: the others fit into its memory
            for job in network.examples(size):
                steps.once(job)
                for count in range(min(batch, max(1, _PIXELS // size.area)), 0, -1):
                    steps.warm([job] * count)
    except CaptureFailed as error:
        log.warning("stage `%s`: %s: it runs eagerly", name, error)
        return None
    return Captured(steps)


def _advanced(job: Job, predictions: Predictions) -> bool:
    advance(job, predictions)
    return all(bool(x.isfinite().all()) for x in job.x)
