"""Pictures that answers gave as addresses: each can be fetched for a while."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from omnic.contract.visual import PICTURES_PATH
from omnic.runtime import picture_files
from omnic.runtime.server.problems import Problem


class Kept:
    """Files in a directory that goes with the server. Used from one event loop."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._sizes: dict[str, int] = {}  # name: bytes, the oldest first

    async def keep(self, data: bytes, format: str) -> str:
        """Keeps a picture; returns the path it can be fetched under."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="omnic-pictures-")
        name = f"{secrets.token_hex(16)}{picture_files.FORMATS[format].suffixes[0]}"
        await asyncio.to_thread((Path(self._directory.name) / name).write_bytes, data)
        self._sizes[name] = len(data)
        asyncio.get_running_loop().call_later(self._seconds, self._forget, name)
        while sum(self._sizes.values()) > self._max_bytes and len(self._sizes) > 1:
            self._forget(next(iter(self._sizes)))
        return f"{PICTURES_PATH}/{name}"

    async def fetch(self, request: Request) -> Response:
        """Answers a GET of a picture."""
        name = request.path_params["name"]
        try:
            if name not in self._sizes or self._directory is None:
                raise FileNotFoundError
            data = await asyncio.to_thread((Path(self._directory.name) / name).read_bytes)
        except FileNotFoundError:
            message = f"there is no picture `{name[:64]}`, or its time is over"
            return Problem(404, message, "not_found").response()
        media_type = picture_files.format_of(Path(name).suffix).content_type
        return Response(data, media_type=media_type, headers={"cache-control": f"private, max-age={self._seconds:.0f}"})

    def close(self) -> None:
        self._sizes.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _forget(self, name: str) -> None:
        if self._sizes.pop(name, None) is not None and self._directory is not None:
            (Path(self._directory.name) / name).unlink(missing_ok=True)
