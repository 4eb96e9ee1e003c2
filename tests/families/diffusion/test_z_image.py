"""Z-Image beside diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_z_image import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon, and a dog beside them that sleeps in the sun", "so")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--z_image"], tmp_path_factory.mktemp("z_image") / "model")


def theirs(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, **more: Any) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, guidance_scale=scale, height=size.height, width=size.width, num_inference_steps=steps,
        generator=generator(seed), output_type="pt", **more,
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, *, negative: str | None = None,
        latents: Any = None, strength: float = 1.0) -> Any:  # fmt: skip
    embeds = pair.run("text_encoder", {"text": prompt, "negative": negative})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": scale, "strength": strength}
    return pair.prepared({"condition": embeds, "latents": latents}, seed, **settings)


def same(pair: Pair, found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "steps", "scale"), [(Size(32, 32), 2, 0.0), (Size(48, 32), 5, 4.0)], ids=str)
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale))
    same(pair, found, theirs(pair, PROMPTS[0], 7, size, steps, scale))


@pytest.mark.parametrize("scale", [0.0, 3.0])
def test_three_in_a_batch(pair: Pair, scale: float) -> None:
    size = Size(32, 48)
    jobs = [job(pair, prompt, i, size, 2, scale, negative="bad") for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, pair.finished(*jobs), strict=True)):
        same(pair, one, theirs(pair, prompt, i, size, 2, scale, negative_prompt="bad"))


def test_from_a_picture(pair: Pair) -> None:
    import diffusers
    from PIL import Image

    size, picture = Size(32, 48), np.random.default_rng(1).integers(0, 256, (48, 32, 3), dtype=np.uint8)
    latents = pair.run("vae_encode", {"image": picture}, seed=5, size=size)["latents"]
    (found,) = pair.finished(job(pair, PROMPTS[0], 5, size, 5, 2.0, latents=latents, strength=0.5))
    pipe = diffusers.ZImageImg2ImgPipeline(**pair.pipe.components)
    pipe.set_progress_bar_config(disable=True)
    expected = pipe(
        prompt=PROMPTS[0], image=Image.fromarray(picture), height=size.height, width=size.width, strength=0.5,
        num_inference_steps=5, guidance_scale=2.0, generator=generator(5), output_type="pt",
    ).images[0]  # fmt: skip
    same(pair, found, expected)


def test_what_cannot_be_had_is_refused_by_name(pair: Pair) -> None:
    with pytest.raises(RequestError, match="its encoder takes 512") as refused:
        job(pair, "the " * 600, 0, Size(32, 32), 2, 0.0)
    assert refused.value.field == "prompt"
    with pytest.raises(RequestError, match="none was given") as refused:
        job(pair, "a cat", 0, Size(32, 32), 2, 0.0, strength=0.5)
    assert refused.value.field == "strength"
