"""Stable Diffusion 3, 3.5: how their parts run. Modules are those of diffusers and transformers; the loop is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import T5, Clip, TextEncoder
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.schedule import Schedule, shift_of, started
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import KlVae
from omnic.runtime.weights import Checkpoint

_T5_TOKENS = 256


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded)
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return KlVae(components).decoder()
        case "vae_encode":
            return KlVae(components).encoder()
    raise AssertionError(part)


class Words:
    """The states of both CLIPs side by side, those of T5 after them, and the pooled text of both CLIPs. Beside T5, CLIP
    reads the first 77 tokens alone; without it, a longer text is refused, and zeros stand in its place."""

    def __init__(self, components: Components) -> None:
        self._clips = [Clip(components), Clip(components, "text_encoder_2", "tokenizer_2")]
        self._t5 = None
        if "text_encoder_3" in components:
            self._t5 = T5(components, "text_encoder_3", "tokenizer_3", _T5_TOKENS)
        self._width = int(components.config("transformer")["joint_attention_dim"])

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        found = [clip(text, field, cut=self._t5 is not None) for clip in self._clips]
        short = torch.cat([states for states, _ in found], dim=-1)
        short = functional.pad(short, (0, self._width - short.shape[-1]))
        long = short.new_zeros(1, _T5_TOKENS, self._width) if self._t5 is None else self._t5(text, field)
        return {
            "states": torch.cat([short, long.to(short.dtype)], dim=1),
            "pooled": torch.cat([pooled for _, pooled in found], dim=-1),
        }


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`."""

    def __init__(self, components: Components) -> None:
        config = components.config("transformer")
        self._transformer = components.module("transformer")
        self._channels, self._patch = int(config["in_channels"]), int(config["patch_size"])
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** (len(components.config("vae")["block_out_channels"]) - 1)
        self._dtype = components.dtype
        clip = int(components.config("text_encoder")["max_position_embeddings"])
        self._read = (clip + _T5_TOKENS, int(config["joint_attention_dim"]))
        self._pooled = int(config["pooled_projection_dim"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        height, width = size.height // self._scale, size.width // self._scale
        shift = {}
        if self._scheduler.get("use_dynamic_shifting"):
            shift["mu"] = shift_of(height * width // self._patch**2, self._scheduler)
        schedule = Schedule(self._scheduler, int(ask.settings["steps"]), **shift)
        generator = ask.generator()
        x = started(schedule, (1, self._channels, height, width), generator, ask)
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        guidance = constant(float(ask.settings["guidance"]), len(schedule))
        return Job((x,), (schedule,), (embeds.prompt, embeds.negative), guidance, size, generator)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        (prediction,) = self._transformer(
            hidden_states=x[0].to(self._dtype),
            timestep=t,
            encoder_hidden_states=torch.cat([row.condition["states"] for row in rows]).to(self._dtype),
            pooled_projections=torch.cat([row.condition["pooled"] for row in rows]).to(self._dtype),
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        words = {"states": torch.zeros(1, *self._read), "pooled": torch.zeros(1, self._pooled)}
        for scale in (2.0, 1.0):
            yield Ask(0, {"condition": Embeds(words, words)}, {"size": size, "steps": 1, "guidance": scale})

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0])}
