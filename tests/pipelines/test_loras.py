"""Adapters from the source to the picture: fields of requests, the lock, pipelines inside pipelines, generated code."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic.contract.domains import OutOfDomain
from omnic.diagnostics import Sink
from omnic.driver import build
from tests.pipelines.built import Ask, running
from tests.runtime.adapters import halves, written

INNER = """
pipeline inner {
  model m    = random("qwen_image")
  model neon = path("neon.safetensors")
  model an_adapter_with_a_long_name = path("ink.safetensors")
  input  prompt: text
  output image:  image
  stage read  = m.text_encoder
  stage paint = m.denoiser { size = 32x48, steps = 2, loras = [neon, an_adapter_with_a_long_name] }
  stage show  = m.vae_decode
  prompt        -> read.text
  read.embeds   -> paint.condition
  paint.latents -> show.latents
  show.image    -> image
}
"""
OUTER = """
import "inner.omni"
pipeline outer {
  input  prompt: text
  output image: image
  stage draw = inner
  prompt -> draw.prompt
  draw.image -> image
}
"""
LAYERS = {
    "transformer.transformer_blocks.0.attn.to_q": (32, 32),
    "transformer.transformer_blocks.1.attn.to_k": (32, 32),
}


@pytest.fixture(scope="module", params=["inner", "outer"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    for seed, name in enumerate(("neon", "ink")):
        written(folder, name, halves(LAYERS, 4, seed=seed, size=2.0))
    for name, text in (("inner", INNER), ("outer", OUTER)):
        (folder / f"{name}.omni").write_text(text)
    sink = Sink()
    assert build(folder / f"{request.param}.omni", folder / "build", sink) is not None, sink.diagnostics
    return folder / "build"


@pytest.fixture(scope="module")
def drawn(built: Path) -> Iterator[Ask[Any]]:
    name = json.loads((built / "manifest.json").read_bytes())["class_name"]
    with running(built, name) as ask:
        yield ask


def image(ask: Ask[Any], *requests: dict[str, Any]) -> list[bytes]:
    async def run(pipeline: Any) -> list[bytes]:
        calls = [pipeline.images_generations_image(prompt="a red cat", seed=1, **one) for one in requests]
        found = await asyncio.gather(*(call.result() for call in calls))
        return [np.asarray(one["image"]).tobytes() for one in found]

    found: list[bytes] = ask(run)
    return found


def test_a_request_names_an_adapter_and_others_beside_it_are_unharmed(drawn: Ask[Any]) -> None:
    long = "an_adapter_with_a_long_name"
    requests: list[dict[str, Any]] = [{}, {"lora": "neon"}, {"lora": long}, {"lora": "neon", "lora_scale": 0.0}]
    alone = [image(drawn, one)[0] for one in requests]
    assert len(set(alone)) == 3
    assert alone[3] == alone[0], "of scale 0 nothing is left"
    assert image(drawn, *requests) == alone


def test_what_is_not_declared_is_refused_by_the_field(drawn: Ask[Any]) -> None:
    for request in ({"lora": "chrome"}, {"lora_scale": 9.0}):
        with pytest.raises(OutOfDomain) as refused:
            image(drawn, request)
        assert refused.value.field == next(iter(request))


def test_adapters_are_in_the_lock_and_in_the_schema(built: Path) -> None:
    lock = json.loads((built / "omnic.lock").read_bytes())
    files = [list(model["files"]) for name, model in lock["models"].items() if name.endswith("neon")]
    assert files == [["neon.safetensors"]]
    schema = (built / "openapi.json").read_text()
    assert '"lora"' in schema
    assert '"lora_scale"' in schema


def test_the_generated_code_is_as_ruff_would_leave_it(built: Path) -> None:
    config = Path(__file__).parents[1] / "golden" / "ruff.toml"
    command = [sys.executable, "-m", "ruff", "format", "--check", "--config", str(config), str(built / "pipeline.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
