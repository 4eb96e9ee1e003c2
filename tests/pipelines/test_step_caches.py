"""Step caches of diffusers families, from the source to the picture, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic.diagnostics import Sink
from omnic.driver import build
from tests.pipelines.built import running

TEXT = """
pipeline tried {{
  model m = random("{family}")
  input  prompt: text
  output made: {made}
  stage read  = m.text_encoder
  stage paint = m.denoiser {{ size = 32x48, steps = 6{keys} }}
  stage show  = m.vae_decode
  prompt        -> read.text
  read.embeds   -> paint.condition
  paint.latents -> show.latents
  show.{made}   -> made
}}
"""


def made(folder: Path, family: str, keys: str = "") -> tuple[Any, dict[str, float]]:
    """What a request gives, and the counters of its denoise stage."""
    video = family == "wan"
    folder.mkdir()
    source = folder / "tried.omni"
    more = ", frames = 5" if video else ""
    source.write_text(TEXT.format(family=family, made="video" if video else "image", keys=more + keys))
    sink = Sink()
    assert build(source, folder / "build", sink) is not None, list(sink)

    async def run(pipeline: Any) -> tuple[Any, dict[str, float]]:
        method = "videos_made" if video else "images_generations_made"
        found = await getattr(pipeline, method)(prompt="a red cat", seed=1).result()
        return found["made"], pipeline.paint.stats()

    with running(folder / "build", "Tried") as ask:
        found: tuple[Any, dict[str, float]] = ask(run)
        return found


@pytest.mark.parametrize(
    ("family", "kind", "branches"),
    [("flux", "first_block", 1), ("flux", "tea", 1), ("qwen_image", "first_block", 2), ("z_image", "first_block", 2),
     ("wan", "first_block", 2)],
)  # fmt: skip
def test_a_family_leaves_steps_out_where_it_is_told_to(family: str, kind: str, branches: int, tmp_path: Path) -> None:
    plain, before = made(tmp_path / "plain", family)
    never, none = made(tmp_path / "never", family, f", cache = {kind}(0)")
    always, all_ = made(tmp_path / "always", family, f", cache = {kind}(10)")
    assert before["skipped"] == none["skipped"] == 0
    assert np.abs(plain.astype(int) - never.astype(int)).max() <= 1, "the same but for how sums are ordered"
    experts = 2 if family == "wan" else 1  # each runs whole when its turn comes, and at the last step of all
    assert all_["skipped"] == branches * (6 - 1 - experts)
    assert not np.array_equal(plain, always)
