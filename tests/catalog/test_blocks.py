"""The bytes of repeated blocks that plans count are those that the modules have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from omnic.catalog.blocks import blocks
from omnic.catalog.diffusers import Component
from omnic.catalog.resolve import ModelSource, resolve
from omnic.contract.blocks import FEWEST, LISTS, leaving
from omnic.runtime.components import built

FOLDER = Path(__file__).parents[2] / "omnic/catalog/fixtures"
FIXTURES = [path.stem for path in sorted(FOLDER.glob("*.json")) if "components" in json.loads(path.read_text())]


def transformers(name: str) -> dict[str, Any]:
    components = json.loads((FOLDER / f"{name}.json").read_text())["components"]
    return {n: c for n, c in components.items() if n.startswith("transformer")}


@pytest.mark.parametrize("name", [name for name in FIXTURES if transformers(name)])
def test_blocks_weigh_what_they_weigh_in_the_module(name: str) -> None:
    for component, held in transformers(name).items():
        library, kind = held["class"]
        with torch.device("meta"):
            module = built(library, kind, dict(held["config"]))
        lists = [part for list_ in LISTS if (part := getattr(module, list_, None)) is not None]
        wanted = [
            sum(-(-2 * tensor.numel() // 256) * 256 for tensor in block.state_dict().values())
            for one in lists
            for block in one
        ]
        tensors = {pattern: (count, tuple(shape)) for pattern, (count, shape) in held["tensors"].items()}
        assert blocks(Component(component, library, kind, tensors=tensors), 2) == tuple(wanted)
        assert wanted


def test_what_stays_in_float32_counts_four_bytes_an_element() -> None:
    part = resolve(ModelSource("random", "wan", (("like", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"),)), Path()).parts[
        "denoiser"
    ]
    narrow, wide = part.blocks_as("bf16"), part.blocks_as("fp32")
    assert [len(one) for one in narrow] == [40, 40]  # two experts
    assert wide[0][0] / 2 < narrow[0][0] < wide[0][0] * 0.51


def test_a_network_of_other_blocks_has_none() -> None:
    part = resolve(ModelSource("random", "sdxl", ()), Path()).parts["denoiser"]
    assert part.blocks_as(part.precisions[0]) == ((),)


@pytest.mark.parametrize("count", [3, 7, 60])
def test_blocks_that_stay_are_spread_evenly(count: int) -> None:
    for resident in range(count - FEWEST + 1):
        gone = leaving(count, resident)
        assert len(gone) == count - resident
        gaps = [after - before for before, after in zip((-1, *gone), gone, strict=False)]
        assert max(gaps) - min(gaps) <= 1
        assert gone[-1] == count - 1
