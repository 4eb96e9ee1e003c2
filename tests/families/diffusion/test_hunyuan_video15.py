"""HunyuanVideo 1.5 beside diffusers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnic.expr import Size
from omnic.runtime.errors import RequestError
from omnic.runtime.families import hunyuan_video15
from tests.families.diffusion.configs_hunyuan_video15 import FIXTURES
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", 'two red cats under a sign that says "so be it" and “no”', "so")
SIZE, WIDE = Size(16, 16), Size(24, 16)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    made = Pair(FIXTURES["random--hunyuan_video15"], tmp_path_factory.mktemp("hunyuan") / "model")
    made.pipe.prompt_template_encode_start_idx = made.part("text_encoder").encode.__self__.skip
    return made


def theirs(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scale: float) -> torch.Tensor:
    pair.pipe.guider = type(pair.pipe.guider)(guidance_scale=scale)
    found: torch.Tensor = pair.pipe(
        prompt=prompt, negative_prompt="bad", height=size.height, width=size.width, num_frames=frames,
        num_inference_steps=steps, generator=generator(seed), output_type="pt",
    ).frames[0]  # fmt: skip
    return found.transpose(0, 1)


def job(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scale: float) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt, "negative": "bad"})["embeds"]
    return pair.prepared({"condition": embeds}, seed, size=size, frames=frames, steps=steps, guidance=scale)


@pytest.mark.parametrize(("size", "frames"), [(SIZE, 9), (WIDE, 5)], ids=str)
@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_a_video_alone(pair: Pair, size: Size, frames: int, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[1], 7, size, frames, steps, scale))
    expected = theirs(pair, PROMPTS[1], 7, size, frames, steps, scale)
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


def test_three_in_a_batch(pair: Pair) -> None:
    jobs = [job(pair, prompt, i, SIZE, 5, 3, 3.0) for i, prompt in enumerate(PROMPTS)]
    for i, found in enumerate(pair.finished(*jobs)):
        expected = theirs(pair, PROMPTS[i], i, SIZE, 5, 3, 3.0)
        torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


def test_its_guider_says_when(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pair.part("denoiser")._guider, "start", 0.3)
    monkeypatch.setitem(pair.part("denoiser")._guider, "stop", 0.8)
    made = job(pair, PROMPTS[0], 1, SIZE, 5, 5, 4.0)
    assert [made.guidance.active(step) for step in range(5)] == [1, 2, 2, 2, 1]


def test_the_text_before_a_prompt_is_the_one_it_was_trained_on(pair: Pair) -> None:
    assert pair.pipe.system_message == hunyuan_video15._SYSTEM


def test_words_in_quotation_marks_are_read_by_letters(pair: Pair) -> None:
    with torch.inference_mode():
        read, silent = (pair.part("text_encoder").encode(p, "prompt")["letters"] for p in (PROMPTS[1], PROMPTS[0]))
    assert read.shape[1] > 0 == silent.shape[1]
    with pytest.raises(RequestError, match="tokens long") as refused:
        pair.run("text_encoder", {"text": f'a sign: "{"q" * 300}"'})
    assert refused.value.field == "prompt"
