"""LTX-2: how its parts run. The modules are those of diffusers and transformers; the two schedules, guidance and the
loop are omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import TextEncoder
from omnic.runtime.families.ltx2_decoders import Screen, Speaker
from omnic.runtime.guidance import NONE, Guidance
from omnic.runtime.home import Home
from omnic.runtime.latents import noise
from omnic.runtime.prompts import within
from omnic.runtime.schedule import flowing
from omnic.runtime.tensors import Loaded
from omnic.runtime.weights import Checkpoint

FPS = 24
_TOKENS = 1024
_MEL = 4  # rows of a spectrogram, and places along it, a latent of sound
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded)
        case "denoiser":
            return Maker(components)
        case "vae_decode":
            return Screen(components)
        case "audio_decode":
            return Speaker(components)
    raise AssertionError(part)


class Words:
    """All states of Gemma side by side, and the connectors that make of them what the video and the sound each see."""

    def __init__(self, components: Components) -> None:
        whole = components.config("text_encoder")
        text = dict(whole.get("text_config", whole))
        self._gemma: Any = components.module("text_encoder", kind="Gemma3TextModel", config=text, prefixes=_PREFIXES)
        self._connectors: Any = components.module("connectors")
        self._tokenizer = components.tokenizer("tokenizer", int(text["vocab_size"]))

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        padding = self._tokenizer.pad_token_id
        padding = self._tokenizer.eos_token_id if padding is None else padding
        ids = within(self._tokenizer(text.strip())["input_ids"] or [padding], _TOKENS, text, field)
        before = (_TOKENS - ids.shape[1], 0)  # the model was trained with padding before the text
        mask = functional.pad(torch.ones_like(ids), before)
        found = self._gemma(
            input_ids=functional.pad(ids, before, value=padding),
            attention_mask=mask,
            output_hidden_states=True,
            use_cache=False,
        )
        states = torch.stack(found.hidden_states, dim=-1).flatten(2)
        video, sound, kept = self._connectors(states, mask, padding_side="left")
        return {"video": video, "sound": sound, "mask": kept}


class Maker(OneTransformer):
    """Satisfies `diffusion.Denoiser`. A job has two tensors, what is seen and what is heard, each with its schedule."""

    def __init__(self, components: Components) -> None:
        self._transformer: Any = components.module("transformer")
        self._scheduler = components.config("scheduler")
        vae, sound = components.config("vae"), components.config("audio_vae")
        self._channels = int(vae["latent_channels"])
        self._time, self._space = _ratio(vae, "temporal"), _ratio(vae, "spatial")
        self._heard = int(sound["latent_channels"]), int(sound["mel_bins"]) // _MEL
        self._rate = int(sound["sample_rate"]) / int(sound["mel_hop_length"]) / _MEL  # latents a second
        self._dtype = components.dtype
        self._width = int(components.config("connectors")["caption_channels"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        frames, steps = int(ask.settings["frames"]), int(ask.settings["steps"])
        shape = ((frames - 1) // self._time + 1, size.height // self._space, size.width // self._space)
        length = round(frames / FPS * self._rate)
        generator = ask.generator()
        seen = noise((1, self._channels, *shape), generator).flatten(2).transpose(1, 2)
        heard = noise((1, self._heard[0], length, self._heard[1]), generator).transpose(1, 2).flatten(2)
        schedules = (flowing(self._scheduler, steps, seen.shape[1]), flowing(self._scheduler, steps, seen.shape[1]))
        rules = tuple(_Rule(ask.settings, before) for before in ("", "sound_"))
        assert embeds.negative is not None, "its encoder gives one for every prompt"
        branches: list[Mapping[str, Any]] = [embeds.prompt]
        negative, alone = any(r.guidance > 1 for r in rules), any(r.modality > 1 for r in rules)
        branches += [embeds.negative] if negative else []
        branches += [{**embeds.prompt, "alone": True}] if alone else []

        def combined(step: int, predictions: Sequence[Tensor], x: Tensor, which: int) -> Tensor:
            sigma = float(schedules[which].sigmas[step])
            return rules[which].combined(predictions, x, sigma, negative, alone)

        guidance = Guidance(len(branches), own=combined) if len(branches) > 1 else NONE
        fixed = {"shape": shape, "length": length}
        key = (size, frames, negative, alone)
        return Job((seen, heard), schedules, tuple(branches), guidance, key, generator, fixed)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """Rows that must not hear what others see take a forward of their own."""
        found = [torch.empty_like(part) for part in x]
        for alone in (False, True):
            at = [i for i, row in enumerate(rows) if bool(row.condition.get("alone")) is alone]
            if at:
                made = self._made(tuple(part[at] for part in x), t[at], [rows[i] for i in at], alone)
                for whole, part in zip(found, made, strict=True):
                    whole[at] = part.float()
        return tuple(found)

    def _made(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row], alone: bool) -> tuple[Tensor, ...]:
        fixed, given = rows[0].job.fixed, {n: [r.condition[n] for r in rows] for n in ("video", "sound", "mask")}
        frames, height, width = fixed["shape"]
        mask = torch.cat(given["mask"])
        made: tuple[Tensor, ...] = self._transformer(
            hidden_states=x[0].to(self._dtype),
            audio_hidden_states=x[1].to(self._dtype),
            encoder_hidden_states=torch.cat(given["video"]).to(self._dtype),
            audio_encoder_hidden_states=torch.cat(given["sound"]).to(self._dtype),
            timestep=t,
            sigma=t,
            encoder_attention_mask=mask,
            audio_encoder_attention_mask=mask,
            num_frames=frames,
            height=height,
            width=width,
            fps=float(FPS),
            audio_num_frames=fixed["length"],
            isolate_modalities=alone,
            use_cross_timestep=True,
            return_dict=False,
        )
        return made

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        states = torch.zeros(1, _TOKENS, self._width)
        words = {"video": states, "sound": states, "mask": torch.ones(1, _TOKENS, dtype=torch.int64)}
        for guidance, modality in ((2.0, 1.0), (1.0, 1.0), (2.0, 2.0), (1.0, 2.0)):
            scales = {f"{of}guidance": guidance for of in ("", "sound_")}
            apart = {f"{of}modality": modality for of in ("", "sound_")}
            rescales = {"rescale": 0.0, "sound_rescale": 0.0}
            settings = {"size": size, "frames": frames, "steps": 1, **scales, **apart, **rescales}
            yield Ask(0, {"condition": Embeds(words, words)}, settings)

    def finish(self, job: Job) -> Mapping[str, Any]:
        seen, heard = job.x
        video = seen.transpose(1, 2).reshape(1, self._channels, *job.fixed["shape"])
        sound = heard.reshape(1, -1, *self._heard).transpose(1, 2)
        return {"latents": Latents(video), "audio": Latents(sound)}


class _Rule:
    """How the predictions of one of the two tensors become one: on what they say is left without noise, each scale
    adds how the prompt's differs from a weaker one; `rescale` as in `Guidance`."""

    def __init__(self, settings: Mapping[str, Any], before: str) -> None:
        self.guidance = float(settings[f"{before}guidance"])
        self.modality = float(settings[f"{before}modality"])
        self._rescale = float(settings[f"{before}rescale"])

    def combined(self, velocities: Sequence[Tensor], x: Tensor, sigma: float, negative: bool, alone: bool) -> Tensor:
        """Velocities of the prompt, what it is kept away from if `negative`, and each without the other if `alone`."""
        clean = [x - velocity * sigma for velocity in velocities]
        made = prompt = clean[0]
        if negative:
            made = made + (self.guidance - 1) * (prompt - clean[1])
        if alone:
            made = made + (self.modality - 1) * (prompt - clean[-1])
        if self._rescale:
            axes = tuple(range(1, prompt.ndim))
            matched = made * (prompt.std(axes, keepdim=True) / made.std(axes, keepdim=True))
            made = self._rescale * matched + (1 - self._rescale) * made
        return (x - made) / sigma


def _ratio(vae: Mapping[str, Any], axis: str) -> int:
    """Pixels, or frames, a latent."""
    given = vae.get(f"{axis}_compression_ratio")
    patch = vae["patch_size" if axis == "spatial" else "patch_size_t"]
    return int(given or int(patch) * 2 ** sum(vae["spatio_temporal_scaling"]))
