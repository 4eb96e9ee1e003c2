"""Lumina-Image 2.0: how its parts run. Modules are those of diffusers and transformers; the loop is omnic's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import Layers, TextEncoder
from omnic.runtime.guidance import Guidance
from omnic.runtime.home import Home
from omnic.runtime.latents import padded
from omnic.runtime.prompts import within
from omnic.runtime.schedule import flowing, started
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import KlVae
from omnic.runtime.weights import Checkpoint

_TOKENS = 256
_SYSTEM = (
    "You are an assistant designed to generate superior images with the superior degree of image-text alignment based "
    "on textual prompts or user prompts. <Prompt Start> "
)


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
    """States of Gemma's last layer but one. A prompt follows the words the model was trained with, a negative one does
    not."""

    def __init__(self, components: Components) -> None:
        config = components.config("text_encoder")
        self._model = Layers(components, "Gemma2Model", (int(config["num_hidden_layers"]) - 1,))
        self._tokenizer = components.tokenizer("tokenizer", int(config["vocab_size"]))

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        written = _SYSTEM + text if field == "prompt" else text
        ids = self._tokenizer(written)["input_ids"] or [self._tokenizer.pad_token_id]
        tokens = within(ids, _TOKENS, text, field)
        (states,) = self._model(tokens, torch.ones_like(tokens))
        return {"states": states}


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`. Prompts of different lengths share a forward: padding is masked."""

    def __init__(self, components: Components) -> None:
        self._transformer = components.module("transformer")
        self._channels = int(components.config("transformer")["in_channels"])
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** (len(components.config("vae")["block_out_channels"]) - 1)
        self._dtype = components.dtype

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        # where a scheduler shifts by tokens, this model's pipeline counts channels; as released, it shifts by neither
        schedule = flowing(self._scheduler, int(ask.settings["steps"]), self._channels)
        generator = ask.generator()
        shape = (1, self._channels, size.height // self._scale, size.width // self._scale)
        x = started(schedule, shape, generator, ask)
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        scale, until, count = float(ask.settings["guidance"]), float(ask.settings["truncation"]), len(schedule)
        scales = tuple(scale if (step + 1) / count <= until else 1.0 for step in range(count))
        guidance = Guidance(2, scales, keep_norm=True)
        return Job((x,), (schedule,), (embeds.prompt, embeds.negative), guidance, size, generator)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """Its time runs from noise, 0, to the picture, 1, and so does what it predicts."""
        states, mask = padded([row.condition["states"] for row in rows])
        (prediction,) = self._transformer(
            hidden_states=x[0].to(self._dtype),
            timestep=1 - t / 1000,
            encoder_hidden_states=states.to(self._dtype),
            encoder_attention_mask=mask,
            return_dict=False,
        )
        return (-prediction.float(),)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0])}
