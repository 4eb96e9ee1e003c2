"""Stable Diffusion 3 beside diffusers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_sd3 import FIXTURES
from tests.families.diffusion.fixtures import Held
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")
SIZE = Size(16, 24)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--sd3"], tmp_path_factory.mktemp("sd3") / "model")


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


@pytest.mark.parametrize(("size", "steps", "scale"), [(Size(32, 32), 2, 1.0), (SIZE, 5, 7.0)], ids=str)
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale))
    same(pair, found, theirs(pair, PROMPTS[0], 7, size, steps, scale))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_three_in_a_batch(pair: Pair, scale: float) -> None:
    jobs = [job(pair, prompt, i, SIZE, 2, scale, negative="bad") for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, pair.finished(*jobs), strict=True)):
        same(pair, one, theirs(pair, prompt, i, SIZE, 2, scale, negative_prompt="bad"))


@pytest.mark.parametrize(("steps", "strength"), [(2, 1.0), (5, 0.5)])
def test_from_a_picture(pair: Pair, steps: int, strength: float) -> None:
    import diffusers
    from PIL import Image

    picture = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    latents = pair.run("vae_encode", {"image": picture}, seed=5, size=SIZE)["latents"]
    (found,) = pair.finished(job(pair, PROMPTS[0], 5, SIZE, steps, 2.0, latents=latents, strength=strength))
    pipe = diffusers.StableDiffusion3Img2ImgPipeline(**pair.pipe.components)
    pipe.set_progress_bar_config(disable=True)
    expected = pipe(
        prompt=PROMPTS[0], image=Image.fromarray(picture), height=SIZE.height, width=SIZE.width, strength=strength,
        num_inference_steps=steps, guidance_scale=2.0, generator=generator(5), output_type="pt",
    ).images[0]  # fmt: skip
    same(pair, found, expected)


def test_without_t5(tmp_path: Any) -> None:
    fixture = FIXTURES["random--sd3"]
    kept = {name: held for name, held in fixture.components.items() if not name.endswith("_3")}
    shift = {"use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15}
    scheduler = fixture.components["scheduler"]
    kept["scheduler"] = Held("diffusers", scheduler.kind, scheduler.config | shift, tensors=False)
    small = Pair(replace(fixture, components=kept), tmp_path / "model", text_encoder_3=None, tokenizer_3=None)
    (found,) = small.finished(job(small, PROMPTS[1], 7, SIZE, 2, 3.0))
    same(small, found, theirs(small, PROMPTS[1], 7, SIZE, 2, 3.0))
    with pytest.raises(RequestError, match="its encoder takes 77"):
        job(small, "the " * 80, 0, SIZE, 2, 1.0)


def test_what_cannot_be_had_is_refused_by_name(pair: Pair) -> None:
    job(pair, "the " * 60, 0, SIZE, 2, 1.0)  # CLIP reads the start of it, T5 the whole
    for field, given in {"prompt": ("the " * 300, None), "negative_prompt": ("a cat", "the " * 300)}.items():
        with pytest.raises(RequestError, match="its encoder takes 256") as refused:
            job(pair, given[0], 0, SIZE, 2, 1.0, negative=given[1])
        assert refused.value.field == field
    size = next(key for key in pair.model.parts["denoiser"].keys if key.name == "size")
    assert size.domain is not None
    assert Size(64, 64) in size.domain
    assert Size(68, 64) not in size.domain, "its table of positions ends there"
