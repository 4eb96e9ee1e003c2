"""omnic's parts beside diffusers' own pipeline, on the same tiny random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2VLImageProcessorPil

from omnic import manifest
from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime import families
from omnic.runtime.components import built
from omnic.runtime.diffusion import Ask, Job, advance, predict
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint
from tests.families.diffusion.fixtures import Fixture
from tests.families.diffusion.tokenizers import tokenizer


class Pair:
    """A tiny model on disk: diffusers' pipeline of it, and omnic's parts, fp32."""

    def __init__(self, fixture: Fixture, folder: Path, *, pipeline: str | None = None, **options: Any) -> None:
        """`options` replace components or settings of the pipeline, such as tokenizers of another kind."""
        import diffusers

        torch.manual_seed(0)
        parts = {name: self._component(held) for name, held in fixture.components.items()}
        kind = getattr(diffusers, pipeline or fixture.pipeline)
        self.pipe = kind(**(parts | dict(fixture.settings) | options))
        self.pipe.set_progress_bar_config(disable=True)
        for part in self.pipe.components.values():
            if isinstance(part, torch.nn.Module):
                part.eval()
        self.pipe.save_pretrained(folder)
        self.model = resolve(ModelSource("path", str(folder)), folder)
        held = manifest.Model(
            "m", "path", str(folder), self.model.family, self.model.format, self.model.config, self.model.files
        )
        self.checkpoint = Checkpoint(held, folder)
        self._parts: dict[str, Any] = {}

    @staticmethod
    def _component(held: Any) -> Any:
        if "Tokenizer" in held.kind:
            return tokenizer(held.kind)
        if held.kind == "Qwen2VLProcessor":  # the half of it that needs no torchvision
            return Qwen2VLImageProcessorPil()
        if not held.tensors:  # a scheduler, a guider
            import diffusers

            return getattr(diffusers, held.kind).from_config(held.config)
        module = built(held.library, held.kind, dict(held.config))
        for name, parameter in module.named_parameters():  # gates and projections that start at zero hide mistakes
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.1 if name.endswith("bias") else parameter[0].numel() ** -0.5)
        for name, buffer in module.named_buffers():  # so do statistics of none
            if name.endswith(("running_mean", "latents_mean")):
                buffer.normal_()
            elif name.endswith(("running_var", "latents_std")):
                buffer.uniform_(0.5, 2.0)
        return module

    def part(self, name: str) -> Any:
        if name not in self._parts:
            load = families.load(self.model.family).load
            self._parts[name] = load(self.checkpoint, name, Home("float32"), lambda done, total: None)
        return self._parts[name]

    def run(self, part: str, inputs: Mapping[str, Any], seed: int = 0, **settings: Any) -> Any:
        """What a transform gives, in the end."""
        with torch.inference_mode():
            found = self.part(part).run(Ask(seed, inputs, settings))
            return found if isinstance(found, Mapping) else {name: v for part in found for name, v in part.items()}

    def prepared(self, inputs: Mapping[str, Any], seed: int = 0, **settings: Any) -> Job:
        with torch.inference_mode():
            return self.part("denoiser").prepare(Ask(seed, inputs, settings))

    def finished(self, *jobs: Job) -> list[Any]:
        """What the denoiser gives for jobs that run in one batch."""
        denoiser = self.part("denoiser")
        with torch.inference_mode():
            while any(job.step < job.steps for job in jobs):
                running = [job for job in jobs if job.step < job.steps]
                for job, predictions in zip(running, predict(denoiser.forward, running), strict=True):
                    advance(job, predictions)
            return [denoiser.finish(job) for job in jobs]

    def decoded(self, latents: Any, part: str = "vae_decode") -> torch.Tensor:
        """In 0..1, as diffusers' `output_type="pt"` has it."""
        with torch.inference_mode():
            return (self.part(part).decode(latents.values) / 2 + 0.5).clamp(0, 1)


def generator(seed: int) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)
