"""What a pipeline gives of a video, made into a file as it comes."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable
from pathlib import Path

from omnic.runtime import video_files
from omnic.runtime.flow import Piece
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import Problem
from omnic.runtime.server.service import Service
from omnic.runtime.video_files import Film

ENDPOINT = "videos"


class Filming:
    """A video in the making, in `file`. Frames are encoded in a thread, one piece at a time."""

    def __init__(
        self,
        service: Service,
        file: Path | io.IOBase,
        measure: Measure,
        *,
        streamed: bool = False,
        silent: bool = False,
    ) -> None:
        endpoint = service.content.endpoint(ENDPOINT)
        assert endpoint is not None
        outputs = dict(endpoint.outputs)
        types = service.content.outputs
        self._roles = {output: role for role, output in endpoint.outputs}
        self._measure = measure
        self.fps = float(types[outputs["video"]].rate_hz or video_files.FPS)
        sound = types[outputs["audio"]].rate_hz if "audio" in outputs and not silent else None
        self._file, self._streamed, self._sound_hz = file, streamed, int(sound) if sound else None
        self._film: Film | None = None
        self._lock = threading.Lock()

    async def take(self, piece: Piece) -> None:
        """The next frames, or the next of the sound."""
        if not len(piece.value):
            return
        role = self._roles[piece.output]
        await asyncio.to_thread(self._alone, self._take, role, piece.value)
        rate = self._sound_hz if role == "audio" else None
        self._measure.piece(role, len(piece.value) / rate if rate else 0.0)

    async def close(self) -> tuple[str, str]:
        """Ends the file; its size in pixels and its length in seconds, as the API writes them. Raises Problem if there
        was no frame."""
        film = self._film
        if film is None or film.size is None:
            raise Problem(400, "no frame was made", "nothing_to_show")
        await asyncio.to_thread(self._alone, film.close)
        self._film = None
        self._measure.frames(film.frames)
        return "{}x{}".format(*film.size), f"{film.frames / self.fps:g}"

    async def drop(self) -> None:
        """Lets go of a file that was not ended, and removes it."""
        if self._film is not None:
            film, self._film = self._film, None
            await asyncio.to_thread(self._alone, film.drop)
            if isinstance(self._file, Path):
                self._file.unlink(missing_ok=True)

    def _alone(self, work: Callable[..., None], *values: object) -> None:
        """Work on the file, after what a thread may still do to it for a request that was cancelled."""
        with self._lock:
            work(*values)

    def _take(self, role: str, value: object) -> None:
        if self._film is None:
            self._film = Film(self._file, self.fps, self._sound_hz, streamed=self._streamed)
        if role == "audio":
            self._film.play(value)  # type: ignore[arg-type]  # the type of the output says what it is
        else:
            self._film.show(value)  # type: ignore[arg-type]
