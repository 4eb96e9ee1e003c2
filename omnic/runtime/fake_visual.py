"""Stand-ins for models that make pictures and videos: what they draw follows from everything they were told."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from omnic.expr import Size
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError
from omnic.runtime.fake import ARGUMENTS, FakeStage
from omnic.runtime.flow import Flow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEPS, FRAMES, SIZE = 4, 8, Size(64, 64)  # where a request says nothing of them
_CHUNK = 4  # frames of a video that come at once
_PREVIEW_SIDE = 8


def drawn(seed: int, told: dict[str, Any], frame: int = 0) -> NDArray[np.uint8]:
    """What a fake painter draws: uint8 [height, width, 3], of the size it was told, a colour for each eighth of it.
    Every value and every pixel that it was told changes it; so does the number of the frame."""
    import numpy as np

    digest = hashlib.sha256(repr((seed, frame)).encode())
    for name, value in sorted(told.items()):
        digest.update(f"{name} ".encode())
        digest.update(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
    size = told.get("size") or SIZE
    colours = np.random.default_rng(list(digest.digest())).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    rows, columns = np.arange(size.height) * 8 // size.height, np.arange(size.width) * 8 // size.width
    picture: NDArray[np.uint8] = colours[rows][:, columns]
    return picture


class FakePainter(FakeStage):
    """Draws a picture in `steps` steps. An item of its script is a step."""

    makes = "image"

    async def work(self, flow: Flow, port: Port, inputs: dict[str, Any]) -> None:
        prompt, steps = inputs["prompt"], int(inputs.get("steps", STEPS))
        if prompt == ARGUMENTS:
            shapes = {n: list(v.shape) if hasattr(v, "shape") else str(v) for n, v in inputs.items()}
            raise RequestError(json.dumps({"seed": flow.seed} | shapes), "prompt")
        began = time.perf_counter()
        every = {i * steps // (flow.previews + 1) for i in range(1, flow.previews + 1)} - {0, steps}
        for index in range(steps):
            await self.step(flow, port, index, prompt)
            preview = None
            if index + 1 in every:
                preview = drawn(flow.seed + index, {"size": Size(_PREVIEW_SIDE, _PREVIEW_SIDE)})
            flow.progress(self.name, index + 1, steps, preview)
        seconds = time.perf_counter() - began
        flow.report.stages[self.name] = {"steps": steps, "seconds": seconds, "busy_seconds": seconds}
        await self.give(flow, port, inputs)
        port.close()

    async def give(self, flow: Flow, port: Port, told: dict[str, Any]) -> None:
        port.send(drawn(flow.seed, told))


class FakeFilm(FakePainter):
    """The same, and what it draws is `frames` frames of a video."""

    makes = "video"

    async def give(self, flow: Flow, port: Port, told: dict[str, Any]) -> None:
        import numpy as np

        frames = int(told.get("frames", FRAMES))
        for first in range(0, frames, _CHUNK):
            await port.room()
            port.send(np.stack([drawn(flow.seed, told, f) for f in range(first, min(first + _CHUNK, frames))]))
