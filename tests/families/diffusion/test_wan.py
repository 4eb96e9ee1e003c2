"""Wan 2.2 beside diffusers: two experts from text, two experts from a picture, and the 5 B from either."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_wan import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats  on a mat, at noon &amp; later", "so")
SIZE, WIDE = Size(32, 32), Size(64, 32)
GUIDED = {"high_guidance": 4.0, "low_guidance": 3.0, "boundary": 0.875}
PLAIN = {"high_guidance": 1.0, "low_guidance": 1.0, "boundary": 0.875}
ODD = {"high_guidance": 2.0, "low_guidance": 5.0, "boundary": 0.5}


@pytest.fixture(scope="module")
def from_text(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--wan"], tmp_path_factory.mktemp("wan") / "model")


@pytest.fixture(scope="module")
def from_picture(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--wan_i2v"], tmp_path_factory.mktemp("wan_i2v") / "model")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--wan_ti2v"], tmp_path_factory.mktemp("wan_ti2v") / "model")


def picture(seed: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 255, (24, 40, 3), dtype=np.uint8)


def theirs(pipe: Any, prompt: str, seed: int, size: Size, frames: int, steps: int, **more: Any) -> torch.Tensor:
    scales = {k: v for k, v in more.items() if k.endswith("guidance")}
    if "boundary" in more:
        pipe.register_to_config(boundary_ratio=more["boundary"])
    guidance = {"guidance_scale": scales.get("guidance", scales.get("high_guidance"))}
    if "low_guidance" in scales:
        guidance["guidance_scale_2"] = scales["low_guidance"]
    given = {"image": Image.fromarray(more["image"])} if "image" in more else {}
    found: torch.Tensor = pipe(
        prompt=prompt, negative_prompt="bad", height=size.height, width=size.width, num_frames=frames,
        num_inference_steps=steps, generator=generator(seed), output_type="pt", **given, **guidance,
    ).frames[0]  # fmt: skip
    return found.transpose(0, 1)


def job(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, **more: Any) -> Any:
    inputs: dict[str, Any] = {"condition": pair.run("text_encoder", {"text": prompt, "negative": "bad"})["embeds"]}
    if (image := more.pop("image", None)) is not None:
        inputs["first_frame"] = pair.run("vae_encode", {"image": image}, size=size, frames=frames)["latents"]
    return pair.prepared(inputs, seed, size=size, frames=frames, steps=steps, **more)


def same(pair: Pair, pipe: Any, *of: Any, **more: Any) -> None:
    (found,) = pair.finished(job(pair, *of, **more))
    expected = theirs(pipe, *of, **more)
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "frames"), [(SIZE, 9), (WIDE, 5)], ids=str)
@pytest.mark.parametrize("steps", [3, 6])
@pytest.mark.parametrize("scales", [GUIDED, PLAIN, ODD], ids=["guided", "plain", "odd"])
def test_from_text(from_text: Pair, size: Size, frames: int, steps: int, scales: dict[str, float]) -> None:
    same(from_text, from_text.pipe, PROMPTS[1], 7, size, frames, steps, **scales)


def test_both_experts_are_asked(from_text: Pair) -> None:
    made = job(from_text, PROMPTS[0], 7, SIZE, 5, 6, **GUIDED)
    assert made.phases == tuple(sorted(made.phases))
    assert set(made.phases) == {"high", "low"}
    assert made.guidance.scales == tuple({"high": 4.0, "low": 3.0}[phase] for phase in made.phases)


def test_a_single_frame(from_text: Pair) -> None:
    same(from_text, from_text.pipe, PROMPTS[0], 1, SIZE, 1, 3, **GUIDED)


def test_three_in_a_batch(from_text: Pair) -> None:
    jobs = [job(from_text, prompt, i, SIZE, 5, 4, **GUIDED) for i, prompt in enumerate(PROMPTS)]
    for i, found in enumerate(from_text.finished(*jobs)):
        expected = theirs(from_text.pipe, PROMPTS[i], i, SIZE, 5, 4, **GUIDED)
        torch.testing.assert_close(from_text.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "frames", "steps"), [(SIZE, 9, 3), (WIDE, 5, 5)], ids=str)
@pytest.mark.parametrize("scales", [GUIDED, PLAIN], ids=["guided", "plain"])
def test_from_a_picture(from_picture: Pair, size: Size, frames: int, steps: int, scales: dict[str, float]) -> None:
    same(from_picture, from_picture.pipe, PROMPTS[0], 5, size, frames, steps, image=picture(), **scales)


def test_three_pictures_in_a_batch(from_picture: Pair) -> None:
    jobs = [job(from_picture, p, i, SIZE, 5, 3, image=picture(i), **GUIDED) for i, p in enumerate(PROMPTS)]
    for i, found in enumerate(from_picture.finished(*jobs)):
        expected = theirs(from_picture.pipe, PROMPTS[i], i, SIZE, 5, 3, image=picture(i), **GUIDED)
        torch.testing.assert_close(from_picture.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "frames", "steps"), [(SIZE, 9, 3), (WIDE, 5, 5)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("begins", [False, True], ids=["text", "picture"])
def test_the_5b(small: Pair, size: Size, frames: int, steps: int, scale: float, begins: bool) -> None:
    from diffusers import WanImageToVideoPipeline

    pipe, given = small.pipe, {}
    if begins:
        pipe, given = WanImageToVideoPipeline(**small.pipe.components, expand_timesteps=True), {"image": picture()}
        pipe.set_progress_bar_config(disable=True)
    same(small, pipe, PROMPTS[0], 5, size, frames, steps, guidance=scale, **given)


def test_with_and_without_a_picture_never_share_a_forward(small: Pair) -> None:
    text = job(small, PROMPTS[0], 1, SIZE, 5, 2, guidance=1.0)
    begun = job(small, PROMPTS[0], 1, SIZE, 5, 2, guidance=1.0, image=picture())
    assert text.group != begun.group


def test_a_first_frame_of_another_size_or_length_is_refused(from_picture: Pair) -> None:
    embeds = from_picture.run("text_encoder", {"text": "a"})["embeds"]
    first = from_picture.run("vae_encode", {"image": picture()}, size=SIZE, frames=9)["latents"]
    for size, frames in ((WIDE, 9), (SIZE, 5)):
        with pytest.raises(RequestError, match="another size or length") as refused:
            from_picture.prepared(
                {"condition": embeds, "first_frame": first}, size=size, frames=frames, steps=2, **GUIDED
            )
        assert refused.value.field == "size"


def test_a_prompt_is_never_cut(from_text: Pair) -> None:
    with pytest.raises(RequestError, match="tokens long") as refused:
        from_text.run("text_encoder", {"text": "q" * 513})
    assert refused.value.field == "prompt"
