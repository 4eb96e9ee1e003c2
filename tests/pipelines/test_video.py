"""Wan as it ships, tiny: frames come as they are decoded, and are the same however they come."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omnic import driver
from omnic.diagnostics import Sink
from omnic.runtime.flow import Piece, Step
from tests.pipelines.built import PIPELINES, running

ASKED = {"prompt": "a red cat", "steps": 2, "seed": 5}
CHUNKS = "{ stream = chunk(1) }"


def build(folder: Path, edge: str = CHUNKS, paint: str = "", size: str = "64x96", frames: int = 9) -> Path:
    text = (PIPELINES / "wan22_ti2v.omni").read_text().partition("\ndeploy ")[0]
    for pattern, tiny in {
        r"hf\(.*\)": 'random("wan", like = "random/wan_ti2v")',
        r"size = \d+x\d+ in .*": f"size = {size} in [{size}]",
        r"int = 121 in 5\.\.": f"int = {frames} in 5..",
        re.escape(CHUNKS): edge,
        r"wan\.vae_decode": f"wan.vae_decode {paint}",
    }.items():
        text, count = re.subn(pattern, tiny, text)
        assert count == 1, pattern
    source, sink = folder / "wan22_ti2v.omni", Sink()
    source.write_text(text)
    assert driver.build(source, folder / "build", sink) is not None, sink.diagnostics
    return folder / "build"


def pieces(folder: Path, **asked: Any) -> list[Any]:
    """What the pipeline of a build gives, in order."""

    async def work(pipeline: Any) -> list[Any]:
        return [event async for event in pipeline.videos_video(**(ASKED | asked)) if isinstance(event, Piece | Step)]

    with running(folder, "Wan22Ti2v") as ask:
        found: list[Any] = ask(work)
    return found


def video(events: list[Any]) -> NDArray[np.uint8]:
    return np.concatenate([event.value for event in events if isinstance(event, Piece)])


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return pieces(build(tmp_path_factory.mktemp("chunks")))


def test_frames_come_as_they_are_decoded(streamed: list[Any]) -> None:
    frames = [event for event in streamed if isinstance(event, Piece)]
    assert [piece.value.shape for piece in frames] == [(1, 96, 64, 3), (4, 96, 64, 3), (4, 96, 64, 3)]
    assert [event.done for event in streamed if isinstance(event, Step)][-1:] == [2]


@pytest.mark.parametrize(
    ("edge", "sizes"), [("{ stream = whole }", [9]), ("", [1, 4, 4]), ("{ stream = chunk(4), first = [1, 2] }", [1, 8])]
)
def test_the_frames_are_the_same_however_they_come(
    streamed: list[Any], edge: str, sizes: list[int], tmp_path: Path
) -> None:
    found = pieces(build(tmp_path, edge))
    assert [len(event.value) for event in found if isinstance(event, Piece)] == sizes
    assert np.array_equal(video(found), video(streamed))


def test_tiles_show_no_seams(tmp_path: Path) -> None:
    whole = video(pieces(build(tmp_path, size="288x256", frames=5)))
    tiled = video(pieces(build(tmp_path, paint="{ tile = 256x256 }", size="288x256", frames=5)))
    assert whole.shape == (5, 256, 288, 3)
    assert np.abs(tiled.astype(int) - whole.astype(int)).max() <= 1


def test_a_picture_changes_the_video_and_is_not_needed(streamed: list[Any], tmp_path: Path) -> None:
    picture = np.full((10, 10, 3), 200, np.uint8)
    begun = video(pieces(build(tmp_path), picture=picture))
    assert begun.shape == video(streamed).shape
    assert not np.array_equal(begun, video(streamed))
