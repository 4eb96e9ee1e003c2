"""The emoji painter as a denoise stage: it works on pixels, so what it gives is the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.diffusion import Ask, Embeds, Job, Row
from omnic.runtime.errors import RequestError
from omnic.runtime.families.emoji_network import Config, EmojiDiT, modulated
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.modules import filled
from omnic.runtime.schedule import Schedule, even_sigmas
from omnic.runtime.stepcache import Blocks, Cacheable
from omnic.runtime.tensors import Loaded, Shards
from omnic.runtime.weights import Checkpoint


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Painter:
    """Part `denoiser`. Raises Missing or Damaged."""
    config = checkpoint.model.config
    module = filled(
        partial(EmojiDiT, Config(**config["model"])), Shards(checkpoint.files(".safetensors")), home, loaded
    )
    return Painter(module, Config(**config["model"]), config["scheduler"], home.torch_dtype)


class Painter:
    """Satisfies `diffusion.Denoiser`, and paints a picture for each condition that comes. Captions of different
    lengths share a forward: padding is masked."""

    streams = "condition"

    def __init__(self, module: Any, config: Config, scheduler: Mapping[str, Any], dtype: torch.dtype) -> None:
        self._module, self._config, self._scheduler, self._dtype = module, config, scheduler, dtype

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        steps, scale = int(ask.settings["steps"]), float(ask.settings["guidance"])
        tokens = embeds.prompt["states"].shape[1]
        if tokens > self._config.tokens:
            raise RequestError(
                f"the prompt is {tokens} tokens long; this painter takes {self._config.tokens}", "prompt"
            )
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        generator = ask.generator()
        c = self._config
        noise = torch.randn(1, c.channels, c.size, c.size, generator=generator)
        schedule = Schedule(self._scheduler, steps, sigmas=even_sigmas(steps))
        branches = (embeds.prompt, embeds.negative)
        return Job((noise,), (schedule,), branches, constant(scale, steps), "", generator)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        longest = max(row.condition["states"].shape[1] for row in rows)
        states = [_padded(row.condition["states"], longest) for row in rows]
        masks = [functional.pad(row.condition["mask"], (0, longest - len(row.condition["mask"][0]))) for row in rows]
        text, mask = torch.cat(states).to(self._dtype), torch.cat(masks)
        return (self._module(x[0].to(self._dtype), t / 1000, text, mask).float(),)

    def finish(self, job: Job) -> Mapping[str, Any]:
        pixels = job.x[0][0].clamp(-1, 1).add(1).mul(127.5).round().to(torch.uint8)
        return {"image": pixels.permute(1, 2, 0).contiguous().cpu().numpy()}

    def modules(self) -> Mapping[str, torch.nn.Module]:
        return {"transformer": self._module}

    def blocks(self) -> Sequence[Cacheable]:
        return (Cacheable((Blocks(self._module.blocks, ("x",), "x"),), modulated),)


def _padded(states: Tensor, length: int) -> Tensor:
    return functional.pad(states, (0, 0, 0, length - states.shape[1]))
