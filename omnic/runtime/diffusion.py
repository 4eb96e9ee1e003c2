"""What diffusion families and the denoise engine agree on: values between stages, a request in work, `Denoiser`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from omnic.runtime.guidance import Guidance
from omnic.runtime.home import moved
from omnic.runtime.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Embeds:
    """What a text encoder gives: tensors by name, each [1, …], of the prompt and of what to keep away from."""

    prompt: Mapping[str, Tensor]
    negative: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class Latents:
    """A tensor [1, channels, (frames,) height, width] as the VAE decodes it, and what else its decoder must know."""

    values: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants of a part: values at its ports (None where absent), settings by key, and its seed."""

    seed: int
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any]

    def generator(self) -> torch.Generator:
        """Noise keyed by the seed alone: neighbours, slots and batches change nothing."""
        return torch.Generator("cpu").manual_seed(self.seed)


@dataclass(eq=False, slots=True, weakref_slot=True)
class Job:
    """A request in work. Tensors of `x` are [1, …]; most models have one, sound with pictures makes two.

    `branches` hold the conditions of each guidance branch, the prompt's first. Jobs with equal `key` may share a
    forward: it must hold every shape and every setting that one forward cannot mix. Where that changes over the steps
    (two experts, each for a range of noise), `phases` has an entry a step.
    """

    x: tuple[Tensor, ...]
    schedules: tuple[Schedule, ...]
    branches: tuple[Mapping[str, Any], ...]
    guidance: Guidance
    key: Hashable
    generator: torch.Generator
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what stays the same over all steps
    phases: Sequence[Hashable] = ()
    step: int = 0

    @property
    def steps(self) -> int:
        return len(self.schedules[0])

    @property
    def timestep(self) -> Tensor:
        """Of the step to come, as the scheduler counts, [1]."""
        return self.schedules[0].timesteps[self.step].reshape(1)

    @property
    def group(self) -> Hashable:
        """Jobs with an equal one may share their next forward."""
        phase = self.phases[self.step] if self.phases else None
        return self.key, phase, self.guidance.active(self.step)

    def move(self, device: torch.device) -> None:
        """Brings what its steps need to `device`."""
        self.x, self.branches, self.fixed = moved((self.x, self.branches, self.fixed), device)

    def kinds(self) -> list[Job]:
        """This job before the first step of each group that its steps have."""
        found: dict[Hashable, Job] = {}
        for step in range(self.steps):
            job = replace(self, step=step)
            found.setdefault(job.group, job)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a forward: a job and one of its branches."""

    job: Job
    branch: int

    @property
    def condition(self) -> Mapping[str, Any]:
        return self.job.branches[self.branch]


class Denoiser(Protocol):
    """The iterative part of a family. All of it is called on the device's thread.

    `prepare` raises RequestError for what a request cannot have. `forward` gets the latents of all rows at once
    (each tensor of a job's `x`, scaled by its schedule, concatenated) and their timesteps [rows], and gives a
    prediction for each tensor. `finish` gives the values of the output ports, also of a job that has steps left, for
    a look at it (`sketch.Sketches`): it changes nothing. A family may name an input port `streams`: each value that
    comes there is then asked for by itself.
    """

    def prepare(self, ask: Ask) -> Job: ...

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]: ...

    def finish(self, job: Job) -> Mapping[str, Any]: ...


class Transform(Protocol):
    """A part that makes something once a request: an encoder, a VAE. Called on the device's thread."""

    def run(self, ask: Ask) -> Mapping[str, Any] | Iterator[Mapping[str, Any]]:
        """The values of the output ports. Work that takes long comes in parts, between which others have their turn:
        each gives what it has made for ports, which may be nothing. Raises RequestError for what a request cannot
        have."""
        ...


class Streamed(Transform, Protocol):
    """A transform that can also take what comes at the port `streams` piece by piece."""

    streams: str

    def begin(self, ask: Ask) -> Callable[[Any], Mapping[str, Any]]:
        """What is called with each piece, in order, and gives what is made of it for the output ports. `ask` lacks the
        port `streams`. Raises RequestError."""
        ...


Predictions = tuple[tuple[Tensor, ...], ...]
"""For each tensor of a job's `x`, a prediction for each branch that the step needs."""


def predict(forward: Callable[[tuple[Tensor, ...], Tensor, Sequence[Row]], tuple[Tensor, ...]],
            jobs: Sequence[Job]) -> list[Predictions]:  # fmt: skip
    """What the model says of the next step of each job, all of them and all of their branches in one forward. Their
    groups must be equal."""
    rows = [Row(job, branch) for job in jobs for branch in range(job.guidance.active(job.step))]
    count = len(jobs[0].x)
    x = tuple(torch.cat([r.job.schedules[i].scaled(r.job.step, r.job.x[i]) for r in rows]) for i in range(count))
    found = forward(x, torch.cat([row.job.timestep for row in rows]), rows)
    each = len(rows) // len(jobs)
    return [tuple(f[at : at + each].chunk(each) for f in found) for at in range(0, len(rows), each)]


def advance(job: Job, predictions: Predictions) -> None:
    """Takes the next step of a job."""
    combined = [
        job.guidance.combine(job.step, p, x, i) for i, (p, x) in enumerate(zip(predictions, job.x, strict=True))
    ]
    pairs = zip(job.schedules, combined, job.x, strict=True)
    job.x = tuple(schedule.advance(job.step, c, x, job.generator) for schedule, c, x in pairs)
    job.step += 1
