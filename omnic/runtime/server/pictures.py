"""Pictures that a request carries: looked at when it comes, read when its turn has come."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted, Violation
from omnic.contract.values import MAX_PIXELS, Upload
from omnic.runtime import picture_files


class Picture:
    """An upload that is to be a picture. Its file must stay open until it has been read."""

    def __init__(self, upload: Upload, field: str, max_pixels: int, reading: asyncio.Semaphore, *, alpha: bool) -> None:
        self.field, self.max_pixels, self.alpha = field, max_pixels, alpha
        self._upload = upload
        self.size = (0, 0)  # width, height; known once it was looked at
        self._reading, self._turn = reading, asyncio.Lock()
        self._pixels: Any = None

    @classmethod
    def of(cls, data: bytes, field: str, max_pixels: int, reading: asyncio.Semaphore, *, alpha: bool) -> Picture:
        """The picture in the bytes of a file."""
        return cls(Upload(field, io.BytesIO(data)), field, max_pixels, reading, alpha=alpha)

    async def look(self) -> None:
        """Reads its header. Raises RequestError if it can be no picture, or is too large."""
        look = picture_files.size_of
        self.size = await asyncio.to_thread(look, self._upload.file, self.field, self.max_pixels)

    async def pixels(self) -> Any:
        """uint8 [height, width, 3 or 4]. Raises RequestError for a damaged one."""
        async with self._turn, self._reading:
            if self._pixels is None:
                self._pixels = await asyncio.to_thread(
                    picture_files.read, self._upload.file, self.field, self.max_pixels, alpha=self.alpha
                )
            return self._pixels

    async def data(self) -> bytes:
        """Its file."""
        async with self._turn:
            return await asyncio.to_thread(_whole, self._upload)


async def look(endpoint: Endpoint, accepted: Accepted, reading: asyncio.Semaphore) -> None:
    """Puts a Picture in place of each upload among the arguments. Raises RequestError or Violation."""
    for name, value in accepted.arguments.items():
        if isinstance(value, Upload):
            field = next(f for f in endpoint.fields if f.argument == name and f.type.kind == "image")
            max_pixels = int(field.type.bound("pixels") or MAX_PIXELS)
            alpha = field.name == "mask"
            picture = accepted.arguments[name] = Picture(value, field.name, max_pixels, reading, alpha=alpha)
            await picture.look()
    found = {p.field: p for p in accepted.arguments.values() if isinstance(p, Picture)}
    mask, first = found.get("mask"), found.get("image")
    if mask and first and mask.size != first.size:
        sizes = "{}x{} and {}x{}".format(*mask.size, *first.size)
        raise Violation(f"`mask` and `image` must be of one size, not {sizes}", "mask")


async def pixels(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with every picture read. Raises RequestError for a damaged one."""
    return {name: await v.pixels() if isinstance(v, Picture) else v for name, v in arguments.items()}


def _whole(upload: Upload) -> bytes:
    upload.file.seek(0)
    return upload.file.read()
