"""What the catalog says a denoiser offers, beside what its runtime has: layers to adapt, step caches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from omnic import manifest
from omnic.catalog.part import Part
from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime import families
from omnic.runtime.home import Home
from omnic.runtime.lora import HasModules
from omnic.runtime.stepcache import HasBlocks, StepCaches
from omnic.runtime.weights import Checkpoint
from tests.families.diffusion.fixtures import all_fixtures

NAMES = sorted(name for name in all_fixtures() if name.startswith("random--"))


def loaded(name: str) -> tuple[Part, Any]:
    family = resolve(ModelSource("random", _family(name), (("like", name.replace("--", "/")),)), Path())
    held = manifest.Model("m", "random", name, family.family, family.format, family.config)
    (part,) = (part for part in family.parts.values() if part.kind == "denoise")
    load = families.load(family.family).load
    return part, load(Checkpoint(held, None), part.name, Home("float32"), lambda done, total: None)


def _family(name: str) -> str:
    from omnic.catalog.diffusers import FAMILIES

    return FAMILIES[all_fixtures()[name].pipeline]


@pytest.mark.parametrize("name", NAMES)
def test_adapters_can_be_of_what_the_catalog_says_and_step_caches_fit(name: str) -> None:
    part, denoiser = loaded(name)
    assert isinstance(denoiser, HasModules)
    modules = denoiser.modules()
    assert set(modules) == set(part.adapts)
    for component, module in modules.items():
        for tensor, parameter in module.named_parameters():
            pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", tensor)
            known = part.adapts[component]
            assert (known.get(tensor) or known[pattern])[1] == tuple(parameter.shape)
    for cache in part.step_caches:
        assert isinstance(denoiser, HasBlocks)
        StepCaches(cache.kind, cache.threshold, denoiser)
