"""Where a model's files lie on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from omnic.manifest import Model


class Missing(FileNotFoundError):
    """A model, or one of its files, is not on this machine. One line that names it and says how to get it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model of the manifest and the directory that holds its files (None for random weights)."""

    model: Model
    root: Path | None
