"""Captured denoise steps against the family's own forward, step by step, on a tiny Qwen-Image.

On a CPU a graph is a call of its body and Triton's kernels are interpreted; a GPU captures and compiles them.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch

from omnic.catalog.resolve import ModelSource, resolve
from omnic.expr import Size
from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.diffusion import Ask, Embeds, Job, advance, predict
from omnic.runtime.families.qwen_image_network import Network
from omnic.runtime.families.qwen_image_steps import Steps as QwenSteps
from omnic.runtime.home import Home
from omnic.runtime.steps import Steps
from omnic.runtime.weights import Checkpoint

TEXTS, SIZE = (8, 16), Size(64, 32)
GPU = torch.cuda.is_available()
HOME = Home("bfloat16", torch.device("cuda")) if GPU else Home("float32")
BOUND = 2e-2 if GPU else 1e-5
"""Relative, of the latents after all steps: bf16's own noise on a GPU, float32's on a CPU."""


class Made:
    def __init__(self) -> None:
        model = resolve(ModelSource("random", "qwen_image"), Path())
        checkpoint = Checkpoint(Model("m", "random", "qwen_image", model.family, model.format, model.config), None)
        self.painter: Any = families.load("qwen_image").load(checkpoint, "denoiser", HOME, lambda done, total: None)
        self.width = int(self.painter._transformer.config.joint_attention_dim)
        network = Network(self.painter._transformer)
        self.steps = Steps(QwenSteps(self.painter, network, HOME, TEXTS), HOME.device)

    def job(self, seed: int, tokens: int, *, steps: int = 4, guidance: float = 3.0, size: Size = SIZE) -> Job:
        generator = torch.Generator().manual_seed(seed + 1000)
        prompt, negative = (torch.randn(1, n, self.width, generator=generator) for n in (tokens, 3))
        settings = {"size": size, "steps": steps, "guidance": guidance}
        job: Job = self.painter.prepare(
            Ask(seed, {"condition": Embeds({"states": prompt}, {"states": negative})}, settings)
        )
        job.move(HOME.device)
        self.steps.once(job)
        return job

    def eager(self, job: Job) -> torch.Tensor:
        while job.step < job.steps:
            (mine,) = predict(self.painter.forward, [job])
            advance(job, mine)
        return job.x[0]

    def captured(self, jobs: Sequence[Job]) -> None:
        assert all(self.steps.step(jobs))


@pytest.fixture(scope="module")
def made() -> Made:
    with torch.inference_mode():
        return Made()


@pytest.fixture(autouse=True)
def _inference() -> Any:
    with torch.inference_mode():
        yield


def near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found.float() - wanted.float()).norm() / wanted.float().norm() <= BOUND)


@pytest.mark.parametrize("guidance", [3.0, 1.0])
def test_a_job_alone_becomes_what_the_eager_steps_make_of_it(made: Made, guidance: float) -> None:
    wanted = made.eager(made.job(1, 7, guidance=guidance))
    job = made.job(1, 7, guidance=guidance)
    while job.step < job.steps:
        made.captured([job])
    assert near(job.x[0], wanted)


def test_where_a_job_is_going_can_be_told_after_each_step(made: Made) -> None:
    eager, captured = made.job(1, 5), made.job(1, 5)
    for taken in range(1, 4):
        before, seen = eager.x[0], captured.x[0]
        advance(eager, predict(made.painter.forward, [eager])[0])
        made.captured([captured])
        wanted = eager.schedules[0].ahead(taken, before, eager.x[0])
        assert near(captured.schedules[0].ahead(taken, seen, captured.x[0]), wanted)
        assert not near(wanted, eager.x[0])


def test_jobs_at_different_steps_with_texts_of_different_lengths_share_a_step(made: Made) -> None:
    wanted = [made.eager(made.job(seed, tokens)) for seed, tokens in ((1, 5), (2, 16))]
    first, second = made.job(1, 5), made.job(2, 16)
    made.captured([first])
    for _ in range(3):
        made.captured([first, second])
    made.captured([second])
    assert near(first.x[0], wanted[0])
    assert near(second.x[0], wanted[1])


def test_what_a_batch_gave_is_not_overwritten_by_the_next(made: Made) -> None:
    first, second = made.job(1, 5), made.job(2, 5)
    made.captured([first])
    after = first.x[0].clone()
    made.captured([second])
    assert first.x[0].equal(after)


def test_a_b_a_gives_a_again(made: Made) -> None:
    results = []
    for seed in (1, 2, 1):
        job = made.job(seed, 5)
        while job.step < job.steps:
            made.captured([job])
        results.append(job.x[0])
    assert results[0].equal(results[2])
    assert not results[0].equal(results[1])


def test_listed_shapes_are_never_captured_again_and_others_are_counted(made: Made) -> None:
    steps = Steps(made.steps._network, HOME.device)
    for job in made.steps._network.examples(SIZE):
        steps.once(job)
        steps.warm([job])
    before = steps.graphs.captures
    assert before == len(TEXTS) * 2  # with guidance and without
    for tokens, guidance in ((3, 3.0), (9, 3.0), (16, 1.0)):
        job = made.job(1, tokens, guidance=guidance)
        steps.once(job)
        assert steps.step([job]) == [True]
    assert (steps.graphs.captures, steps.graphs.replays, steps.uncaptured) == (before, 3, 0)
    other = made.job(1, 5, size=Size(32, 32))
    steps.once(other)
    assert steps.step([other]) == [True]
    assert (steps.graphs.captures, steps.uncaptured) == (before, 1)


def test_numbers_that_are_not_finite_are_told_of_the_job_that_has_them(made: Made) -> None:
    sound, spoilt = made.job(1, 5), made.job(2, 5)
    spoilt.x = (spoilt.x[0] * float("nan"),)
    assert made.steps.step([sound, spoilt]) == [True, False]


def test_a_job_that_has_ended_is_let_go(made: Made) -> None:
    job = made.job(1, 5)
    made.captured([job])
    held = ref(job)
    del job
    gc.collect()
    assert held() is None
