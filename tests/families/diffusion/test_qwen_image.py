"""Qwen-Image beside diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import QwenImageImg2ImgPipeline
from PIL import Image

from omnic.expr import Size
from omnic.runtime.diffusion import Latents
from omnic.runtime.errors import RequestError
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


@pytest.mark.parametrize("strength", [0.4, 1.0])
@pytest.mark.parametrize(("size", "steps"), [(Size(32, 32), 3), (Size(48, 32), 5)], ids=str)
def test_a_picture_from_a_picture(pair: Pair, size: Size, steps: int, strength: float) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (size.height, size.width, 3), dtype=np.uint8)
    pipe = QwenImageImg2ImgPipeline(**pair.pipe.components)
    pipe.prompt_template_encode_start_idx = pair.pipe.prompt_template_encode_start_idx
    pipe.set_progress_bar_config(disable=True)
    expected = pipe(
        prompt="a cat", negative_prompt="bad", true_cfg_scale=3.0, image=Image.fromarray(picture), strength=strength,
        height=size.height, width=size.width, num_inference_steps=steps, generator=generator(5), output_type="pt",
    ).images[0]  # fmt: skip
    latents = pair.run("vae_encode", {"image": picture}, 5, size=size)["latents"]
    ours = job(pair, "a cat", 5, size, steps, 3.0, latents=latents, settings={"strength": strength})
    (found,) = pair.finished(ours)
    torch.testing.assert_close(pair.decoded(found["latents"])[0, :, 0], expected, atol=1e-4, rtol=0)


def test_a_strength_that_leaves_no_step_is_refused(pair: Pair) -> None:
    picture = np.zeros((32, 32, 3), np.uint8)
    latents = pair.run("vae_encode", {"image": picture}, 0, size=Size(32, 32))["latents"]
    with pytest.raises(RequestError, match="leaves none") as refused:
        job(pair, "a cat", 0, Size(32, 32), 3, 1.0, latents=latents, settings={"strength": 0.0})
    assert refused.value.field == "strength"


def test_one_step_is_enough(pair: Pair) -> None:
    """diffusers divides 0 by 0 here: the only sigma is both the first and the one that is stretched to the end."""
    (found,) = pair.finished(job(pair, "a cat", 0, Size(32, 32), 1, 4.0))
    assert bool(pair.decoded(found["latents"]).isfinite().all())


def test_tiles_show_no_seams(pair: Pair) -> None:
    latents = Latents(torch.randn(1, 4, 1, 12, 10, generator=generator(0)))
    whole, tiled = (
        pair.run("vae_decode", {"latents": latents}, tile=tile)["image"] for tile in (Size(4096, 4096), Size(24, 16))
    )
    assert whole.shape == (48, 40, 3)
    assert abs(tiled.astype(int) - whole.astype(int)).max() <= 1
