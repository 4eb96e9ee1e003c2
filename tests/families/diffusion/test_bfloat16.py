"""Families of pictures in bfloat16, as released models are held: every part takes what the one before it gives, from
noise and from a picture, and what comes out stays near that of float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from omnic import manifest
from omnic.catalog.part import Model
from omnic.expr import Size
from omnic.runtime import families
from omnic.runtime.diffusion import Ask, advance, predict
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint
from tests.families.diffusion.test_costs import RANDOM

SIZE = Size(64, 64)
PICTURE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)


def _draws(model: Model) -> bool:
    """Whether it makes pictures from text alone."""
    decode, encoder = model.parts.get("vae_decode"), model.parts.get("text_encoder")
    gives = decode is not None and decode.output("image") is not None
    return gives and encoder is not None and encoder.input("image") is None


DRAW = {name: model for name, model in RANDOM.items() if _draws(model)}


@pytest.mark.parametrize("name", DRAW)
def test_near_the_picture_of_float32(name: str) -> None:
    wide, narrow = ([made.astype(np.float32) for made in drawn(DRAW[name], dtype)] for dtype in ("fp32", "bf16"))
    for one, other in zip(wide, narrow, strict=True):
        assert one.shape == (SIZE.height, SIZE.width, 3)
        assert one.std() > 5
        assert 0 < np.abs(one - other).mean() < one.std() / 4, "pictures of two seeds differ by more than one.std()"


def drawn(model: Model, precision: str) -> list[Any]:
    """A picture made from noise, and one from a picture where the model takes one."""
    held = manifest.Model("m", "random", model.family, model.family, model.format, model.config)

    def part(name: str) -> Any:
        held_in = precision if precision in model.parts[name].precisions else model.parts[name].precisions[0]
        dtype = {"fp32": "float32", "bf16": "bfloat16"}[held_in]
        return families.load(model.family).load(Checkpoint(held, None), name, Home(dtype), lambda done, total: None)

    def run(name: str, **inputs: Any) -> Mapping[str, Any]:
        found: Mapping[str, Any] = part(name).run(Ask(7, inputs, {"size": SIZE}))
        return found

    with torch.inference_mode():
        embeds = run("text_encoder", text="two red cats on a mat", negative="blue")["embeds"]
        port = next((p for p in ("latents", "reference") if model.parts["denoiser"].input(p)), None)
        given = [{}, {port: run("vae_encode", image=PICTURE)["latents"]}] if port else [{}]
        denoiser = part("denoiser")
        jobs = [denoiser.prepare(Ask(7, {"condition": embeds, **more}, _settings(model, more))) for more in given]
        for job in jobs:
            while job.step < job.steps:
                advance(job, predict(denoiser.forward, [job])[0])
        decoder = part("vae_decode")
        return [decoder.run(Ask(7, dict(denoiser.finish(job)), {}))["image"] for job in jobs]


def _settings(model: Model, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys' defaults, with guidance by a second forward."""
    defaults = {key.name: key.default for key in model.parts["denoiser"].keys}
    strength = {"strength": 0.6} if "latents" in given else {}
    return (
        defaults
        | {"size": SIZE, "steps": 2}
        | {n: 2.0 for n in ("guidance", "true_guidance") if n in defaults}
        | strength
    )
