"""FLUX.1: how its parts run. The modules are those of diffusers and transformers; packing, guidance and the loop are
omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import T5, Clip, TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import NONE, constant
from omnic.runtime.home import Home
from omnic.runtime.latents import packed, unpacked
from omnic.runtime.schedule import flowing, started
from omnic.runtime.stepcache import Cacheable, cacheable
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import KlVae
from omnic.runtime.weights import Checkpoint


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded, nothing=None)
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return KlVae(components).decoder()
        case "vae_encode":
            return KlVae(components).encoder()
    raise AssertionError(part)


class Words:
    """T5's states, and CLIP's pooled text. CLIP reads the first 77 tokens alone: T5 beside it reads them all."""

    def __init__(self, components: Components) -> None:
        tokens = 512 if components.config("transformer").get("guidance_embeds", False) else 256
        self._clip = Clip(components)
        self._t5 = T5(components, "text_encoder_2", "tokenizer_2", tokens)

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        states = self._t5(text, field)
        return {"states": states, "pooled": self._clip(text, field, cut=True)[1]}


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`."""

    def __init__(self, components: Components) -> None:
        self._transformer = components.module("transformer")
        self._follows = bool(components.config("transformer").get("guidance_embeds", False))
        self._channels = int(components.config("transformer")["in_channels"]) // 4
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** (len(components.config("vae")["block_out_channels"]) - 1)
        self._dtype = components.dtype
        config = components.config("transformer")
        self._read = (512 if self._follows else 256, int(config["joint_attention_dim"]))
        self._pooled = int(config["pooled_projection_dim"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        height, width = size.height // self._scale, size.width // self._scale
        schedule = flowing(self._scheduler, int(ask.settings["steps"]), height * width // 4)
        generator = ask.generator()
        x = started(schedule, (1, self._channels, height, width), generator, ask, packed)
        scale = float(ask.settings["true_guidance"])
        fixed = {
            "height": height,
            "width": width,
            "places": _places(height // 2, width // 2),
            "guidance": float(ask.settings["guidance"]) if self._follows else None,
        }
        if scale == 1:
            return Job((x,), (schedule,), (embeds.prompt,), NONE, size, generator, fixed)
        if embeds.negative is None:
            raise RequestError(f"true guidance of {scale:g} needs something to keep away from", "negative_prompt")
        branches = (embeds.prompt, embeds.negative)
        return Job((x,), (schedule,), branches, constant(scale, len(schedule)), size, generator, fixed)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        states = torch.cat([row.condition["states"] for row in rows]).to(self._dtype)
        scales = [row.job.fixed["guidance"] for row in rows]
        (prediction,) = self._transformer(
            hidden_states=x[0].to(self._dtype),
            timestep=t / 1000,
            guidance=torch.tensor(scales) if self._follows else None,
            pooled_projections=torch.cat([row.condition["pooled"] for row in rows]).to(self._dtype),
            encoder_hidden_states=states,
            txt_ids=torch.zeros(states.shape[1], 3),
            img_ids=rows[0].job.fixed["places"],
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        words = {"states": torch.zeros(1, *self._read), "pooled": torch.zeros(1, self._pooled)}
        for scale in (2.0, 1.0):
            settings = {"size": size, "steps": 1, "guidance": 1.0, "true_guidance": scale}
            yield Ask(0, {"condition": Embeds(words, words)}, settings)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(unpacked(job.x[0], job.fixed["height"], job.fixed["width"]))}

    def blocks(self) -> Sequence[Cacheable]:
        return (Cacheable(cacheable(self._transformer).lists, _modulated, _CHANGE),)


_CHANGE = (4.98651651e2, -2.83781631e2, 5.58554382e1, -3.82021401, 2.64230861e-1)
"""What TeaCache's authors measured on FLUX.1 [dev]: how far the output moves when the first block's input moves."""


def _modulated(block: torch.nn.Module, given: Mapping[str, Any]) -> Tensor:
    norm: Any = block.norm1
    found: Tensor = norm(given["hidden_states"], emb=given["temb"])[0]
    return found


def _places(height: int, width: int) -> Tensor:
    """Where each patch lies: [height · width, 3], of which the first is always 0."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([torch.zeros(height, width), rows, columns], dim=-1).reshape(-1, 3)
