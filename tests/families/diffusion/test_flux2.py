"""FLUX.2 beside diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_flux2 import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")
SIZE = Size(16, 24)
LAYERS = (1, 2, 3)  # a quarter, half and three quarters of the tiny encoders' layers, rounded down


@pytest.fixture(scope="module", params=["flux2", "flux2_base", "flux2_dev"])
def pair(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES[f"random--{request.param}"], tmp_path_factory.mktemp(request.param) / "model")


def theirs(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, **more: Any) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, guidance_scale=scale, height=size.height, width=size.width, num_inference_steps=steps,
        generator=generator(seed), text_encoder_out_layers=LAYERS, output_type="pt", **more,
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, reference: Any = None) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": scale}
    return pair.prepared({"condition": embeds, "reference": reference}, seed, **settings)


def same(pair: Pair, found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


def test_a_text_is_read_alike(pair: Pair) -> None:
    """Beside 500 tokens of padding and template, few words change little of a picture: so what is read is compared."""
    found, other = (pair.run("text_encoder", {"text": text})["embeds"].prompt["states"] for text in PROMPTS[1:])
    expected, _ = pair.pipe.encode_prompt(PROMPTS[1], text_encoder_out_layers=LAYERS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found - other).abs().max() > 1e-2


@pytest.mark.parametrize(("size", "steps", "scale"), [(Size(32, 16), 1, 1.0), (SIZE, 3, 4.0)], ids=str)
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale))
    same(pair, found, theirs(pair, PROMPTS[0], 7, size, steps, scale))


def test_three_in_a_batch(pair: Pair) -> None:
    jobs = [job(pair, prompt, i, SIZE, 2, 2.0 + i) for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, pair.finished(*jobs), strict=True)):
        same(pair, one, theirs(pair, prompt, i, SIZE, 2, 2.0 + i))


def test_beside_a_picture(pair: Pair) -> None:
    from PIL import Image

    picture = np.random.default_rng(1).integers(0, 256, (70, 81, 3), dtype=np.uint8)
    reference = pair.run("vae_encode", {"image": picture})["latents"]
    assert reference.values.shape[-2:] == (17, 20), "cut to whole patches"
    (found,) = pair.finished(job(pair, PROMPTS[0], 5, SIZE, 2, 4.0, reference))
    same(pair, found, theirs(pair, PROMPTS[0], 5, SIZE, 2, 4.0, image=Image.fromarray(picture)))


def test_large_pictures_are_made_smaller(pair: Pair) -> None:
    from diffusers.pipelines.flux2.image_processor import Flux2ImageProcessor
    from PIL import Image

    picture = np.random.default_rng(1).integers(0, 256, (900, 1500, 3), dtype=np.uint8)
    image = Flux2ImageProcessor._resize_to_target_area(Image.fromarray(picture), 1 << 20)
    width, height = (side // 4 * 4 for side in image.size)
    expected = Flux2ImageProcessor(vae_scale_factor=4).preprocess(image, height, width, resize_mode="crop")
    torch.testing.assert_close(pair.part("vae_encode")._framed(picture), expected, atol=1e-6, rtol=0)


def test_the_shift_is_as_it_was_fitted() -> None:
    from diffusers.pipelines.flux2.pipeline_flux2 import compute_empirical_mu

    from omnic.runtime.families.flux2 import _shift

    for tokens, steps in ((64, 4), (4096, 50), (4301, 4), (9000, 200)):
        assert _shift(tokens, steps) == pytest.approx(compute_empirical_mu(tokens, steps))


def test_what_a_variant_takes_is_in_its_keys(pair: Pair) -> None:
    denoiser, encoder = pair.model.parts["denoiser"], pair.model.parts["text_encoder"]
    distilled = pair.pipe.config.get("is_distilled", False)
    assert (denoiser.key("guidance") is None) == distilled
    assert (encoder.input("negative") is not None) == (pair.pipe.config.get("is_distilled") is False)


@pytest.mark.parametrize(("height", "width", "why"), [(63, 200, "64 pixels or more"), (64, 600, "more than 8 to 1")])
def test_pictures_that_cannot_be_understood_are_refused(pair: Pair, height: int, width: int, why: str) -> None:
    with pytest.raises(RequestError, match=why) as refused:
        pair.run("vae_encode", {"image": np.zeros((height, width, 3), np.uint8)})
    assert refused.value.field == "image"


def test_long_prompts_are_refused(pair: Pair) -> None:
    with pytest.raises(RequestError, match="its encoder takes 512") as refused:
        job(pair, "the " * 600, 0, SIZE, 2, 1.0)
    assert refused.value.field == "prompt"
