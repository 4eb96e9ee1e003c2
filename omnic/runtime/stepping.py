"""How the jobs of a batch take a step: `Eager`, one launch after the other, `Captured`, all in one, or `Replayed`, the
model in one and the rest one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch

from omnic.expr import Size
from omnic.runtime.compiled import Compiled, keep_caches, repeated
from omnic.runtime.diffusion import Ask, Denoiser, Job, Predictions, advance, predict
from omnic.runtime.graphs import CaptureFailed
from omnic.runtime.lora import Adapters
from omnic.runtime.making import Request
from omnic.runtime.replay import Replay
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
        """Which engine runs the steps: `eager`, `cuda_graph` or `inductor`."""
        ...

    def begin(self, job: Job) -> None:
        """Makes what all steps of a job need."""
        ...

    def step(self, batch: Sequence[Request]) -> list[Rest]:
        """What jobs do together. It fails for all; what is left, for one of them."""
        ...

    def stats(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class Shape:
    """What requests are to have graphs for: a size, and frames of a video. Sounds have neither."""

    size: Size | None = None
    frames: int = 1

    @classmethod
    def parse(cls, text: str) -> Shape:
        """`1024x1024`, `832x480x81`, or `any`."""
        if text == "any":
            return cls()
        width, height, *frames = map(int, text.split("x"))
        return cls(Size(width, height), *frames)

    @property
    def volume(self) -> int:
        """Pixels, of a video those of every fourth frame: VAEs make one of four."""
        return 0 if self.size is None else self.size.area * -(-self.frames // 4)


@runtime_checkable
class Replayable(Protocol):
    """A denoiser whose modules can be captured as they are called."""

    def modules(self) -> Mapping[str, torch.nn.Module]: ...

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        """What requests of this size and length ask for: one for each number of guidance branches that they can have,
        with as much text as every request has."""
        ...


class Eager:
    """The family's own forward, with the step cache and the adapter that a batch asks for."""

    engine: str = "eager"

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
        return self._steps.stats()


def with_graphs(
    name: str, denoiser: Denoiser, device: torch.device, engine: str, shapes: Sequence[Shape], texts: Sequence[int],
    batch: int,
) -> Stepping | None:  # fmt: skip
    """Steps by the engine `cuda_graph` or `inductor`; None, and why in the log, where they cannot be had: the stage
    then runs eagerly."""
    if engine == "cuda_graph" and isinstance(denoiser, Capturable):
        sizes = [shape.size for shape in shapes if shape.size is not None]
        return captured(name, denoiser, device, sizes, texts, batch)
    return replayed(name, denoiser, device, shapes, batch, compiles=engine == "inductor")


class Replayed(Eager):
    """The family's own forward, where each call of its modules is a graph. Guidance and scheduler run after it: beside
    a model of more than a few blocks they take little, and every scheduler can be had."""

    def __init__(self, denoiser: Denoiser, replay: Replay, engine: str) -> None:
        super().__init__(denoiser, None, None)
        self.engine, self._replay = engine, replay

    def stats(self) -> dict[str, float]:
        return self._replay.stats()


def replayed(
    name: str, denoiser: Denoiser, device: torch.device, shapes: Sequence[Shape], batch: int, *, compiles: bool = False
) -> Replayed | None:
    """Steps whose model is a graph for each of `shapes` and number of jobs up to `batch`; with `compiles`, its repeated
    blocks are compiled. None, and why in the log, for a family that cannot say what its requests look like, or whose
    calls cannot be captured."""
    if not isinstance(denoiser, Replayable):
        log.warning("stage `%s`: its family has no calls to capture: it runs eagerly", name)
        return None
    modules = denoiser.modules()
    if compiles:
        keep_caches()
    replay = Replay(modules, device, Compiled(repeated(modules.values())) if compiles else None)
    with replay.learning():
        for shape in sorted(shapes, key=lambda s: -s.volume):  # the largest first: the others fit into its memory
            for ask in denoiser.examples(shape.size, shape.frames):
                job = denoiser.prepare(ask)
                job.move(device)
                for kind in job.kinds():
                    for count in _counts(batch, shape.volume):
                        predict(denoiser.forward, [kind] * count)
    if not replay.graphs.captures and not compiles:
        log.warning("stage `%s`: none of its calls could be captured: it runs eagerly", name)
        return None
    return Replayed(denoiser, replay, "inductor" if compiles else "cuda_graph")


def _counts(batch: int, volume: int) -> range:
    """Of jobs that have a graph together, the most first."""
    return range(min(batch, max(1, _PIXELS // max(1, volume))), 0, -1)


def captured(
    name: str, denoiser: Capturable, device: torch.device, sizes: Sequence[Size], texts: Sequence[int], batch: int
) -> Captured | None:
    """The captured steps of a stage for each of `sizes`, length of `texts` and number of jobs up to `batch`; None, and
    why in the log, where they cannot be had: the stage then runs eagerly."""
    network = denoiser.network(texts)
    if network is None:
        log.warning("stage `%s`: its family has no steps to capture for this checkpoint here: it runs eagerly", name)
        return None
    steps = Steps(network, device)
    try:
        for size in sorted(sizes, key=lambda s: -s.area):  # the largest first: the others fit into its memory
            for job in network.examples(size):
                steps.once(job)
                for count in _counts(batch, size.area):
                    steps.warm([job] * count)
    except CaptureFailed as error:
        log.warning("stage `%s`: %s: it runs eagerly", name, error)
        return None
    return Captured(steps)


def _advanced(job: Job, predictions: Predictions) -> bool:
    advance(job, predictions)
    return all(bool(x.isfinite().all()) for x in job.x)
