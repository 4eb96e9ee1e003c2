"""The emoji painter through the engine: real weights, many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from omnic.runtime.errors import RequestError
from omnic.runtime.schedule import Schedule, even_sigmas
from tests.runtime.painting import Emoji, emoji, painted

ASKED: Sequence[dict[str, Any]] = (
    {"prompt": "a red heart", "seed": 1, "steps": 2, "guidance": 1.5},
    {"prompt": "sun", "seed": 2, "steps": 1, "guidance": 1.0},
    {"prompt": "a dog with a very long tail in a boat", "seed": 3, "steps": 3, "guidance": 3.0},
    {"prompt": "a red heart", "seed": 4, "steps": 2, "guidance": 1.5},
)


@pytest.fixture(scope="module")
def stages() -> Iterator[Emoji]:
    with emoji() as stages:
        yield stages


def pictures(stages: Emoji, asked: Sequence[dict[str, Any]]) -> list[NDArray[np.uint8]]:
    async def run() -> list[NDArray[np.uint8]]:
        return [found.image for found in await asyncio.gather(*(painted(stages.begun(**one)) for one in asked))]

    return asyncio.run(run())


def test_a_picture_is_that_of_a_plain_loop_over_the_network(stages: Emoji) -> None:
    network = stages.paint._denoiser._module  # type: ignore[union-attr]
    config = stages.paint.checkpoint.model.config["scheduler"]

    def loop() -> NDArray[np.uint8]:
        read = stages.read._transform
        texts = [read._encoded(text, "prompt") for text in ("a red heart", "")]  # type: ignore[union-attr]
        longest = max(text["states"].shape[1] for text in texts)
        states, mask = torch.zeros(2, longest, 384), torch.zeros(2, longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            states[row, : text["states"].shape[1]] = text["states"][0]
            mask[row, : text["states"].shape[1]] = True
        schedule = Schedule(config, 2, sigmas=even_sigmas(2))
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(1, 3, 64, 64, generator=generator)
        for step, t in enumerate(schedule.timesteps):
            prompt, negative = network(torch.cat((x, x)), t.repeat(2) / 1000, states, mask).split(1)
            x = schedule.advance(step, negative + 1.5 * (prompt - negative), x, generator)
        pixels = x[0].clamp(-1, 1).add(1).mul(127.5).round().to(torch.uint8)
        found: NDArray[np.uint8] = pixels.permute(1, 2, 0).numpy()
        return found

    assert np.array_equal(pictures(stages, ASKED[:1])[0], stages.device.submit(loop).result())


def test_in_fp32_a_picture_is_the_same_bytes_alone_beside_others_and_after_them(stages: Emoji) -> None:
    alone = [pictures(stages, [one])[0].tobytes() for one in ASKED]
    together = [picture.tobytes() for picture in pictures(stages, ASKED)]
    assert together == alone
    assert pictures(stages, ASKED[:1])[0].tobytes() == alone[0]
    assert len(set(alone)) == len(ASKED)


def test_in_bf16_neighbours_change_a_picture_by_less_than_the_stated_bound() -> None:
    """docs/determinism.md states the bounds."""
    with emoji("bfloat16") as stages:
        alone = [pictures(stages, [one])[0].astype(int) for one in ASKED]
        together = [picture.astype(int) for picture in pictures(stages, ASKED)]
        again = [pictures(stages, [one])[0].astype(int) for one in ASKED]
        stats = stages.paint.stats()
    assert stats["rows"] > stats["steps"], "some shared a forward"
    for one, other, third in zip(alone, together, again, strict=True):
        assert np.array_equal(one, third)
        assert np.abs(one - other).mean() <= 1.0  # of 255


def test_a_prompt_that_is_blank_or_too_long_is_refused_before_any_step(stages: Emoji) -> None:
    steps = stages.paint.stats()["steps"]
    for prompt in (" ", "word " * 600, "word " * 60):
        with pytest.raises(RequestError) as refused:
            pictures(stages, [{"prompt": prompt}])
        assert refused.value.field == "prompt"
    assert stages.paint.stats()["steps"] == steps
