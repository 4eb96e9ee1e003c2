"""Qwen-Image beside diffusers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnic.expr import Size
from tests.families.diffusion.configs_qwen_image import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    made = Pair(FIXTURES["random--qwen_image"], tmp_path_factory.mktemp("qwen") / "model")
    made.pipe.prompt_template_encode_start_idx = made.part("text_encoder")._skip
    return made


def theirs(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, negative_prompt="bad", true_cfg_scale=scale, height=size.height, width=size.width,
        num_inference_steps=steps, generator=generator(seed), output_type="pt",
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, **more: Any) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt, "negative": "bad"})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": scale, "strength": 1.0} | more.pop("settings", {})
    return pair.prepared({"condition": embeds, "latents": None, **more}, seed, **settings)


@pytest.mark.parametrize("size", [Size(32, 32), Size(48, 32)], ids=str)
@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale))
    expected = theirs(pair, PROMPTS[0], 7, size, steps, scale)
    torch.testing.assert_close(pair.decoded(found["latents"])[0, :, 0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_three_in_a_batch(pair: Pair, scale: float) -> None:
    size = Size(32, 48)
    found = pair.finished(*(job(pair, prompt, i, size, 3, scale) for i, prompt in enumerate(PROMPTS)))
    for i, (prompt, one) in enumerate(zip(PROMPTS, found, strict=True)):
        expected = theirs(pair, prompt, i, size, 3, scale)
        torch.testing.assert_close(pair.decoded(one["latents"])[0, :, 0], expected, atol=1e-4, rtol=0)
