"""lora: adapters, small additions to the linear layers of another model; stages name them in `loras` and `fuse`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from omnic.catalog import safetensors
from omnic.catalog.part import CatalogError, Model, Part
from omnic.contract import adapters
from omnic.contract.files import File

FAMILY = "lora"
_FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")  # as PEFT and diffusers name them
_CONFIG = "adapter_config.json"


def in_folder(folder: Path) -> Path | None:
    """The one adapter that a directory holds, under the name that a library gives it or any other."""
    named = [folder / name for name in _FILES if (folder / name).exists()]
    found = named or ([] if (folder / "config.json").exists() else sorted(folder.glob("*.safetensors")))
    return found[0] if len(found) == 1 else None


def from_file(file: Path, root: Path, where: str) -> Model:
    """The adapter of a file, and what lies beside it. Raises CatalogError for a file that holds anything else."""
    tensors = safetensors.header(file)
    try:
        layers = adapters.layers(tensor.name for tensor in tensors)
    except ValueError as error:
        raise CatalogError(f"{where} is no adapter that omnic can use: {error}", id="bad-checkpoint") from None
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    added: dict[str, tuple[int, ...]] = {}
    for layer, (a, b) in layers.items():
        if len(shapes[a]) != 2 or len(shapes[b]) != 2 or shapes[a][0] != shapes[b][1]:
            raise CatalogError(
                f"{where}: `{layer}` adds {list(shapes[b])} x {list(shapes[a])}, which is no product of two matrices",
                id="bad-checkpoint",
            )
        added[layer] = (shapes[b][0], shapes[a][0], shapes[a][1])
    paths = [file, *([file.parent / _CONFIG] if (file.parent / _CONFIG).exists() else [])]
    files = tuple(File(p.relative_to(root).as_posix(), p.stat().st_size) for p in paths)
    return replace(Model(FAMILY, "safetensors", {}, origin=where), files=files, root=str(root), adds=added)


def elements(model: Model) -> int:
    """How many numbers the adapter holds."""
    return sum(rank * (rows + columns) for rows, rank, columns in model.adds.values())


def misfit(model: Model, part: Part) -> str | None:
    """Why an adapter does not fit a part, or None."""
    if not part.adapts:
        return f"omnic cannot adapt a `{part.name}` of this family"
    for layer, (rows, _, columns) in model.adds.items():
        component, name = adapters.place(layer, part.adapts)
        shapes = part.adapts[component]
        _, shape = shapes.get(f"{name}.weight") or shapes.get(_pattern(f"{name}.weight")) or (0, None)
        if shape is None:
            return f"it adds to `{name}`, which the model does not have"
        if shape != (rows, columns):
            return f"it adds [{rows}, {columns}] to `{name}`, which is {list(shape)}"
    return None


def _pattern(name: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
