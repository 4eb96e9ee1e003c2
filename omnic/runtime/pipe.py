"""A file that is read as it is written: `Pipe`."""

from __future__ import annotations

import io
from typing import Any


class Pipe(io.RawIOBase):
    """Holds what was written until it is taken; cannot seek."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held
