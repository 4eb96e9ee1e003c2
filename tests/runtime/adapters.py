"""Adapters to test with: random additions to linear layers, in a file as PEFT or diffusers would leave it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from omnic.contract.files import File
from omnic.manifest import Model
from omnic.runtime.weights import Checkpoint


def halves(shapes: Mapping[str, tuple[int, int]], rank: int, seed: int = 0, size: float = 0.3) -> dict[str, Tensor]:
    """Random halves for layers of these shapes [out, in], named as PEFT names them."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, (rows, columns) in shapes.items():
        found[f"{name}.lora_A.weight"] = torch.randn(rank, columns, generator=generator) * size
        found[f"{name}.lora_B.weight"] = torch.randn(rows, rank, generator=generator) * size
    return found


def written(
    folder: Path,
    name: str,
    tensors: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """A file of these tensors; `metadata` as diffusers writes it into the file, `config` as PEFT beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {"format": "pt"} | ({"lora_adapter_metadata": json.dumps(metadata)} if metadata else {})
    save_file(dict(tensors), folder / f"{name}.safetensors", metadata=said)
    names: Sequence[str] = [f"{name}.safetensors"]
    if config is not None:
        (folder / "adapter_config.json").write_text(json.dumps(config))
        names = [*names, "adapter_config.json"]
    files = tuple(File(n, (folder / n).stat().st_size) for n in names)
    return Checkpoint(Model(name, "path", name, "lora", "safetensors", {}, files), folder)
