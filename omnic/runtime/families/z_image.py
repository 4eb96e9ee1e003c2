"""Z-Image: how its parts run. Modules are those of diffusers and transformers; guidance and the loop are omnic's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import Layers, TextEncoder
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.prompts import in_turns, within
from omnic.runtime.schedule import flowing, started
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import KlVae
from omnic.runtime.weights import Checkpoint

_TOKENS = 512


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
    """States of Qwen3's last layer but one, of what a user says."""

    def __init__(self, components: Components) -> None:
        config = components.config("text_encoder")
        self._model = Layers(components, "Qwen3Model", (int(config["num_hidden_layers"]) - 1,))
        self._tokenizer = components.tokenizer("tokenizer", int(config["vocab_size"]))

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        turns = [{"role": "user", "content": text}]
        written = in_turns(self._tokenizer, turns, add_generation_prompt=True, enable_thinking=True)
        ids = within(self._tokenizer(written)["input_ids"], _TOKENS, text, field)
        (states,) = self._model(ids, torch.ones_like(ids))
        return {"states": states}


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`. Prompts of different lengths share a forward: its transformer masks padding."""

    def __init__(self, components: Components) -> None:
        self._transformer = components.module("transformer")
        self._channels = int(components.config("transformer")["in_channels"])
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** (len(components.config("vae")["block_out_channels"]) - 1)
        self._dtype = components.dtype

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        height, width = size.height // self._scale, size.width // self._scale
        schedule = flowing(self._scheduler, int(ask.settings["steps"]), height * width // 4)
        generator = ask.generator()
        x = started(schedule, (1, self._channels, height, width), generator, ask)
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        guidance = constant(1 + float(ask.settings["guidance"]), len(schedule))  # this model counts from 0
        return Job((x,), (schedule,), (embeds.prompt, embeds.negative), guidance, size, generator)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """Its time runs from noise, 0, to the picture, 1, and so does what it predicts."""
        (predictions,) = self._transformer(
            list(x[0].to(self._dtype)[:, :, None]),
            1 - t / 1000,
            [row.condition["states"][0].to(self._dtype) for row in rows],
            return_dict=False,
        )
        return (-torch.stack(predictions)[:, :, 0].float(),)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0])}
