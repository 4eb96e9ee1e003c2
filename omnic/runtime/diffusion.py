"""What diffusion families and the denoise engine agree on: values between stages, a request in work, `Denoiser`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from omnic.runtime.guidance import Guidance
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


@dataclass(eq=False, slots=True)
class Job:
    """A request in work. Tensors of `x` are [1, …]; most models have one, sound with pictures makes two.

    `branches` hold the conditions of each guidance branch, the prompt's first. Jobs with equal `key` may share a
    forward: it must hold every shape and every setting that one forward cannot mix.
    """

    x: tuple[Tensor, ...]
    schedules: tuple[Schedule, ...]
    branches: tuple[Mapping[str, Any], ...]
    guidance: Guidance
    key: Hashable
    generator: torch.Generator
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what stays the same over all steps
    step: int = 0

    @property
    def steps(self) -> int:
        return len(self.schedules[0])

    @property
    def timestep(self) -> Tensor:
        """Of the step to come, as the scheduler counts, [1]."""
        return self.schedules[0].timesteps[self.step].reshape(1)


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
    prediction for each tensor. `finish` gives the values of the output ports; `preview` a rough picture, uint8
    [height, width, 3], or None where the family has no cheap one.
    """

    def prepare(self, ask: Ask) -> Job: ...

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]: ...

    def finish(self, job: Job) -> Mapping[str, Any]: ...

    def preview(self, job: Job) -> Any | None: ...


class Transform(Protocol):
    """A part of one forward a request: an encoder, a VAE. Called on the device's thread."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        """The values of the output ports. Raises RequestError for what a request cannot have."""
        ...


def advance(denoiser: Denoiser, jobs: Sequence[Job]) -> None:
    """One step of each job, all of them (and all of their branches) in one forward. Their keys must be equal."""
    rows = [Row(job, branch) for job in jobs for branch in range(job.guidance.active(job.step))]
    count = len(jobs[0].x)
    x = tuple(torch.cat([r.job.schedules[i].scaled(r.job.step, r.job.x[i]) for r in rows]) for i in range(count))
    predictions = denoiser.forward(x, torch.cat([row.job.timestep for row in rows]), rows)
    at = 0
    for job in jobs:
        active = job.guidance.active(job.step)
        mine = [prediction[at : at + active].chunk(active) for prediction in predictions]
        at += active
        job.x = tuple(
            schedule.advance(job.step, job.guidance.combine(job.step, branches), x, job.generator)
            for schedule, branches, x in zip(job.schedules, mine, job.x, strict=True)
        )
        job.step += 1
