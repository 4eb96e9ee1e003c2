"""`/v1/images/generations` and `/v1/images/edits`: pictures, whole or with what comes before them."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted
from omnic.runtime import picture_files
from omnic.runtime.flow import Finished, Piece, Step
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import Problem
from omnic.runtime.server.service import Event, Service
from omnic.runtime.server.several import several
from omnic.runtime.server.sse import event

_EVENTS = {"images.generations": "image_generation", "images.edits": "image_edit"}


class Images:
    """One accepted request for `n` pictures; picture i is drawn with seed + i."""

    def __init__(self, service: Service, endpoint: Endpoint, accepted: Accepted, measure: Measure) -> None:
        self._service, self._endpoint, self._accepted, self._measure = service, endpoint, accepted, measure
        self._output = dict(endpoint.outputs)["image"]
        self._created = int(time.time())
        self.n: int = accepted.options["n"]
        self.format: str = accepted.options["output_format"]

    async def events(self, seed: int | None) -> AsyncGenerator[tuple[int, Event], None]:
        """What comes of all pictures, as it comes. Leaving early cancels them."""
        async with aclosing(several([self._one(i, seed) for i in range(self.n)])) as events:
            async for each in events:
                yield each

    async def _one(self, index: int, seed: int | None) -> AsyncGenerator[Event, None]:
        arguments = self._accepted.arguments | ({} if seed is None else {"seed": (seed + index) % (1 << 63)})
        previews = self._accepted.options["partial_images"]
        name, method = self._endpoint.name, self._accepted.slice.method
        made = False
        async with aclosing(self._service.run(name, method, arguments, self._measure, previews)) as events:
            async for each in events:
                if isinstance(each, Piece):
                    made = True
                    self._measure.piece("image")
                elif isinstance(each, Finished):
                    self._measure.finished(each)
                    if not made:
                        raise Problem(400, each.notes.get(self._output, "no picture was made"), "nothing_to_draw")
                yield each

    async def whole(self, seed: int | None, base_url: str) -> dict[str, Any]:
        """The body of an answer that is not streamed. `base_url` is the server's address, for those it keeps."""
        drawn: list[list[Any]] = [[] for _ in range(self.n)]
        async with aclosing(self.events(seed)) as events:
            async for index, each in events:
                if isinstance(each, Piece):
                    drawn[index].append(each.value)
        data = [await self._entry(picture, base_url) for pictures in drawn for picture in pictures]
        return {"created": self._created, "data": data, "usage": _USAGE} | self._facts(drawn[0][0])

    async def _entry(self, pixels: Any, base_url: str) -> dict[str, Any]:
        file = await self._encoded(pixels)
        self._measure.pictures(1)
        if self._accepted.options["response_format"] == "url":
            path = await self._service.kept.keep(file, self.format)
            return {"url": f"{base_url.rstrip('/')}{path}"}
        return {"b64_json": base64.b64encode(file).decode()}

    async def frames(
        self, events: AsyncGenerator[tuple[int, Event], None], first: tuple[int, Event]
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events: progress at each step, partial pictures where asked for, each picture when it is done."""
        drawn: list[list[Any]] = [[] for _ in range(self.n)]
        partial = [0] * self.n
        item: tuple[int, Event] | None = first
        while item is not None:
            index, each = item
            match each:
                case Piece():
                    drawn[index].append(each.value)
                case Step():
                    yield self._event("progress", index, {"stage": each.stage, "step": each.done, "steps": each.total})
                    if each.preview is not None:
                        shown = {"partial_image_index": partial[index]} | await self._shown(each.preview)
                        partial[index] += 1
                        yield self._event("partial_image", index, shown)
                case Finished():
                    for picture in drawn[index]:
                        shown = await self._shown(picture)
                        self._measure.pictures(1)
                        yield self._event("completed", index, shown | {"usage": _USAGE})
            item = await anext(events, None)

    async def _shown(self, pixels: Any) -> dict[str, Any]:
        file = await self._encoded(pixels)
        return {"b64_json": base64.b64encode(file).decode()} | self._facts(pixels)

    async def _encoded(self, pixels: Any) -> bytes:
        quality = self._accepted.options["output_compression"]
        return await asyncio.to_thread(picture_files.encode, pixels, self.format, quality)

    def _event(self, name: str, index: int, data: dict[str, Any]) -> bytes:
        type_ = f"{_EVENTS[self._endpoint.name]}.{name}"
        return event({"type": type_, "index": index, "created_at": self._created} | data, type_)

    def _facts(self, pixels: Any) -> dict[str, Any]:
        """How a picture is, in the words of the API."""
        height, width, channels = pixels.shape
        return {
            "size": f"{width}x{height}",
            "output_format": self.format,
            "background": "transparent" if channels == 4 and self.format != "jpeg" else "opaque",
            "quality": "auto",
        }


_USAGE: dict[str, Any] = {  # pictures are not counted in tokens
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
