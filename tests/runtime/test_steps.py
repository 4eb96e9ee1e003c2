"""Steps on their way from a stage in a worker to whoever reads the request: the newest of each stage, and previews."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from omnic.runtime.fake import Script, write
from omnic.runtime.fake_visual import drawn
from omnic.runtime.flow import Finished, Piece, Step
from omnic.runtime.workers import Call, Supervisor
from tests.painter import painter, studio
from tests.runtime.test_workers import trial


def paint(supervisor: Supervisor, previews: int = 0, **arguments: Any) -> Call:
    return supervisor.submit("images_generations_picture", {"prompt": "a fox", "seed": 7, **arguments}, previews)


def test_steps_come_in_order_before_the_picture(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        events = [event async for event in paint(supervisor, steps=5)]
        steps = [e for e in events if isinstance(e, Step)]
        assert [(s.stage, s.done, s.total) for s in steps] == [("paint", n, 5) for n in range(1, 6)]
        *_, piece, finished = events
        assert isinstance(piece, Piece)
        assert (piece.value == drawn(7, {"prompt": "a fox", "steps": 5})).all()
        assert isinstance(finished, Finished)
        assert finished.stages["paint"]["steps"] == 5

    trial(write(tmp_path, painter(), Script(step_seconds=0.02)), work)


def test_one_that_reads_slowly_gets_the_newest_step_and_loses_no_preview(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        call = paint(supervisor, previews=1, steps=100)
        while not call.over:
            await asyncio.sleep(0.01)
        events = [event async for event in call]
        steps = [e for e in events if isinstance(e, Step)]
        assert [(s.done, s.total) for s in steps] == [(100, 100)]
        assert steps[0].preview.shape == (8, 8, 3)
        assert len(events) == 3

    trial(write(tmp_path, painter(), Script()), work)


def test_no_preview_is_made_unless_it_is_asked_for(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        events = [event async for event in paint(supervisor, steps=9)]
        assert all(e.preview is None for e in events if isinstance(e, Step))

    trial(write(tmp_path, painter(), Script(step_seconds=0.002)), work)


def test_a_video_that_nobody_reads_waits_in_the_worker(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        call = supervisor.submit("videos_clip", {"prompt": "a fox", "seed": 7, "frames": 161, "steps": 1})
        await asyncio.sleep(1)
        assert not call.over
        pieces = [e.value async for e in call if isinstance(e, Piece)]
        assert np.concatenate(pieces).shape == (161, 64, 64, 3)

    trial(write(tmp_path, studio(), Script()), work, credit=4)
