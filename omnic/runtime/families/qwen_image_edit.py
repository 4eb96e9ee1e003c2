"""Qwen-Image-Edit: Qwen-Image's painter beside a picture, which its text encoder sees as well."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Latents, Transform
from omnic.runtime.families.qwen_image import Painter
from omnic.runtime.home import Home
from omnic.runtime.latents import standardised
from omnic.runtime.pictures import from_pixels
from omnic.runtime.prompts import within
from omnic.runtime.tensors import Loaded
from omnic.runtime.video_vae import PictureEncoder, VideoVae
from omnic.runtime.weights import Checkpoint

AREA = 1024 * 1024  # pixels that a picture to edit is brought to, whatever its own size
_TOKENS = 1024
_BEFORE = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, "
    "background), then explain how the user's text instruction should alter or modify the image. Generate a new image "
    "that meets the user's requirements while maintaining consistency with the original input where "
    "appropriate.<|im_end|>\n<|im_start|>user\n"
)
_AFTER = "{}<|im_end|>\n<|im_start|>assistant\n"


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
            return VideoVae(components).encoder(Reference)
    raise AssertionError(part)


def scaled(height: int, width: int) -> Size:
    """The size that a picture of height × width is brought to: about AREA pixels, its shape kept to multiples of 32."""
    ratio = width / height
    wide = math.sqrt(AREA * ratio)
    return Size(max(32, round(wide / 32) * 32), max(32, round(wide / ratio / 32) * 32))


class Encoder:
    """Text and a picture to the states of Qwen2.5-VL, without those of the template before them."""

    def __init__(self, components: Components) -> None:
        config = components.config("text_encoder")
        self._model = components.module(
            "text_encoder", kind="Qwen2_5_VLModel", config=config, beginning="language_model.",
            prefixes=("model.language_model.", "model.", "language_model."),
        )  # fmt: skip
        words = int(config.get("text_config", config)["vocab_size"])
        self._tokenizer = components.tokenizer("tokenizer", words)
        self._pictures = components.image_processor("processor", "Qwen2VLImageProcessorPil")
        self._marks = [int(config[f"{name}_token_id"]) for name in ("vision_start", "image", "vision_end")]
        self._merged = int(config["vision_config"].get("spatial_merge_size", 2)) ** 2

    def run(self, ask: Ask) -> Mapping[str, Any]:
        seen = self._seen(ask.inputs["image"])
        prompt = self._encoded(ask.inputs["text"], seen, "prompt")
        negative = self._encoded(ask.inputs.get("negative") or " ", seen, "negative_prompt")
        return {"embeds": Embeds(prompt, negative)}

    def _seen(self, picture: NDArray[np.uint8]) -> Mapping[str, Tensor]:
        from PIL import Image

        size = scaled(*picture.shape[:2])
        image = Image.fromarray(picture).convert("RGB").resize((size.width, size.height), Image.Resampling.LANCZOS)
        found: Mapping[str, Tensor] = self._pictures(images=[image], return_tensors="pt")
        return found

    def _encoded(self, text: str, seen: Mapping[str, Tensor], field: str) -> dict[str, Tensor]:
        before, after = (self._tokenizer(part)["input_ids"] for part in (_BEFORE, _AFTER.format(text)))
        within(after, _TOKENS, text, field)
        start, image, end = self._marks
        places = int(seen["image_grid_thw"].prod()) // self._merged
        ids = torch.tensor([[*before, start, *[image] * places, end, *after]])
        states = self._model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=seen["pixel_values"].to(next(self._model.parameters()).dtype),
            image_grid_thw=seen["image_grid_thw"],
        ).last_hidden_state
        return {"states": states[:, len(before) :]}


class Reference(PictureEncoder):
    """A picture, brought to about AREA pixels, to the latents of its likeliest reading. Satisfies `Transform`."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        picture = ask.inputs["image"]
        pixels = from_pixels(picture, scaled(*picture.shape[:2]))[:, :, None].to(self._weight)
        found = self._vae.encode(pixels).latent_dist.mode()
        return {"latents": Latents(standardised(found, self._config).float())}
