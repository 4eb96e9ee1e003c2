"""Stable Diffusion XL: how its parts run. Modules are those of diffusers and transformers; the loop is omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import Clip, TextEncoder
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.schedule import Schedule, started
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import KlVae
from omnic.runtime.weights import Checkpoint


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            zeros = components.settings.get("force_zeros_for_empty_prompt", True)
            return TextEncoder(Words(components).encoded, nothing=None if zeros else "")
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return KlVae(components).decoder()
        case "vae_encode":
            return KlVae(components).encoder()
    raise AssertionError(part)


class Words:
    """The states of both CLIPs side by side, and the pooled text of the second. A text of more than 77 tokens is
    refused: nothing else would read the rest."""

    def __init__(self, components: Components) -> None:
        self._clips = [Clip(components), Clip(components, "text_encoder_2", "tokenizer_2")]

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        found = [clip(text, field, cut=False) for clip in self._clips]
        return {"states": torch.cat([states for states, _ in found], dim=-1), "pooled": found[-1][1]}


class Painter:
    """Satisfies `diffusion.Denoiser`. What nobody asked to keep away from is zeros, where the model was trained so."""

    def __init__(self, components: Components) -> None:
        self._unet = components.module("unet")
        self._channels = int(components.config("unet")["in_channels"])
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** (len(components.config("vae")["block_out_channels"]) - 1)
        self._dtype = components.dtype
        clip = int(components.config("text_encoder")["max_position_embeddings"])
        self._read = (clip, int(components.config("unet")["cross_attention_dim"]))
        self._pooled = int(components.config("text_encoder_2")["projection_dim"])

    def modules(self) -> Mapping[str, torch.nn.Module]:
        return {"unet": self._unet}

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        schedule = Schedule(self._scheduler, int(ask.settings["steps"]))
        generator = ask.generator()
        shape = (1, self._channels, size.height // self._scale, size.width // self._scale)
        x = started(schedule, shape, generator, ask, whole=True)
        negative = embeds.negative or {name: torch.zeros_like(t) for name, t in embeds.prompt.items()}
        guidance = constant(float(ask.settings["guidance"]), len(schedule))
        return Job((x,), (schedule,), (embeds.prompt, negative), guidance, size, generator)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        size: Size = rows[0].job.key  # type: ignore[assignment]  # what `prepare` gave
        # as trained: the size of the picture, where it is cut out of, and the size of what is cut out
        told = torch.tensor([[size.height, size.width, 0, 0, size.height, size.width]], dtype=self._dtype)
        pooled = torch.cat([row.condition["pooled"] for row in rows]).to(self._dtype)
        (prediction,) = self._unet(
            x[0].to(self._dtype),
            t,
            encoder_hidden_states=torch.cat([row.condition["states"] for row in rows]).to(self._dtype),
            added_cond_kwargs={"text_embeds": pooled, "time_ids": told.expand(len(rows), -1)},
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        words = {"states": torch.zeros(1, *self._read), "pooled": torch.zeros(1, self._pooled)}
        for scale in (2.0, 1.0):
            yield Ask(0, {"condition": Embeds(words, words)}, {"size": size, "steps": 1, "guidance": scale})

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0])}
