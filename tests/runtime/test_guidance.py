"""Guidance: how a step's branches become one prediction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from omnic.runtime.guidance import NONE, Guidance, constant


@pytest.fixture
def three() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 5, 8, generator=generator) for _ in range(3)]


X = torch.zeros(2, 5, 8)


def test_two_branches_are_classifier_free_guidance(three: list[Tensor]) -> None:
    prompt, negative = three[:2]
    found = constant(3.5, 4).combine(2, [prompt, negative], X)
    assert torch.equal(found, negative + 3.5 * (prompt - negative))


def test_a_scale_of_one_needs_the_prompts_branch_alone(three: list[Tensor]) -> None:
    guidance = Guidance(2, (3.0, 1.0, 0.5))
    assert [guidance.active(step) for step in range(3)] == [2, 1, 2]
    assert guidance.combine(1, three[:1], X) is three[0]


def test_without_guidance_there_is_one_branch_at_any_step(three: list[Tensor]) -> None:
    assert [NONE.active(step) for step in (0, 99)] == [1, 1]
    assert NONE.combine(99, three[:1], X) is three[0]


def test_three_branches_weigh_what_the_picture_and_the_text_add(three: list[Tensor]) -> None:
    both, picture, neither = three
    guidance = constant((7.5, 1.5), 3, branches=3)
    assert guidance.active(0) == 3
    expected = neither + 7.5 * (both - picture) + 1.5 * (picture - neither)
    assert torch.allclose(guidance.combine(0, three, X), expected, atol=1e-5)


def test_last_branches_that_cancel_out_are_not_run(three: list[Tensor]) -> None:
    guidance = Guidance(3, ((7.5, 1.0), (1.0, 1.5), (1.0, 1.0)))
    assert [guidance.active(step) for step in range(3)] == [2, 3, 1]
    both, picture = three[:2]
    assert torch.allclose(guidance.combine(0, three[:2], X), picture + 7.5 * (both - picture), atol=1e-5)
    assert torch.allclose(
        guidance.combine(1, three, X), three[2] + both - picture + 1.5 * (picture - three[2]), atol=1e-5
    )


def test_norm_keeping_is_that_of_qwen_image(three: list[Tensor]) -> None:
    prompt, negative = three[:2]
    found = constant(4.0, 1, keep_norm=True).combine(0, [prompt, negative], X)
    combined = negative + 4.0 * (prompt - negative)
    lengths = torch.norm(prompt, dim=-1, keepdim=True) / torch.norm(combined, dim=-1, keepdim=True)
    assert torch.equal(found, combined * lengths)
    assert torch.allclose(found.norm(dim=-1), prompt.norm(dim=-1), rtol=1e-5)


def test_rescaling_is_that_of_diffusers(three: list[Tensor]) -> None:
    from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import rescale_noise_cfg

    prompt, negative = three[:2]
    found = constant(7.0, 1, rescale=0.7).combine(0, [prompt, negative], X)
    expected = rescale_noise_cfg(negative + 7.0 * (prompt - negative), prompt, guidance_rescale=0.7)
    assert torch.allclose(found, expected, atol=1e-6)


def test_a_family_may_bring_its_own_rule_and_gets_every_branch(three: list[Tensor]) -> None:
    seen = []

    def own(step: int, predictions: Sequence[Tensor], x: Tensor, which: int) -> Tensor:
        seen.append((step, len(predictions), which))
        return predictions[0] + 0.1 * (predictions[0] - predictions[2]) + x

    guidance = Guidance(3, own=own)
    assert guidance.active(5) == 3
    found = guidance.combine(5, three, X + 1, 1)
    assert torch.equal(found, three[0] + 0.1 * (three[0] - three[2]) + 1)
    assert seen == [(5, 3, 1)]
