"""CogVideoX beside diffusers: fixed and rotary positions, patches of time, both of its solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size
from omnic.runtime.diffusion import Ask
from tests.families.diffusion.configs_cogvideox import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat", "so")
SIZE, WIDE = Size(64, 48), Size(48, 32)


@pytest.fixture(scope="module", params=["cogvideox", "cogvideox_5b", "cogvideox_15"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES[f"random--{request.param}"], tmp_path_factory.mktemp(request.param) / "model")


def theirs(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scale: float) -> torch.Tensor:
    found: torch.Tensor = pair.pipe(
        prompt=prompt, negative_prompt="bad", height=size.height, width=size.width, num_frames=frames,
        num_inference_steps=steps, guidance_scale=scale, generator=generator(seed), output_type="pt",
        max_sequence_length=32,
    ).frames[0]  # fmt: skip
    return found.transpose(0, 1)


def job(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scale: float) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt, "negative": "bad"})["embeds"]
    return pair.prepared({"condition": embeds}, seed, size=size, frames=frames, steps=steps, guidance=scale)


@pytest.mark.parametrize(("size", "frames"), [(SIZE, 9), (WIDE, 5)], ids=str)
@pytest.mark.parametrize(("steps", "scale"), [(2, 6.0), (4, 1.0), (4, 6.0)])
def test_a_video_alone(pair: Pair, size: Size, frames: int, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[1], 7, size, frames, steps, scale))
    expected = theirs(pair, PROMPTS[1], 7, size, frames, steps, scale)
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


def test_three_in_a_batch(pair: Pair) -> None:
    jobs = [job(pair, prompt, i, WIDE, 5, 3, 3.0) for i, prompt in enumerate(PROMPTS)]
    for i, found in enumerate(pair.finished(*jobs)):
        expected = theirs(pair, PROMPTS[i], i, WIDE, 5, 3, 3.0)
        torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


def test_frames_come_as_they_are_decoded(pair: Pair) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 1, WIDE, 17, 1, 1.0))
    with torch.inference_mode():
        parts = [part["video"] for part in pair.part("vae_decode").run(Ask(0, found, {}))]
    assert [len(part) for part in parts] == [9, 8]
    whole = pair.decoded(found["latents"])[0].permute(1, 2, 3, 0).numpy()
    assert np.abs(np.concatenate(parts) / 255 - whole).max() <= 0.5 / 255 + 1e-6
