"""What the catalog says that parts weigh is what they hold once loaded, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from omnic import manifest
from omnic.catalog.diffusers import FAMILIES
from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime import components, families
from omnic.runtime import modules as modules_of_torch
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint
from tests.families.diffusion.fixtures import FOLDER

TINY = {path.stem.removeprefix("random--"): json.loads(path.read_text()) for path in sorted(FOLDER.glob("random--*"))}
RANDOM = {
    name: resolve(ModelSource("random", FAMILIES[fixture["pipeline"]], (("like", f"random/{name}"),)), Path())
    for name, fixture in TINY.items()
}
PARTS = [
    (name, part.name, precision)
    for name, model in RANDOM.items()
    for part in model.parts.values()
    for precision in part.precisions
]


@pytest.mark.parametrize(("name", "part", "precision"), PARTS, ids=[".".join(one) for one in PARTS])
def test_weights_to_the_byte(name: str, part: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modules: list[torch.nn.Module] = []

    def filled(*args: Any, **options: Any) -> torch.nn.Module:
        modules.append(modules_of_torch.filled(*args, **options))
        return modules[-1]

    monkeypatch.setattr(components, "filled", filled)
    model = RANDOM[name]
    held = manifest.Model("m", "random", name, model.family, model.format, model.config)
    dtype = {"fp32": "float32", "bf16": "bfloat16", "fp8": "float8"}[precision]
    loaded: list[tuple[int, int]] = []
    families.load(model.family).load(Checkpoint(held, None), part, Home(dtype), lambda *done: loaded.append(done))
    expected = model.parts[part].cost_as(precision).weight_bytes
    assert sum(t.nbytes for module in modules for t in _held(module)) == expected
    assert loaded[-1] == (expected, expected)


def _held(module: torch.nn.Module) -> list[torch.Tensor]:
    """The tensors that a checkpoint fills, each once."""
    found = {t.data_ptr(): t for t in module.state_dict(keep_vars=True).values() if not t.is_meta}
    return list(found.values())
