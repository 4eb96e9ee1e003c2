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


def made(shipped: Shipped, folder: Path, target: str) -> np.ndarray[Any, Any]:
    source = folder / f"{shipped.name}.omni"
    text = (PIPELINES / f"{shipped.name}.omni").read_text().partition("\ndeploy ")[0]
    for pattern, tiny in shipped.tiny.items():
        text = re.sub(pattern, tiny, text)
    source.write_text(text)
    wide = tuple(f"{name}.precision=fp32" for name in re.findall(r"^ +stage (\w+) += \w+\.", text, re.MULTILINE))
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
