"""LTX-2 beside diffusers: a video and its sound, made together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import Size, evaluate
from omnic.runtime.diffusion import Ask, predict
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_ltx2 import FIXTURES
from tests.families.diffusion.parity import Pair, generator
from tests.live import Peak

PROMPTS = ("a cat", "two red cats  on a mat, at noon", "so")
SIZE, WIDE = Size(64, 64), Size(96, 64)
NEUTRAL = {
    "guidance": 1.0, "sound_guidance": 1.0, "modality": 1.0, "sound_modality": 1.0, "rescale": 0.0,
    "sound_rescale": 0.0,
}  # fmt: skip
GUIDED = NEUTRAL | {"guidance": 4.0, "sound_guidance": 7.0}
SCALES = {
    "plain": NEUTRAL,
    "guided": GUIDED,
    "sound": NEUTRAL | {"sound_guidance": 3.0, "sound_rescale": 0.5},
    "all": GUIDED | {"modality": 3.0, "sound_modality": 2.0, "rescale": 0.7, "sound_rescale": 0.3},
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--ltx2"], tmp_path_factory.mktemp("ltx2") / "model")


def theirs(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scales: dict[str, float]) -> Any:
    names = {
        "guidance": "guidance_scale", "sound_guidance": "audio_guidance_scale", "modality": "modality_scale",
        "sound_modality": "audio_modality_scale", "rescale": "guidance_rescale",
        "sound_rescale": "audio_guidance_rescale",
    }  # fmt: skip
    given = {names[name]: scale for name, scale in scales.items()}
    if given["guidance_rescale"] and not given["audio_guidance_rescale"]:
        raise AssertionError("there, none for the sound means that of the video")
    video, sound = pair.pipe(
        prompt=prompt, negative_prompt="bad", height=size.height, width=size.width, num_frames=frames,
        num_inference_steps=steps, generator=generator(seed), output_type="pt", return_dict=False, stg_scale=0.0,
        audio_stg_scale=0.0, **given,
    )  # fmt: skip
    return video[0].transpose(0, 1), sound[0]


def job(pair: Pair, prompt: str, seed: int, size: Size, frames: int, steps: int, scales: dict[str, float]) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt, "negative": "bad"})["embeds"]
    return pair.prepared({"condition": embeds}, seed, size=size, frames=frames, steps=steps, **scales)


def same(pair: Pair, found: Any, expected: Any) -> None:
    video, sound = expected
    assert sound.std() > 1e-3
    torch.testing.assert_close(pair.decoded(found["latents"])[0], video, atol=1e-4, rtol=0)
    with torch.inference_mode():
        heard = pair.part("audio_decode").decode(found["audio"].values)[0]
    torch.testing.assert_close(heard, sound, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "frames", "steps"), [(SIZE, 9, 2), (WIDE, 17, 3)], ids=str)
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_a_video_with_sound(pair: Pair, size: Size, frames: int, steps: int, scales: dict[str, float]) -> None:
    of = (PROMPTS[1], 7, size, frames, steps, scales)
    (found,) = pair.finished(job(pair, *of))
    same(pair, found, theirs(pair, *of))


def test_three_in_a_batch(pair: Pair) -> None:
    of = [(prompt, i, SIZE, 9, 2, SCALES["all"]) for i, prompt in enumerate(PROMPTS)]
    for each, found in zip(of, pair.finished(*(job(pair, *each) for each in of)), strict=True):
        same(pair, found, theirs(pair, *each))


def test_what_is_shown_and_played(pair: Pair) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 1, SIZE, 9, 2, GUIDED))
    video = pair.run("vae_decode", {"latents": found["latents"]})["video"]
    expected = pair.decoded(found["latents"])[0].permute(1, 2, 3, 0).numpy()
    assert video.shape == (9, 64, 64, 3)
    np.testing.assert_allclose(video / 255, expected, atol=0.5 / 255 + 1e-6)
    with torch.inference_mode():
        channels = pair.part("audio_decode").decode(found["audio"].values)[0].numpy()
    sound = pair.run("audio_decode", {"latents": found["audio"]}, channels=1)["audio"]
    assert sound.dtype == np.float32
    np.testing.assert_allclose(sound, (channels[0] + channels[1]) / 2, atol=1e-6)
    assert not np.allclose(channels[0], channels[1], atol=1e-3)


def test_branches_are_those_that_count(pair: Pair) -> None:
    made = {name: job(pair, PROMPTS[0], 1, SIZE, 9, 2, scales) for name, scales in SCALES.items()}
    assert {name: len(each.branches) for name, each in made.items()} == {"plain": 1, "guided": 2, "sound": 2, "all": 3}
    assert made["guided"].group == made["sound"].group
    assert len({made[name].group for name in ("plain", "guided", "all")}) == 3


def test_what_it_holds_at_its_peak(pair: Pair) -> None:
    shape = {"batch": 1, "size_high": WIDE.width * WIDE.height, "frames_high": 17}

    def said(part: str) -> float:
        return float(evaluate(pair.model.parts[part].cost_as("fp32").activation_bytes, shape))

    made = job(pair, PROMPTS[0], 1, WIDE, 17, 1, GUIDED)
    (found,) = pair.finished(made)
    made.step = 0
    work: dict[str, Callable[[], Any]] = {
        "text_encoder": lambda: pair.part("text_encoder").run(Ask(0, {"text": "a", "negative": "b"}, {})),
        "denoiser": lambda: predict(pair.part("denoiser").forward, [made]),
        "vae_decode": lambda: pair.part("vae_decode").decode(found["latents"].values),
        "audio_decode": lambda: pair.part("audio_decode").decode(found["audio"].values),
    }
    for part, run in work.items():
        with torch.inference_mode(), Peak() as peak:
            run()
        assert said(part) / 3 <= peak.bytes <= said(part), part


def test_sound_has_one_channel(pair: Pair) -> None:
    key = pair.model.parts["audio_decode"].key("channels")
    assert key is not None
    assert key.refusal(1) is None
    assert "one channel" in str(key.refusal(2))


def test_a_prompt_is_never_cut(pair: Pair) -> None:
    for field, texts in (("prompt", {"text": "q" * 1100}), ("negative_prompt", {"text": "a", "negative": "q" * 1100})):
        with pytest.raises(RequestError, match="tokens long") as refused, torch.inference_mode():
            pair.part("text_encoder").run(Ask(0, texts, {}))
        assert refused.value.field == field
