"""The cache directory, seen from outside: which shelves it has, and emptying them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SHELVES = {  # only these are ever removed
    "checkpoints": "converted weights",
    "digests": "hashes of weight files",
    "engines": "engines of TensorRT",
}


@dataclass(frozen=True, slots=True)
class Shelf:
    """A directory of the cache that omnic fills."""

    name: str
    path: Path
    files: int
    bytes: int
    doc: str


def root() -> Path:
    """Where the cache lies; it need not exist."""
    from omnic.runtime.lock import cache_directory

    return cache_directory()


def shelves() -> list[Shelf]:
    """The shelves that are there."""
    return [_shelf(name, root() / name) for name in SHELVES if (root() / name).is_dir()]


def _shelf(name: str, path: Path) -> Shelf:
    files = [p for p in path.rglob("*") if p.is_file() and not p.is_symlink()]
    return Shelf(name, path, len(files), sum(p.stat().st_size for p in files), SHELVES[name])


def clear() -> None:
    """Removes every shelf; what else lies in the directory is not omnic's and stays."""
    for shelf in shelves():
        shutil.rmtree(shelf.path)
