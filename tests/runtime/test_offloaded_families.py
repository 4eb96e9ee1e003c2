"""Families of diffusers with their blocks on the host: nothing but a block's own forward reads its weights, and a
forward gives the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from omnic.catalog.diffusers import FAMILIES
from omnic.catalog.resolve import ModelSource, resolve
from omnic.manifest import Model
from omnic.runtime import families, offload
from omnic.runtime.diffusion import predict
from omnic.runtime.offload import Offload
from omnic.runtime.weights import Checkpoint
from tests.runtime.test_offload import Slow
from tests.runtime.test_replayed_families import HOME, Made

FIXTURES = Path(families.__file__).parents[2] / "catalog/fixtures"
KINDS = ("flux", "flux2", "sd3", "wan", "wan_ti2v", "ltx2", "cogvideox", "stable_audio")


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def offloaded(kind: str, held: Offload) -> Any:
    """The tiny denoiser of a kind, its blocks away."""
    pipeline = json.loads((FIXTURES / f"random--{kind}.json").read_text())["pipeline"]
    model = resolve(ModelSource("random", FAMILIES[pipeline], (("like", f"random/{kind}"),)), Path())
    checkpoint = Checkpoint(Model("m", "random", kind, model.family, model.format, model.config), None)
    home = replace(HOME, offload=held)
    denoiser = families.load(model.family).load(checkpoint, "denoiser", home, lambda done, total: None)
    held.begin()
    return denoiser


@pytest.mark.parametrize("kind", KINDS)
def test_a_forward_gives_the_bits_that_resident_blocks_give(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "FEWEST", 1)  # tiny ones have two or three, which gains nothing and shows as much
    made, held = Made(kind), Offload(0, HOME.device, Slow())
    job = made.job("a red cat")
    wanted, away = predict(made.denoiser.forward, [job]), offloaded(kind, held)
    for _ in range(2):
        found = predict(away.forward, [job])
        assert all(x.equal(y) for x, y in zip(tree_leaves(found), tree_leaves(wanted), strict=True))
    assert held.stats()["fetched_bytes"] > 2 * held.host_bytes / len(held._lines)
