"""Stable Audio Open beside diffusers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omnic.expr import evaluate
from omnic.runtime.diffusion import Ask, predict
from omnic.runtime.errors import RequestError
from tests.families.diffusion.configs_stable_audio import FIXTURES
from tests.families.diffusion.parity import Pair, generator
from tests.live import Peak

PROMPTS = ("a drum", "two red cats  on a mat, at noon", "so")
LONGEST = 64 * 8 / 44100


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    made = Pair(FIXTURES["random--stable_audio"], tmp_path_factory.mktemp("stable_audio") / "model")
    made.pipe.tokenizer.model_max_length = 128  # as released
    return made


def theirs(pair: Pair, prompt: str, seed: int, seconds: float, steps: int, scale: float, negative: str | None) -> Any:
    return pair.pipe(
        prompt=prompt, negative_prompt=negative, audio_end_in_s=seconds, num_inference_steps=steps,
        guidance_scale=scale, generator=generator(seed),
    ).audios[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, seconds: float, steps: int, scale: float, negative: str | None) -> Any:
    embeds = pair.run("text_encoder", {"text": prompt, "negative": negative})["embeds"]
    return pair.prepared({"condition": embeds}, seed, seconds=seconds, steps=steps, guidance=scale)


def decoded(pair: Pair, latents: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = pair.part("vae_decode").decode(latents)[0]
    return found


@pytest.mark.parametrize("seconds", [0.01, LONGEST])
@pytest.mark.parametrize("steps", [3, 6])
@pytest.mark.parametrize(("scale", "negative"), [(1.0, None), (7.0, None), (4.0, "bad")])
def test_a_sound(pair: Pair, seconds: float, steps: int, scale: float, negative: str | None) -> None:
    of = (PROMPTS[1], 7, seconds, steps, scale, negative)
    (found,) = pair.finished(job(pair, *of))
    expected = theirs(pair, *of)
    assert expected.std() > 1e-3
    torch.testing.assert_close(decoded(pair, found["latents"]), expected, atol=1e-4, rtol=0)


def test_three_in_a_batch(pair: Pair) -> None:
    of = [(prompt, i, 0.004 * (i + 1) / 2, 4, 7.0, "bad" if i else None) for i, prompt in enumerate(PROMPTS)]
    for each, found in zip(of, pair.finished(*(job(pair, *each) for each in of)), strict=True):
        torch.testing.assert_close(decoded(pair, found["latents"]), theirs(pair, *each), atol=1e-4, rtol=0)


def test_one_channel_is_played(pair: Pair) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 1, 0.01, 2, 1.0, None))
    both = decoded(pair, found["latents"]).numpy()
    sound = pair.run("vae_decode", {"latents": found["latents"]}, channels=1)["audio"]
    assert (sound.dtype, sound.shape) == (np.float32, (441,))
    np.testing.assert_allclose(sound, (both[0] + both[1]) / 2, atol=1e-6)
    key = pair.model.parts["vae_decode"].key("channels")
    assert key is not None
    assert "one channel" in str(key.refusal(2))


def test_what_it_holds_at_its_peak(pair: Pair) -> None:
    made = job(pair, PROMPTS[0], 1, 0.01, 1, 7.0, None)
    (found,) = pair.finished(made)
    made.step = 0
    work = {
        "text_encoder": lambda: pair.part("text_encoder").run(Ask(0, {"text": "a", "negative": "b"}, {})),
        "denoiser": lambda: predict(pair.part("denoiser").forward, [made]),
        "vae_decode": lambda: pair.part("vae_decode").decode(found["latents"]),
    }
    for part, run in work.items():
        said = float(evaluate(pair.model.parts[part].cost_as("fp32").activation_bytes, {"batch": 1}))
        with torch.inference_mode(), Peak() as peak:
            run()
        assert said / 3 <= peak.bytes <= said, (part, peak.bytes / said)


def test_refusals(pair: Pair) -> None:
    with pytest.raises(RequestError, match="tokens long") as refused:
        pair.run("text_encoder", {"text": "q" * 200})
    assert refused.value.field == "prompt"
    with pytest.raises(RequestError, match="seconds") as refused:
        job(pair, "a", 1, 1.0, 2, 1.0, None)
    assert refused.value.field == "audio_end_in_s"
