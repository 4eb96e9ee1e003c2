"""The cache of engines, by content: `obtain`. What is there is used, what differs in weights alone is refitted, and
what is not whole or not of this kind is built again, which is told."""

from __future__ import annotations

import fcntl
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omnic.runtime.engines import artefact
from omnic.runtime.engines.artefact import Artefact, Foreign, Input, Key
from omnic.runtime.engines.builder import Builder, Settings
from omnic.runtime.engines.export import Exported
from omnic.runtime.lock import cache_directory

SHELF = "engines"


@dataclass(frozen=True, slots=True)
class Obtained:
    """An engine, how it was come by (found, refitted, built) and why it was not found."""

    artefact: Artefact
    how: str
    why: str = ""


def obtain(label: str, exported: Exported, inputs: Sequence[Input], builder: Builder, settings: Settings) -> Obtained:
    """The engine of a body. `label` says of what it is, and stands at the beginning of its name in the cache.

    One process builds, others wait. Raises calls.Unfit for what the builder does not take.
    """
    key = Key(
        exported.graph,
        tuple(inputs),
        builder.name,
        builder.version,
        builder.architecture,
        {**settings.record(), "refit": int(builder.refits)},
    )
    shelf = cache_directory() / SHELF
    stem = f"{re.sub(r'[^a-z0-9_.]+', '-', label.lower())}-{key.digest}"
    path = shelf / f"{stem}-{exported.weights[:16]}"
    shelf.mkdir(parents=True, exist_ok=True)
    with (shelf / f".{stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        why = _unusable(path, key, exported.weights)
        if why is None:
            return Obtained(artefact.read(path), "found")
        how, blob = "refitted", _refitted(shelf, stem, key, exported, builder) if builder.refits else None
        if blob is None:
            shapes = {i.name: i.shapes for i in inputs}
            how, blob = "built", builder.build(exported.file, shapes, settings)
        made = Artefact(
            key, exported.weights, exported.outputs, exported.nesting, len(blob), hashlib.sha256(blob).hexdigest()
        )
        return Obtained(artefact.put(made, blob, path), how, why or _nearest(shelf, label, key))


def _unusable(path: Path, key: Key, weights: str) -> str | None:
    """Why there is no engine to use at `path`; "" where nothing ever was."""
    if not path.exists():
        return ""
    try:
        found = artefact.read(path)
        if difference := found.key.difference(key):
            return difference
        if found.weights != weights:
            return f"it is of weights {found.weights[:12]}, and wanted is {weights[:12]}"
        found.blob()
    except Foreign as error:
        return str(error)
    return None


def _refitted(shelf: Path, stem: str, key: Key, exported: Exported, builder: Builder) -> bytes | None:
    """From an engine that differs in weights alone."""
    for path in sorted(shelf.glob(f"{stem}-*")):
        try:
            found = artefact.read(path)
            if found.key == key and (made := builder.refit(found.blob(), exported.file)) is not None:
                return made
        except Foreign:
            continue  # an engine that is damaged is of no use here either
    return None


def _nearest(shelf: Path, label: str, key: Key) -> str:
    """How an engine of the same body that is there differs; "" without one."""
    for path in sorted(shelf.glob(f"{re.sub(r'[^a-z0-9_.]+', '-', label.lower())}-*")):
        try:
            if difference := artefact.read(path).key.difference(key):
                return f"{path.name} is of no use: {difference}"
        except Foreign:
            continue
    return ""
