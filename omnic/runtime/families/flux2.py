"""FLUX.2: how its parts run. The modules are those of diffusers and transformers; packing, guidance and the loop are
omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import Layers, TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import NONE, constant
from omnic.runtime.home import Home
from omnic.runtime.latents import noise, packed, unpacked
from omnic.runtime.pictures import from_pixels
from omnic.runtime.prompts import in_turns, padded
from omnic.runtime.schedule import Schedule, even_sigmas
from omnic.runtime.tensors import Loaded
from omnic.runtime.vae import DECODES, ENCODES, KlDecoder, KlEncoder
from omnic.runtime.weights import Checkpoint

_TOKENS = 512
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
_SYSTEM = (
    "You are an AI that reasons about image descriptions. You give structured responses focusing on object "
    "relationships, object\nattribution and actions without speculation."
)
_LEAST, _MOST, _ASPECT = 64, 1 << 20, 8  # pixels of a side, pixels in all, longer side by shorter


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded, nothing="" if _guided(components) else None)
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return Decoder(components.module("vae", skip=ENCODES), components.config("vae"))
        case "vae_encode":
            return Encoder(components.module("vae", skip=DECODES), components.config("vae"))
    raise AssertionError(part)


def _follows(components: Components) -> bool:
    """Whether a scale of guidance is an input of the transformer."""
    return bool(components.config("transformer").get("guidance_embeds", True))


def _guided(components: Components) -> bool:
    """Whether guidance is by a second forward."""
    return not _follows(components) and not components.settings.get("is_distilled", False)


class Words:
    """States of a language model a quarter, half and three quarters of the way, side by side; those of padding, too."""

    def __init__(self, components: Components) -> None:
        whole = components.config("text_encoder")
        text = whole.get("text_config", whole)
        self._mistral = "text_config" in whole
        kind = "MistralModel" if self._mistral else "Qwen3Model"
        quarter = int(text["num_hidden_layers"]) // 4
        layers = (quarter, 2 * quarter, 3 * quarter)
        self._model = Layers(components, kind, layers, config=text, prefixes=_PREFIXES)
        self._tokenizer = components.tokenizer("tokenizer", int(text["vocab_size"]))

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        if self._mistral:
            said = (("system", _SYSTEM), ("user", text.replace("[IMG]", "")))
            turns = [{"role": who, "content": [{"type": "text", "text": what}]} for who, what in said]
            written = in_turns(self._tokenizer, turns, add_generation_prompt=False)
        else:
            turns = [{"role": "user", "content": text}]
            written = in_turns(self._tokenizer, turns, add_generation_prompt=True, enable_thinking=False)
        ids, mask = padded(self._tokenizer, text, _TOKENS, field, written=written, add_special_tokens=False)
        return {"states": torch.cat(self._model(ids, mask), dim=-1)}


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`."""

    def __init__(self, components: Components) -> None:
        self._transformer = components.module("transformer")
        self._channels = int(components.config("transformer")["in_channels"])
        self._follows, self._guided = _follows(components), _guided(components)
        self._scheduler = components.config("scheduler")
        self._scale = 2 ** len(components.config("vae")["block_out_channels"])
        self._dtype = components.dtype
        self._width = int(components.config("transformer")["joint_attention_dim"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        steps, generator = int(ask.settings["steps"]), ask.generator()
        height, width = size.height // self._scale, size.width // self._scale
        schedule = Schedule(self._scheduler, steps, sigmas=even_sigmas(steps), mu=_shift(height * width, steps))
        x = packed(noise((1, self._channels, height, width), generator), 1)
        places, seen, shape = _places(0, height, width), None, None
        if (reference := ask.inputs.get("reference")) is not None:
            seen, shape = packed(reference.values, 1), reference.values.shape
            places = torch.cat([places, _places(10, *shape[-2:])])
        scale = float(ask.settings["guidance"]) if self._follows or self._guided else 1.0
        fixed = {"height": height, "width": width, "places": places, "seen": seen, "guidance": scale}
        key = (size, shape)
        if not self._guided:
            return Job((x,), (schedule,), (embeds.prompt,), NONE, key, generator, fixed)
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        branches = (embeds.prompt, embeds.negative)
        return Job((x,), (schedule,), branches, constant(scale, len(schedule)), key, generator, fixed)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        states = torch.cat([row.condition["states"] for row in rows]).to(self._dtype)
        fixed = [row.job.fixed for row in rows]
        seen = x[0] if fixed[0]["seen"] is None else torch.cat([x[0], torch.cat([f["seen"] for f in fixed])], dim=1)
        (prediction,) = self._transformer(
            hidden_states=seen.to(self._dtype),
            timestep=t / 1000,
            guidance=torch.tensor([f["guidance"] for f in fixed]) if self._follows else None,
            encoder_hidden_states=states,
            txt_ids=functional.pad(torch.arange(states.shape[1])[:, None], (3, 0)),
            img_ids=fixed[0]["places"],
            return_dict=False,
        )
        return (prediction[:, : x[0].shape[1]].float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        """Without a picture beside what is made: those come in any size."""
        words = {"states": torch.zeros(1, _TOKENS, self._width)}
        for scale in (2.0, 1.0) if self._guided else (1.0,):
            yield Ask(0, {"condition": Embeds(words, words)}, {"size": size, "steps": 1, "guidance": scale})

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(unpacked(job.x[0], job.fixed["height"], job.fixed["width"], 1))}


class Decoder(KlDecoder):
    """Latents of four places each, standardised by the statistics that the VAE saw in training."""

    def restored(self, latents: Tensor) -> Tensor:
        mean, deviation = _statistics(self._vae, self._config)
        return functional.pixel_shuffle(latents * deviation + mean, 2)


class Encoder(KlEncoder):
    """A picture in its own size, cut to whole patches, made smaller if it has more than 2²⁰ pixels."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        pixels = self._framed(ask.inputs["image"]).to(self._weight)
        found = functional.pixel_unshuffle(self._vae.encode(pixels).latent_dist.mode().float(), 2)
        mean, deviation = _statistics(self._vae, self._config)
        return {"latents": Latents((found - mean) / deviation)}

    def _framed(self, picture: NDArray[Any]) -> Tensor:
        """Raises RequestError for a picture that is too small or too narrow to be understood."""
        height, width = picture.shape[:2]
        if min(height, width) < _LEAST:
            raise RequestError(f"the picture is {width}x{height}; its sides need {_LEAST} pixels or more", "image")
        if max(height, width) > _ASPECT * min(height, width):
            raise RequestError(f"the picture is {width}x{height}: more than {_ASPECT} to 1", "image")
        scale = sqrt(_MOST / (width * height)) if width * height > _MOST else 1.0
        height, width = int(height * scale), int(width * scale)
        pixels, step = from_pixels(picture, Size(width, height)), 2 ** len(self._config["block_out_channels"])
        high, wide = height // step * step, width // step * step
        top, left = (height - high) // 2, (width - wide) // 2
        return pixels[:, :, top : top + high, left : left + wide]


def _statistics(vae: Any, config: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel, [1, channels, 1, 1]."""
    mean, variance = (t.float().view(1, -1, 1, 1) for t in (vae.bn.running_mean, vae.bn.running_var))
    return mean, (variance + config["batch_norm_eps"]).sqrt()


def _places(time: int, height: int, width: int) -> Tensor:
    """Where each patch lies, [height · width, 4]: time, row, column, and 0 for a place in a text."""
    return torch.cartesian_prod(torch.tensor([time]), torch.arange(height), torch.arange(width), torch.tensor([0]))


def _shift(tokens: int, steps: int) -> float:
    """`mu` as it was fitted for this model: linear in tokens at 10 steps and at 200, and between them in steps; above
    4,300 tokens, that of 200 steps (`compute_empirical_mu` of its reference code)."""
    at_10, at_200 = 8.73809524e-05 * tokens + 1.89833333, 0.00016927 * tokens + 0.45666666
    if tokens > 4300:
        return at_200
    slope = (at_200 - at_10) / 190.0
    return slope * steps + at_200 - 200.0 * slope
