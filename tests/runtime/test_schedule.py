"""Schedules: diffusers' schedulers, each request with its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.runtime.errors import RequestError
from omnic.runtime.schedule import Schedule, even_sigmas, shift_of

EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler"}
SHIFTED = {**EULER, "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15}
UNIPC = {"_class_name": "UniPCMultistepScheduler", "prediction_type": "flow_prediction", "use_flow_sigmas": True}
DDIM = {"_class_name": "DDIMScheduler", "num_train_timesteps": 1000}
ANCESTRAL = {"_class_name": "EulerAncestralDiscreteScheduler"}
KINDS = [(EULER, {"sigmas": even_sigmas(6)}), (SHIFTED, {"sigmas": even_sigmas(6), "mu": 0.8}), (UNIPC, {}), (DDIM, {}),
         (ANCESTRAL, {}), ({"_class_name": "EulerDiscreteScheduler"}, {}),
         ({"_class_name": "DPMSolverMultistepScheduler"}, {})]  # fmt: skip


def predicted(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """A model that is no model, but depends on both."""
    return 0.3 * x + torch.sin(t.float())


def ran(schedule: Schedule, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 2, 4, 4, generator=generator) * schedule.first_sigma
    for step, t in enumerate(schedule.timesteps):
        x = schedule.advance(step, predicted(schedule.scaled(step, x), t), x, generator)
    return x


@pytest.mark.parametrize(("config", "options"), KINDS)
def test_steps_are_those_of_diffusers(config: dict[str, Any], options: dict[str, Any]) -> None:
    import diffusers

    scheduler = getattr(diffusers, config["_class_name"]).from_config(config)
    scheduler.set_timesteps(**({"num_inference_steps": 6} if "sigmas" not in options else {}), **options)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 2, 4, 4, generator=generator) * getattr(scheduler, "init_noise_sigma", 1.0)
    more = {"generator": generator} if config is ANCESTRAL else {}
    for t in scheduler.timesteps:
        seen = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        x = scheduler.step(predicted(seen, t), t, x, **more, return_dict=False)[0]
    assert torch.equal(ran(Schedule(config, 6, **options)), x)


@pytest.mark.parametrize("left_out", [0, 1])
@pytest.mark.parametrize("config", [EULER, UNIPC, {"_class_name": "EulerDiscreteScheduler"}], ids=str)
def test_a_model_that_is_right_shows_the_end_at_any_step(config: dict[str, Any], left_out: int) -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noise = torch.randn(2, 1, 2, 4, 4, generator=generator)
    schedule = Schedule(config, 5)
    flows = config["_class_name"] != "EulerDiscreteScheduler"
    schedule.begin_at(left_out)
    x = schedule.noised(clean, noise) if left_out or not flows else noise
    for step in range(3 - left_out):
        before, x = x, schedule.advance(step, noise - clean if flows else noise, x, generator)
        torch.testing.assert_close(schedule.ahead(step + 1, before, x), clean, atol=1e-3, rtol=0)
        assert not torch.allclose(x, clean, atol=0.05)


def test_a_scheduler_whose_noise_is_not_added_in_proportion_shows_what_there_is() -> None:
    before, after = torch.randn(2, 1, 2, 4, 4)
    schedule = Schedule(DDIM, 5)
    assert schedule.ahead(1, before, after) is after


@pytest.mark.parametrize(("config", "options"), KINDS)
def test_schedules_share_no_state(config: dict[str, Any], options: dict[str, Any]) -> None:
    """Two requests whose steps interleave give what each gives alone."""
    alone = ran(Schedule(config, 6, **options))
    one, other = Schedule(config, 6, **options), Schedule(config, 6, **options)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    xs = [torch.randn(1, 2, 4, 4, generator=g) * one.first_sigma for g in generators]
    turns = [(at, step) for step in range(-2, len(one)) for at in (0, 1) if 0 <= step + 2 * at < len(one)]
    for at, step in ((at, step + 2 * at) for at, step in turns):
        schedule = (one, other)[at]
        prediction = predicted(schedule.scaled(step, xs[at]), schedule.timesteps[step])
        xs[at] = schedule.advance(step, prediction, xs[at], generators[at])
    assert torch.equal(xs[1], alone)


@pytest.mark.parametrize("steps", [0, -1])
def test_less_than_one_step_is_refused(steps: int) -> None:
    for make in (lambda: Schedule(EULER, steps), lambda: even_sigmas(steps)):
        with pytest.raises(RequestError) as refused:
            make()
        assert refused.value.field == "num_inference_steps"


def test_a_scheduler_that_diffusers_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="diffusers has no scheduler `PaintByNumbers`"):
        Schedule({"_class_name": "PaintByNumbers"}, 4)


def test_begin_at_leaves_out_first_steps() -> None:
    import diffusers

    schedule = Schedule(EULER, 10, sigmas=even_sigmas(10))
    schedule.begin_at(6)
    assert len(schedule) == 4
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_config(EULER)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 0.1, 10))
    scheduler.set_begin_index(6)
    clean, noise = torch.ones(1, 2, 4, 4), torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    x = expected = schedule.noised(clean, noise)
    assert torch.equal(x, scheduler.scale_noise(clean, scheduler.timesteps[6:7], noise))
    for step, t in enumerate(schedule.timesteps):
        x = schedule.advance(step, predicted(x, t), x, torch.Generator())
        expected = scheduler.step(predicted(expected, t), t, expected).prev_sample
    assert torch.equal(x, expected)


def test_the_shift_is_that_of_diffusers_pipelines() -> None:
    from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift

    config = {"base_image_seq_len": 256, "max_image_seq_len": 8192, "base_shift": 0.5, "max_shift": 0.9}
    for tokens in (64, 256, 4096, 9000):
        assert shift_of(tokens, config) == pytest.approx(calculate_shift(tokens, 256, 8192, 0.5, 0.9))
        assert shift_of(tokens, {}) == pytest.approx(calculate_shift(tokens))
