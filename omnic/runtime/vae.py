"""Variational autoencoders as stages: latents to pictures and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.latents import restored, standardised
from omnic.runtime.pictures import from_pixels, to_pixels

_ENCODES = ("encoder.", "quant_conv.")
_DECODES = ("decoder.", "post_quant_conv.")


class VideoVae:
    """A causal video VAE (Wan, Qwen-Image), whose latents are standardised by mean and deviation of each channel."""

    def __init__(self, components: Components, name: str = "vae") -> None:
        self._components, self._name = components, name
        self.config = components.config(name)

    def decoder(self, kind: str) -> VideoDecoder:
        """Latents to a picture (`image`) or a video (`video`)."""
        return VideoDecoder(self._components.module(self._name, skip=_ENCODES), self.config, kind)

    def encoder(self) -> VideoEncoder:
        return VideoEncoder(self._components.module(self._name, skip=_DECODES), self.config)


class VideoDecoder:
    """Satisfies `diffusion.Transform`."""

    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any], kind: str) -> None:
        self._vae: Any = vae
        self._config, self._kind = config, kind
        self._dtype = next(p.dtype for p in vae.parameters() if not p.is_meta)

    def run(self, ask: Ask) -> Mapping[str, Any]:
        latents: Latents = ask.inputs["latents"]
        pictures = self.decode(latents.values)[0]
        if self._kind == "image":
            return {"image": to_pixels(pictures[:, 0])}
        import numpy as np

        return {"video": np.stack([to_pixels(frame) for frame in pictures.unbind(1)])}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, F, h, w] -> [1, 3, frames, H, W] in -1..1."""
        decoded: Tensor = self._vae.decode(restored(latents.to(self._dtype), self._config), return_dict=False)[0]
        return decoded


class VideoEncoder:
    """A picture, resized to the `size` of what is made, to latents. Satisfies `diffusion.Transform`."""

    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any]) -> None:
        self._vae: Any = vae
        self._config = config
        self._dtype = next(p.dtype for p in vae.parameters() if not p.is_meta)

    def run(self, ask: Ask) -> Mapping[str, Any]:
        size: Size = ask.settings["size"]
        generator = ask.generator()
        pixels = from_pixels(ask.inputs["image"], size)[:, :, None].to(self._dtype)
        found = self._vae.encode(pixels).latent_dist.sample(generator)
        latents = standardised(found, self._config).float()
        return {"latents": Latents(latents, {"drawn": generator.get_state()})}
