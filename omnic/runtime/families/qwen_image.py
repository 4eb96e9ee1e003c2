"""Qwen-Image: how its parts run. The modules are those of diffusers and transformers; packing, guidance and the loop
are omnic's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.errors import RequestError
from omnic.runtime.families.qwen_image_steps import Steps, steps
from omnic.runtime.families.qwen_image_weights import eight
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.latents import packed, padded, unpacked
from omnic.runtime.prompts import within
from omnic.runtime.schedule import Schedule, even_sigmas, shift_of, started
from omnic.runtime.tensors import Loaded
from omnic.runtime.video_vae import VideoVae
from omnic.runtime.weights import Checkpoint

_TOKENS = 1024
_TEMPLATE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return Encoder(components)
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return VideoVae(components).pictures()
        case "vae_encode":
            return VideoVae(components).encoder()
    raise AssertionError(part)


class Encoder:
    """Text to the states of Qwen2.5-VL's language model, without those of the template before it."""

    def __init__(self, components: Components) -> None:
        whole = components.config("text_encoder")
        config = whole.get("text_config", whole)
        self._model = components.module(
            "text_encoder",
            kind="Qwen2_5_VLTextModel",
            config={**config, "model_type": "qwen2_5_vl_text"},
            prefixes=("model.language_model.", "language_model.", "model."),
        )
        self._tokenizer = components.tokenizer("tokenizer", int(config["vocab_size"]))
        self._skip = len(self._tokenizer(_TEMPLATE.partition("{}")[0])["input_ids"])

    def run(self, ask: Ask) -> Mapping[str, Any]:
        prompt = self._encoded(ask.inputs["text"], "prompt")
        return {"embeds": Embeds(prompt, self._encoded(ask.inputs.get("negative") or " ", "negative_prompt"))}

    def _encoded(self, text: str, field: str) -> dict[str, Tensor]:
        ids = within(self._tokenizer(_TEMPLATE.format(text))["input_ids"], _TOKENS + self._skip, text, field)
        return {"states": self._model(input_ids=ids, use_cache=False).last_hidden_state[:, self._skip :]}


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`. Prompts of different lengths share a forward: padding is masked."""

    def __init__(self, components: Components) -> None:
        layers = int(components.config("transformer")["num_layers"])
        self._transformer = components.module("transformer", eight=eight(layers) if components.home.fp8 else None)
        self._scheduler = components.config("scheduler")
        self._dtype = components.dtype
        self._vae = components.config("vae")
        self._scale = 2 ** len(self._vae["temperal_downsample"])
        self._home = components.home

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        reference: Latents | None = ask.inputs.get("reference")  # a picture to edit, seen beside what is painted
        size: Size | None = ask.settings["size"]
        count, scale = int(ask.settings["steps"]), float(ask.settings["guidance"])
        height, width = (size.height // self._scale, size.width // self._scale) if size else _sides(reference)
        sigmas = even_sigmas(count)
        schedule = Schedule(self._scheduler, count, sigmas=sigmas, mu=shift_of(height * width // 4, self._scheduler))
        generator = ask.generator()
        shape = (1, int(self._vae["z_dim"]), height, width)
        x = started(schedule, shape, generator, ask, packed)
        if embeds.negative is None:
            raise RequestError("the encoder gave nothing to keep away from", "negative_prompt")
        branches = (embeds.prompt, embeds.negative)
        guidance = constant(scale, len(schedule), keep_norm=True)
        sides = [(height, width)] if reference is None else [(height, width), _sides(reference)]
        fixed = {
            "sides": sides,
            "shapes": [(1, high // 2, wide // 2) for high, wide in sides],
            "reference": None if reference is None else packed(reference.values[:, :, 0]),
        }
        return Job((x,), (schedule,), branches, guidance, tuple(sides), generator, fixed)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        states, mask = padded([row.condition["states"] for row in rows])
        seen = x[0]
        if rows[0].job.fixed["reference"] is not None:
            seen = torch.cat([seen, torch.cat([row.job.fixed["reference"] for row in rows])], 1)
        (prediction,) = self._transformer(
            hidden_states=seen.to(self._dtype),
            timestep=(t / 1000).to(self._dtype),
            encoder_hidden_states=states.to(self._dtype),
            encoder_hidden_states_mask=None if bool(mask.all()) else mask,
            img_shapes=[rows[0].job.fixed["shapes"]] * len(rows),
            return_dict=False,
        )
        return (prediction[:, : x[0].shape[1]].float(),)

    def network(self, texts: Sequence[int]) -> Steps | None:
        return steps(self, self._transformer, self._home, texts)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(unpacked(job.x[0], *job.fixed["sides"][0])[:, :, None])}


def _sides(latents: Latents | None) -> tuple[int, int]:
    """Height and width of a picture in latents."""
    if latents is None:
        raise RequestError("a picture without a size needs one to be like", "size")
    return int(latents.values.shape[-2]), int(latents.values.shape[-1])
