"""Tiny families, and requests that span two sizes and two lengths of text, for the parts that engines can run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from omnic import manifest
from omnic.catalog.part import Model, Part
from omnic.catalog.resolve import ModelSource, resolve
from omnic.contract.types import Type
from omnic.expr import Size
from omnic.runtime import families
from omnic.runtime.diffusion import Ask
from omnic.runtime.engines.samples import Samples
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint

ENCODE, DRAW, PAINT = "encode", "draw", "paint"
_FEEDS = {
    ENCODE: {"text": "prompt"},
    DRAW: {"condition": "encode.embeds"},
    PAINT: {"latents": "draw.latents"},
}
_SPANNED = ("steps", "size", "frames", "seconds")


@dataclass
class Tiny:
    """A family with random weights."""

    family: str
    sizes: tuple[Size, ...] = (Size(32, 48), Size(64, 80))
    frames: tuple[int, ...] = (5, 9)
    seconds: tuple[float, ...] = (0.005, 0.01)
    parts: dict[str, str] = field(
        default_factory=lambda: {ENCODE: "text_encoder", DRAW: "denoiser", PAINT: "vae_decode"}
    )
    _loaded: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model: Model = resolve(ModelSource("random", self.family), Path())
        config = {**self.model.config, "seed": 0}
        held = manifest.Model("m", "random", self.family, self.model.family, "random", config)
        self._checkpoint = Checkpoint(held, None)

    def part(self, stage: str) -> Any:
        if stage not in self._loaded:
            load = families.load(self.model.family).load
            self._loaded[stage] = load(self._checkpoint, self.parts[stage], Home("float32"), lambda done, total: None)
        return self._loaded[stage]

    def asks(self, stage: str) -> list[Ask]:
        """Two sizes, each with a short text and the longest."""
        with torch.inference_mode():
            return list(self._samples().asks(stage))

    def _samples(self) -> Samples:
        stages = {stage: self._stage(stage, self.model.parts[part]) for stage, part in self.parts.items()}
        params = [
            {"steps": 2, "size": size, "frames": frames, "seconds": seconds}
            for size, frames, seconds in zip(self.sizes, self.frames, self.seconds, strict=True)
        ]
        return Samples(stages, _FEEDS, {"prompt": Type("text")}, params, self.part)

    def _stage(self, name: str, part: Part) -> manifest.Stage:
        return manifest.Stage(
            name, part.kind, "m", part.name,
            inputs={port.name: port.name for port in part.inputs},
            outputs={port.name: port.type for port in part.outputs},
            keys={key.name: {"param": key.name} if key.name in _SPANNED else key.default for key in part.keys},
        )  # fmt: skip


@cache
def tiny(family: str) -> Tiny:
    """Made once: what engines are installed in must be made anew."""
    return Tiny(family, (Size(16, 24), Size(24, 32))) if family == "sd3" else Tiny(family)
