"""The bodies of tiny families, exported for a range of shapes: onnxruntime gives what the modules give, and the real
builder makes engines of them.

One of each kind is tried here, in about two minutes of one core; `python -m tests.runtime.engines.families` tries all.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnic.catalog.exports import exported
from omnic.runtime.engines.builder import NoBuilder, builder_for
from tests.runtime.engines.families import ARCHITECTURE, rows
from tests.runtime.engines.tiny import DRAW, ENCODE, PAINT

BODIES = {
    ("flux", ENCODE): ["encode.clip.model", "encode.t5.model"],
    ("flux", DRAW): ["transformer"],
    ("sdxl", DRAW): ["unet"],
    ("qwen_image", DRAW): ["transformer"],
    ("z_image", DRAW): ["transformer"],
    ("stable_audio", DRAW): ["transformer"],
    ("flux", PAINT): ["decoder"],
    ("qwen_image", PAINT): ["decoder"],
    ("stable_audio", PAINT): ["decoder"],
}


def test_the_docs_list_what_the_catalog_takes() -> None:
    text = (Path(__file__).parents[3] / "docs/tensorrt.md").read_text()
    listed = re.findall(r"^\| (\w+) \| (\w+) \| `[\w.]+` \| \d", text, re.MULTILINE)
    assert set(listed) == set(exported())


def builder() -> str:
    try:
        return builder_for(ARCHITECTURE).name
    except NoBuilder as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.skipif(builder() != "tensorrt-rtx", reason=builder())
@pytest.mark.parametrize(("family", "stage"), BODIES)
def test_a_body_is_exported_gives_the_same_and_is_built(family: str, stage: str) -> None:
    found = list(rows(family, stage))
    assert [row.body for row in found] == BODIES[family, stage]
    for row in found:
        assert row.error <= 1e-4
        assert row.bytes > 100_000
