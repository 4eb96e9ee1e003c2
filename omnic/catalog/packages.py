"""Installed packages that carry weights, found by their metadata on disk and never imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from omnic.catalog.part import CatalogError
from omnic.contract.files import File
from omnic.contract.packages import WEIGHTS_ONLY, install, normalised


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution as installed. `root` is the directory its files are named from (site-packages)."""

    name: str
    version: str
    root: Path
    files: tuple[File, ...]
    license: str


def find(name: str, path: Iterable[str] | None = None) -> Package:
    """The installed distribution `name`, looked for along `path` (`sys.path`). Raises CatalogError."""
    for entry in sys.path if path is None else path:
        folder = Path(entry or ".")
        try:
            names = [found.name for found in folder.iterdir()]
        except OSError:
            continue
        for found in names:
            if found.endswith(".dist-info") and normalised(found[:-10].rpartition("-")[0]) == normalised(name):
                return _read(name, folder, folder / found, found[:-10].rpartition("-")[2])
    why = WEIGHTS_ONLY.get(normalised(name))
    help = f"`{install(name)}`" + (f" ({why})" if why else "")
    raise CatalogError(f"package `{name}` is not installed", help=help, id="model-not-found")


def _read(name: str, root: Path, info: Path, version: str) -> Package:
    try:
        lines = (info / "RECORD").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise CatalogError(f"package `{name}` has no list of its files ({info}/RECORD)", id="model-not-found") from None
    listed = [line.rsplit(",", 2) for line in lines if line.count(",") >= 2]  # path (quoted if odd), hash, size
    files = tuple(File(p.strip('"'), int(n)) for p, _, n in listed if n.isdigit() and not p.startswith(".."))
    return Package(name, version, root, files, _license(info / "METADATA"))


def _license(metadata: Path) -> str:
    found = "unknown"
    with metadata.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():
                break
            field, _, value = line.partition(":")
            if field == "License-Expression":
                return value.strip()
            if field == "License" and len(value) < 60:
                found = value.strip()
    return found
