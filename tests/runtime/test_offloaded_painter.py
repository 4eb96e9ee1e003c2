"""The emoji painter through the engine, most of its blocks on the host: the pictures are the same bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.adapters import halves, written
from tests.runtime.painting import Emoji, emoji, painted

RESIDENT = 3


def picture(stages: Emoji, **asked: Any) -> NDArray[np.uint8]:
    flow = stages.begun("a red heart", seed=1, steps=3, guidance=1.5, **asked)
    return asyncio.run(painted(flow)).image


@pytest.fixture(scope="module")
def plain() -> NDArray[np.uint8]:
    with emoji() as stages:
        return picture(stages)


def test_a_picture_is_the_one_that_resident_blocks_paint(plain: NDArray[np.uint8]) -> None:
    with emoji(resident=RESIDENT) as stages:
        assert np.array_equal(picture(stages), plain)
        assert np.array_equal(picture(stages), plain)
        offload, stats = stages.paint._offload, stages.paint.stats()
        assert offload is not None
        blocks = len(stages.paint._denoiser._module.blocks)  # type: ignore[union-attr]  # it is loaded
        passes = 2 * 3
        each = offload.host_bytes // (blocks - RESIDENT)  # all are of one size
        assert stats["fetched_bytes"] == (passes * (blocks - RESIDENT) + 2) * each
        assert stats["missed"] == 0
    assert offload.host_bytes == offload.device_bytes == 0


@pytest.mark.parametrize("how", ["loras", "fuse"])
def test_adapters_are_added_to_blocks_that_lie_on_the_host(how: str, tmp_path: Path) -> None:
    neon = written(tmp_path, "neon", halves({"transformer.blocks.0.qkv": (960, 320)}, 4))
    asked: dict[str, Any] = {"lora": "neon", "lora_scale": 1.0} if how == "loras" else {}
    settings: dict[str, Any] = {how: {"neon": neon}}
    with emoji(**settings) as stages:
        wanted = picture(stages, **asked)
    with emoji(**settings, resident=RESIDENT) as stages:
        assert np.array_equal(picture(stages, **asked), wanted)


def test_blocks_that_a_step_cache_leaves_out_are_not_waited_for() -> None:
    cache: dict[str, Any] = {"step_cache": "first_block", "step_cache_threshold": 10.0}  # leaves out whatever it may
    with emoji(**cache) as stages:
        wanted = picture(stages)
    with emoji(**cache, resident=RESIDENT) as stages:
        assert np.array_equal(picture(stages), wanted)
        assert stages.paint.stats()["missed"] > 0
