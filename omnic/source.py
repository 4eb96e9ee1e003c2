"""Source text and positions in it: `Source`, `Span`."""

from __future__ import annotations

import bisect
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 16 << 20  # of a file of source: no such file is longer, but a device may be


def load(path: Path) -> bytes:
    """The content of a file of source. Raises OSError, also for one that is longer than any source."""
    with path.open("rb") as file:
        return within(file.read(MOST_BYTES + 1), str(path))


def within(data: bytes, name: str) -> bytes:
    """`data`, read from `name`. Raises OSError if it is longer than any source."""
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
    return data


def decode(data: bytes) -> str:
    """The text of a file: UTF-8, with a byte order mark or without; line endings as they are. Raises
    UnicodeDecodeError."""
    return data.decode("utf-8-sig")


@dataclass(frozen=True, slots=True)
class Source:
    """One file of source. `path` is how the user named it; it is only ever shown, never opened again."""

    path: str
    text: str
    _line_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        object.__setattr__(self, "_line_starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both counted from 1."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (counted from 1) without its line ending."""
        start = self._line_starts[number - 1]
        end = self._line_starts[number] - 1 if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    @property
    def line_count(self) -> int:
        return len(self._line_starts)


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` (included) to `end` (excluded) of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.source, self.start, other.end)

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.path}:{line}:{column}"

    def __repr__(self) -> str:
        return f"Span({self})"
