"""Wan 2.2: how its parts run. The modules are those of diffusers and transformers; experts, the first frame, guidance
and the loop are omnic's."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.expr import Size
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import T5, TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import Guidance, constant
from omnic.runtime.home import Home
from omnic.runtime.latents import noise
from omnic.runtime.prompts import cleaned
from omnic.runtime.schedule import Schedule
from omnic.runtime.stepcache import Cacheable, cacheable
from omnic.runtime.tensors import Loaded
from omnic.runtime.video_vae import VideoVae
from omnic.runtime.weights import Checkpoint

_TOKENS = 512
_TRIED = 20  # steps that come to both experts


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            t5 = T5(components, "text_encoder", "tokenizer", _TOKENS)
            return TextEncoder(lambda text, field: {"states": t5.alone(cleaned(text), field)})
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return VideoVae(components).frames()
        case "vae_encode":
            return VideoVae(components).first_frame(followed=not components.settings.get("expand_timesteps"))
    raise AssertionError(part)


class Painter:
    """Satisfies `diffusion.Denoiser`. Where there are two experts, `high` takes the steps of noise from `boundary` on
    and `low` the rest. A first frame lies beside the noise as further channels, or takes the place of its first frame.
    """

    def __init__(self, components: Components) -> None:
        settings = components.settings
        self._two = settings.get("boundary_ratio") is not None and "transformer_2" in components
        names = {"high": "transformer", "low": "transformer_2"} if self._two else {None: "transformer"}
        self._experts: Mapping[Hashable, torch.nn.Module] = {
            phase: components.module(name) for phase, name in names.items()
        }
        self._scheduler, self._vae = components.config("scheduler"), components.config("vae")
        self._dtype = components.dtype
        transformer = components.config("transformer")
        self._beside = transformer["in_channels"] != transformer["out_channels"]
        self._expand = bool(settings.get("expand_timesteps"))
        self._width, self._boundary = int(transformer["text_dim"]), settings.get("boundary_ratio")
        self._beyond = int(transformer["in_channels"]) - int(transformer["out_channels"])  # channels of a first frame

    def modules(self) -> Mapping[str, torch.nn.Module]:
        return dict(zip(("transformer", "transformer_2"), self._experts.values(), strict=False))

    def blocks(self) -> Sequence[Cacheable]:
        return [cacheable(expert) for expert in self._experts.values()]

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        frames, count = int(ask.settings["frames"]), int(ask.settings["steps"])
        time, space = int(self._vae["scale_factor_temporal"]), int(self._vae["scale_factor_spatial"])
        shape = ((frames - 1) // time + 1, size.height // space, size.width // space)
        schedule = Schedule(self._scheduler, count)
        phases, guidance = self._phases(schedule, ask.settings)
        generator = ask.generator()
        x = noise((1, int(self._vae["z_dim"]), *shape), generator) * schedule.first_sigma
        if embeds.negative is None:
            raise RequestError("the encoder gave nothing to keep away from", "negative_prompt")
        branches = tuple({"states": _filled(part["states"])} for part in (embeds.prompt, embeds.negative))
        first = self._first(ask, shape, time)
        fixed = {} if first is None else {"first": first}
        return Job((x,), (schedule,), branches, guidance, (size, frames, *fixed), generator, fixed, phases)

    def _phases(self, schedule: Schedule, settings: Mapping[str, Any]) -> tuple[tuple[str, ...], Guidance]:
        if not self._two:
            return (), constant(float(settings["guidance"]), len(schedule))
        boundary = float(settings["boundary"]) * float(schedule.config["num_train_timesteps"])
        phases = tuple("high" if t >= boundary else "low" for t in schedule.timesteps)
        return phases, Guidance(2, tuple(float(settings[f"{phase}_guidance"]) for phase in phases))

    def _first(self, ask: Ask, shape: tuple[int, ...], time: int) -> Tensor | None:
        """The first frame's latents; with the mask of what is given before them where they lie beside the noise."""
        given: Latents | None = ask.inputs.get("first_frame")
        if given is None:
            return None
        wanted = shape if self._beside else (1, *shape[1:])
        if tuple(given.values.shape[2:]) != wanted:
            raise RequestError("the first frame was encoded for a video of another size or length", "size")
        if not self._beside:
            return given.values
        mask = torch.zeros(1, time, *shape)
        mask[:, :, 0] = 1
        return torch.cat([mask, given.values], 1)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        job = rows[0].job
        expert: Any = self._experts[job.phases[job.step] if self._two else None]
        latents = x[0]
        given = [row.job.fixed["first"] for row in rows] if "first" in job.fixed else None
        if given and self._beside:
            latents = torch.cat([latents, torch.cat(given)], 1)
        elif given:
            latents = torch.cat([torch.cat(given), latents[:, :, 1:]], 2)
        if self._expand:
            frames, height, width = latents.shape[2:]
            t = t[:, None].repeat(1, frames * (height // 2) * (width // 2))
            if given:
                t[:, : (height // 2) * (width // 2)] = 0
        (prediction,) = expert(
            hidden_states=latents.to(self._dtype),
            timestep=t,
            encoder_hidden_states=torch.cat([row.condition["states"] for row in rows]).to(self._dtype),
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        words = {"states": torch.zeros(1, 1, self._width)}
        inputs: dict[str, Any] = {"condition": Embeds(words, words)}
        if self._beside and size is not None:
            time, space = int(self._vae["scale_factor_temporal"]), int(self._vae["scale_factor_spatial"])
            shape = ((frames - 1) // time + 1, size.height // space, size.width // space)
            inputs["first_frame"] = Latents(torch.zeros(1, self._beyond - time, *shape))
        for scale in (2.0, 1.0):
            scales = dict.fromkeys(("guidance", "high_guidance", "low_guidance"), scale)
            settings = {"size": size, "frames": frames, "steps": _TRIED, "boundary": self._boundary, **scales}
            yield Ask(0, inputs, settings)

    def finish(self, job: Job) -> Mapping[str, Any]:
        (x,) = job.x
        if "first" in job.fixed and not self._beside:
            x = torch.cat([job.fixed["first"], x[:, :, 1:]], 2)
        return {"latents": Latents(x)}


def _filled(states: Tensor) -> Tensor:
    """[1, tokens, width] with zeros behind, up to what the transformer was trained to see."""
    return functional.pad(states, (0, 0, 0, _TOKENS - states.shape[1]))
