"""Shipped diffusion pipelines with tiny random weights give on a GPU what they give on a CPU, in float32."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omnic import driver
from omnic.diagnostics import Sink
from omnic.runtime.families import qwen_image_edit
from tests.pipelines.built import PIPELINES, running
from tests.pipelines.test_diffusion import IDS, SHIPPED, Shipped

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def source_of(shipped: Shipped, folder: Path) -> tuple[Path, dict[str, str]]:
    """The pipeline made tiny, and the part of each of its stages."""
    source = folder / f"{shipped.name}.omni"
    text = (PIPELINES / f"{shipped.name}.omni").read_text().partition("\ndeploy ")[0]
    for pattern, tiny in shipped.tiny.items():
        text = re.sub(pattern, tiny, text)
    source.write_text(text)
    return source, dict(re.findall(r"^ +stage (\w+) += \w+\.(\w+)", text, re.MULTILINE))


def made(shipped: Shipped, folder: Path, target: str) -> np.ndarray[Any, Any]:
    source, stages = source_of(shipped, folder)
    wide = tuple(f"{name}.precision=fp32" for name in stages)
    sink = Sink()
    assert driver.build(source, folder / target, sink, target=target, sets=wide) is not None, list(sink)

    async def work(pipeline: Any) -> Any:
        return (await getattr(pipeline, shipped.method)(**shipped.request, seed=1).result())[shipped.output]

    with running(folder / target, shipped.class_name) as ask:
        return np.asarray(ask(work), dtype=np.float32)


@pytest.mark.parametrize("shipped", SHIPPED, ids=IDS)
def test_the_same_on_a_gpu(shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qwen_image_edit, "AREA", 64 * 64)  # the models are tiny
    with torch.backends.cudnn.flags(allow_tf32=False):
        here, there = (made(shipped, tmp_path, target) for target in ("cpu", "h200"))
    assert here.shape == there.shape
    scale = 1.0 if shipped.output == "sound" else 255.0
    assert np.abs(here - there).max() <= 0.01 * scale


def drawn(shipped: Shipped, folder: Path, engine: str) -> tuple[np.ndarray[Any, Any], list[dict[str, float]]]:
    """What bf16 makes with an engine, and the counters of the stage before the request and after two."""
    source, stages = source_of(shipped, folder)
    (name,) = (name for name, part in stages.items() if part == "denoiser")
    sets, sink = (f"{name}.precision=bf16", f"{name}.engine={engine}"), Sink()
    assert driver.build(source, folder / engine, sink, target="h200", sets=sets) is not None, list(sink)

    async def work(pipeline: Any) -> Any:
        stage = next(stage for stage in pipeline.stages if stage.name == name)
        counters = [stage.stats()]
        for _ in range(2):
            found = (await getattr(pipeline, shipped.method)(**shipped.request, seed=1).result())[shipped.output]
        return found, [*counters, stage.stats()]

    with running(folder / engine, shipped.class_name) as ask:
        found, counters = ask(work)
        return np.asarray(found, dtype=np.float32), counters


REPLAYED = [
    s for s in SHIPPED if s.name.split("_")[0] in ("flux", "flux2", "sd3", "sdxl", "wan22", "ltx2", "cogvideox")
]


@pytest.mark.parametrize("engine", ["cuda_graph", "inductor"])
@pytest.mark.parametrize("shipped", REPLAYED, ids=[s.name for s in REPLAYED])
def test_graphs_make_what_eager_steps_make(shipped: Shipped, engine: str, tmp_path: Path) -> None:
    if engine == "inductor" and shipped.name not in ("flux", "wan22_t2v"):
        pytest.skip("compiling takes long, and blocks of two families show it")
    wanted, _ = drawn(shipped, tmp_path, "eager")
    found, (before, after) = drawn(shipped, tmp_path, engine)
    assert np.abs(found - wanted).mean() <= (2 if engine == "cuda_graph" else 4)  # of 255
    assert before["graphs"] > 0
    assert after["graphs"] == before["graphs"]
    assert after.get("compilations") == before.get("compilations")
    if shipped.name != "flux2_klein_edit":  # what it sees beside what it makes is of any size
        assert (after["uncaptured"], after["capture_failures"]) == (0, 0)
