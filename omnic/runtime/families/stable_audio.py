"""Stable Audio Open: how its parts run. The modules are those of diffusers and transformers; guidance and the loop are
omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.latents import noise
from omnic.runtime.modules import held
from omnic.runtime.prompts import padded
from omnic.runtime.schedule import Schedule
from omnic.runtime.tensors import Loaded
from omnic.runtime.weights import Checkpoint

_TOKENS = 128
_TEXT = ("text_projection.",)
_NUMBERS = ("start_number_conditioner.", "end_number_conditioner.")


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded, nothing=None)
        case "denoiser":
            return Maker(components)
        case "vae_decode":
            return Speaker(components)
    raise AssertionError(part)


class Words:
    """States of T5, brought to the transformer's width; those of padding are zero."""

    def __init__(self, components: Components) -> None:
        self._t5: Any = components.module("text_encoder")
        self._projection: Any = components.module("projection_model", skip=_NUMBERS)
        words = int(components.config("text_encoder")["vocab_size"])
        self._tokenizer = components.tokenizer("tokenizer", words)

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        ids, mask = (t.to(held(self._t5).device) for t in padded(self._tokenizer, text, _TOKENS, field))
        kept = mask.unsqueeze(-1)
        states = self._t5(input_ids=ids, attention_mask=mask)[0]
        return {"states": self._projection.text_projection(states * kept) * kept}


class Maker(OneTransformer):
    """Satisfies `diffusion.Denoiser`. All sounds are made equally long; how long one is to be is a condition, and the
    rest of it, silence, is cut off."""

    def __init__(self, components: Components) -> None:
        self._transformer: Any = components.module("transformer")
        self._numbers: Any = components.module("projection_model", skip=_TEXT)
        self._scheduler = components.config("scheduler")
        config, vae = components.config("transformer"), components.config("vae")
        self._shape = (1, int(config["in_channels"]), int(config["sample_size"]))
        self._turned = int(config["attention_head_dim"]) // 2  # of a head, what positions turn
        self._longest = self._shape[2] * prod(vae["downsampling_ratios"]) / int(vae["sampling_rate"])
        self._dtype = components.dtype
        self._width = int(components.config("projection_model")["conditioning_dim"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        seconds, generator = float(ask.settings["seconds"]), ask.generator()
        if not 0 < seconds <= self._longest:
            raise RequestError(f"the sound can have up to {self._longest:g} seconds, not {seconds:g}", "audio_end_in_s")
        schedule = Schedule(self._scheduler, int(ask.settings["steps"]))
        x = noise(self._shape, generator) * schedule.first_sigma
        ends = zip(self._conditioners(), (0.0, seconds), strict=True)
        times = [of(torch.tensor([at]).to(held(of).device)).cpu() for of, at in ends]
        whole = torch.cat(times, 2)
        prompt = torch.cat([embeds.prompt["states"], *times], 1)
        # where nothing is to be kept away from, not even the length is told
        beside = torch.zeros_like(prompt)
        if embeds.negative is not None:
            beside = torch.cat([embeds.negative["states"], *times], 1)
        branches = tuple({"states": states, "times": whole} for states in (prompt, beside))
        guidance = constant(float(ask.settings["guidance"]), len(schedule))
        return Job((x,), (schedule,), branches, guidance, (), generator, {"seconds": seconds})

    def _conditioners(self) -> tuple[Any, Any]:
        return self._numbers.start_number_conditioner, self._numbers.end_number_conditioner

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        from diffusers.models.embeddings import get_1d_rotary_pos_embed

        states, times = (torch.cat([row.condition[name] for row in rows]) for name in ("states", "times"))
        turns: Any = get_1d_rotary_pos_embed(
            self._turned, self._shape[2] + times.shape[1], use_real=True, repeat_interleave_real=False
        )
        (prediction,) = self._transformer(
            x[0].to(self._dtype),
            t,
            encoder_hidden_states=states.to(self._dtype),
            global_hidden_states=times.to(self._dtype),
            rotary_embedding=turns,
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        words = {"states": torch.zeros(1, _TOKENS, self._width)}
        for scale in (2.0, 1.0):
            settings = {"seconds": self._longest / 2, "steps": 2, "guidance": scale}
            yield Ask(0, {"condition": Embeds(words, words)}, settings)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0], job.fixed)}


class Speaker:
    """Latents to sound. Satisfies `diffusion.Transform`."""

    def __init__(self, components: Components) -> None:
        self._vae: Any = components.module("vae", skip=("encoder.",))
        self._rate = int(components.config("vae")["sampling_rate"])
        self._dtype = components.dtype

    def run(self, ask: Ask) -> Mapping[str, Any]:
        """One channel, the mean of those that the VAE makes."""
        return {"audio": self.decode(ask.inputs["latents"])[0].mean(0).cpu().numpy()}

    def bodies(self) -> Mapping[str, torch.nn.Module]:
        """What does the work."""
        return {"decoder": self._vae.decoder}

    def decode(self, latents: Latents) -> Tensor:
        """[1, C, length] -> [1, channels, samples], float32, as long as was asked for."""
        sound: Tensor = self._vae.decode(latents.values.to(self._dtype)).sample
        return sound[:, :, : int(latents.facts["seconds"] * self._rate)].float()
