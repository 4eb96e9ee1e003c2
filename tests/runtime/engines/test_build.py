"""A build whose stages run by engines made ahead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from omnic import manifest
from omnic.diagnostics import Sink
from omnic.driver import BuildResult, build
from omnic.engines import EnginesFailed, spanned
from omnic.expr import Size
from omnic.runtime import lock
from omnic.runtime.device import Device
from omnic.runtime.engines import artefact
from omnic.runtime.engines.ahead import Ahead, Record
from omnic.runtime.engines.fake import Reference
from omnic.runtime.errors import Stale
from omnic.runtime.forward import Forward
from omnic.runtime.pipeline import Build
from omnic.runtime.weights import locate
from tests.passes.planning import plan

SMALL = """\
pipeline small {
  model m = random("flux", seed = 3)

  input  prompt: text
  output image: image

  param size: size = 32x48 in [32x48, 64x64]

  stage encode = m.text_encoder
  stage draw   = m.denoiser { size = size, steps = 2 }
  stage paint  = m.vae_decode { engine = tensorrt }

  prompt        -> encode.text
  encode.embeds -> draw.condition
  draw.latents  -> paint.latents
  paint.image   -> image

  serve images.generations
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.omni").write_text(SMALL)
    return tmp_path / "small.omni"


def built(small: Path, builder: Reference, **options: Any) -> BuildResult:
    sink = Sink()
    made = build(small, small.parent / "out", sink, target="gpu:l4", builder=lambda _: builder, **options)
    assert made is not None, sink.diagnostics
    return made


def decoded(out: Path, shape: tuple[int, ...], engines: Ahead | None) -> torch.Tensor:
    """What the stage `paint` of a build makes of latents."""
    content = manifest.read(out)
    checkpoint = locate(content.model("m"), out)
    stage = Forward("paint", checkpoint, Device(), part="vae_decode", dtype="float32", inputs=("latents",),
                    outputs=("image",), engines=engines)  # fmt: skip
    stage.load(lambda name, done, total: None)
    assert stage.stats().get("engine_tensorrt", 0.0) == (engines is not None)
    part: Any = stage._transform
    latents = torch.linspace(-2, 2, 4 * shape[0] * shape[1]).reshape(1, 4, *shape)
    with torch.inference_mode():
        found: torch.Tensor = part.decode(latents)
    return found


def test_the_engines_of_a_build_run_in_the_place_of_modules(small: Path) -> None:
    builder = Reference()
    made = built(small, builder)
    assert [line.split(",")[0] for line in made.engines] == ["paint.decoder: built for sm_89"]
    assert "proven on sm_89" in made.engines[0]
    (record,) = lock.engines(made.out)
    assert (record["stage"], record["body"]) == ("paint", "decoder")
    (held,) = artefact.read(made.out / "engines" / record["entry"]).key.inputs
    assert (held.dtype, str(held.shapes)) == ("float32", "[1, 4, 24..32, 16..32]")
    ahead = Ahead(made.out / "engines", [Record(**record)], builder)
    for shape in ((24, 16), (32, 32), (28, 20)):
        found, expected = decoded(made.out, shape, ahead), decoded(made.out, shape, None)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    assert 'engines=build.engines("paint")' in (made.out / "pipeline.py").read_text()


def test_built_again_they_are_taken_from_the_cache_and_old_ones_go(small: Path) -> None:
    builder = Reference()
    first = built(small, builder)
    stray = first.out / "engines/of-an-earlier-build"
    stray.mkdir()
    (stray / "entry.json").write_text("{}")
    (first.out / "engines/notes.txt").write_text("mine")
    again = built(small, builder)
    assert len(builder.built) == 1
    assert not again.changed
    assert again.engines[0].startswith("paint.decoder: found for sm_89")
    (record,) = lock.engines(again.out)
    assert sorted(path.name for path in (again.out / "engines").iterdir()) == sorted([record["entry"], "notes.txt"])
    without = built(small, builder, ahead=False)
    assert lock.engines(without.out) == []
    assert [path.name for path in (without.out / "engines").iterdir()] == ["notes.txt"]


def test_an_engine_that_is_wrong_fails_the_build_and_leaves_the_old_one(small: Path) -> None:
    out = built(small, Reference()).out
    was = (out / "engines.lock").read_bytes()
    with pytest.raises(EnginesFailed, match=r"^`paint`: `decoder`: the engine is off by 0\.1 of the largest value"):
        built(small, Reference(version="2", spoils=True))
    assert (out / "engines.lock").read_bytes() == was


def test_a_damaged_lock_of_engines_is_one_line(small: Path) -> None:
    out = built(small, Reference(), ahead=False).out
    held = json.loads((out / "engines.lock").read_text())
    (out / "engines.lock").write_text(json.dumps(held | {"engines": [{"stage": 1}]}))
    with pytest.raises(Stale, match=r"engines\.lock is damaged .*: build again"):
        Build(out, manifest.read(out)).engines("paint")


def test_samples_span_every_size_and_both_ends_of_what_requests_set(tmp_path: Path) -> None:
    planned = plan(SMALL, target="gpu:l4", base=tmp_path)
    found = spanned(planned.pipeline, planned.context)
    assert (found[0]["size"], found[0]["request guidance_scale"]) == (Size(32, 48), 3.5)
    sizes = {params["size"] for params in found}
    assert sizes == {Size(32, 48), Size(64, 64)}
    scales: set[Any] = {params["request guidance_scale"] for params in found}
    assert scales == {3.5, 0.0, 50.0}
