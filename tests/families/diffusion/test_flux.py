"""FLUX.1 beside diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_flux import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")
SIZE = Size(16, 24)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--flux"], tmp_path_factory.mktemp("flux") / "model")


@pytest.fixture(scope="module")
def schnell(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--flux_schnell"], tmp_path_factory.mktemp("schnell") / "model")


def theirs(
    pair: Pair, prompt: str, seed: int, size: Size, steps: int, *, tokens: int = 512, **more: Any
) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, height=size.height, width=size.width, num_inference_steps=steps, generator=generator(seed),
        max_sequence_length=tokens, output_type="pt", **more,
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, *, negative: str | None = None,
        latents: Any = None, **more: Any) -> Any:  # fmt: skip
    embeds = pair.run("text_encoder", {"text": prompt, "negative": negative})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": 3.5, "true_guidance": 1.0, "strength": 1.0} | more
    return pair.prepared({"condition": embeds, "latents": latents}, seed, **settings)


def same(pair: Pair, found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "steps", "scale"), [(Size(24, 16), 1, 3.5), (SIZE, 3, 7.0)])
def test_dev_follows_a_scale_of_guidance(dev: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = dev.finished(job(dev, PROMPTS[0], 7, size, steps, guidance=scale))
    same(dev, found, theirs(dev, PROMPTS[0], 7, size, steps, guidance_scale=scale))


@pytest.mark.parametrize(("size", "steps"), [(Size(16, 16), 1), (SIZE, 3)])
def test_schnell_has_no_scale(schnell: Pair, size: Size, steps: int) -> None:
    (found,) = schnell.finished(job(schnell, PROMPTS[1], 3, size, steps))
    same(schnell, found, theirs(schnell, PROMPTS[1], 3, size, steps, tokens=256))


def test_the_scale_matters(dev: Pair) -> None:
    one, other = dev.finished(*(job(dev, PROMPTS[0], 7, SIZE, 2, guidance=scale) for scale in (1.0, 30.0)))
    assert (one["latents"].values - other["latents"].values).abs().max() > 1e-3


@pytest.mark.parametrize(("negative", "scale"), [("bad", 1.0), ("", 3.0)])
def test_three_in_a_batch_with_and_without_true_guidance(dev: Pair, negative: str, scale: float) -> None:
    more = {"negative": negative, "true_guidance": scale}
    jobs = [job(dev, prompt, i, SIZE, 2, guidance=2.0 + i, **more) for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, dev.finished(*jobs), strict=True)):
        more = {"negative_prompt": negative, "true_cfg_scale": scale, "guidance_scale": 2.0 + i}
        same(dev, one, theirs(dev, prompt, i, SIZE, 2, **more))


@pytest.mark.parametrize(("steps", "strength"), [(2, 1.0), (5, 0.5)])
def test_from_a_picture(dev: Pair, steps: int, strength: float) -> None:
    import diffusers
    from PIL import Image

    picture = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    latents = dev.run("vae_encode", {"image": picture}, seed=5, size=SIZE)["latents"]
    (found,) = dev.finished(job(dev, PROMPTS[0], 5, SIZE, steps, latents=latents, strength=strength))
    pipe = diffusers.FluxImg2ImgPipeline(**dev.pipe.components)
    pipe.set_progress_bar_config(disable=True)
    expected = pipe(
        prompt=PROMPTS[0], image=Image.fromarray(picture), height=SIZE.height, width=SIZE.width, strength=strength,
        num_inference_steps=steps, guidance_scale=3.5, generator=generator(5), output_type="pt",
    ).images[0]  # fmt: skip
    same(dev, found, expected)


def test_what_cannot_be_had_is_refused_by_name(dev: Pair, schnell: Pair) -> None:
    with pytest.raises(RequestError) as refused:
        job(dev, PROMPTS[0], 0, SIZE, 2, true_guidance=2.0)
    assert refused.value.field == "negative_prompt"
    for field, given in {"prompt": ("the " * 300, None), "negative_prompt": ("a cat", "the " * 300)}.items():
        with pytest.raises(RequestError, match="its encoder takes 256") as refused:
            job(schnell, given[0], 0, SIZE, 2, negative=given[1])
        assert refused.value.field == field
    with pytest.raises(RequestError, match="blank"):
        job(dev, "  ", 0, SIZE, 2)
