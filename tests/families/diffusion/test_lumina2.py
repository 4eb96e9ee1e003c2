"""Lumina-Image 2.0 beside diffusers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_lumina2 import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")
SIZE = Size(48, 32)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--lumina2"], tmp_path_factory.mktemp("lumina2") / "model")


def theirs(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, **more: Any) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, guidance_scale=scale, height=size.height, width=size.width, num_inference_steps=steps,
        generator=generator(seed), output_type="pt", **more,
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, *, negative: str | None = None,
        truncation: float = 1.0) -> Any:  # fmt: skip
    embeds = pair.run("text_encoder", {"text": prompt, "negative": negative})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": scale, "truncation": truncation, "strength": 1.0}
    return pair.prepared({"condition": embeds, "latents": None}, seed, **settings)


def same(pair: Pair, found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("size", "steps", "scale", "truncation"), [(Size(32, 32), 2, 1.0, 1.0), (SIZE, 4, 4.0, 1.0), (SIZE, 4, 4.0, 0.5)]
)
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float, truncation: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale, truncation=truncation))
    same(pair, found, theirs(pair, PROMPTS[0], 7, size, steps, scale, cfg_trunc_ratio=truncation))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_three_in_a_batch(pair: Pair, scale: float) -> None:
    jobs = [job(pair, prompt, i, SIZE, 2, scale, negative="bad") for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, pair.finished(*jobs), strict=True)):
        same(pair, one, theirs(pair, prompt, i, SIZE, 2, scale, negative_prompt="bad"))


def test_long_prompts_are_refused(pair: Pair) -> None:
    with pytest.raises(RequestError, match="its encoder takes 256") as refused:
        job(pair, "the " * 250, 0, SIZE, 2, 1.0)
    assert refused.value.field == "prompt"
