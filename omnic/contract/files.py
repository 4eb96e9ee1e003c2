"""The files of a checkpoint, as compiler and runtime name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class File:
    path: str  # inside the package's directory (site-packages), the repository or the directory the model comes from
    bytes: int
