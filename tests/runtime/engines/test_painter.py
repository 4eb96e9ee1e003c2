"""The emoji painter that ships, as a stage whose steps are an engine's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from omnic.runtime.denoise import Denoise
from omnic.runtime.device import Device
from omnic.runtime.engines.ahead import Ahead, Record
from omnic.runtime.engines.builder import Settings
from omnic.runtime.engines.fake import Reference
from omnic.runtime.engines.make import engines, taken
from omnic.runtime.flow import Flow
from tests.runtime.engines.tiny import DRAW, tiny
from tests.runtime.painting import Painted, checkpoint, painted

pytestmark = pytest.mark.slow


def paint(ahead: Ahead | None) -> Painted:
    """A picture of three steps."""
    asked = tiny("emoji").asks(DRAW)[1]
    device = Device("cpu", threads=1)
    stage = Denoise(
        "draw", checkpoint("path", "emoji/weights"), device, part="denoiser", dtype="float32", inputs=("condition",),
        outputs=("image",), slots=1, batch=1, engines=ahead,
    )  # fmt: skip
    stage.load(lambda name, done, total: None)
    flow = Flow(7)

    async def one() -> Painted:
        running = stage.start(flow, condition=asked.inputs["condition"], steps=3, guidance=1.5)
        flow.output("image", running.image)
        return await painted(flow)

    try:
        return asyncio.run(one())
    finally:
        asyncio.run(stage.close())
        device.close()


def test_a_picture_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    builder, part = Reference(), tiny("emoji").part(DRAW)
    made = engines("painter.draw", part, tiny("emoji").asks(DRAW), 1, builder, Settings())
    records = [
        Record("draw", one.body, one.signature, taken(one.obtained.artefact, tmp_path).path.name) for one in made
    ]
    found, expected = paint(Ahead(tmp_path, records, builder)), paint(None)
    assert builder.loaded == 2  # held against its module, and installed
    torch.testing.assert_close(
        torch.from_numpy(found.image).int(), torch.from_numpy(expected.image).int(), atol=1, rtol=0
    )
