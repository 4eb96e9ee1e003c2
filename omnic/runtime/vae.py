"""Variational autoencoders as stages: latents to pictures and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.latents import restored, standardised
from omnic.runtime.modules import held
from omnic.runtime.pictures import from_pixels, to_pixels

_UNUSED = ("bn.num_batches_tracked",)  # saved with a module and never read
ENCODES = ("encoder.", "quant_conv.", *_UNUSED)
DECODES = ("decoder.", "post_quant_conv.", *_UNUSED)
"""Parts that are not loaded where only the other direction is asked for."""


class KlVae:
    """A VAE of single pictures (`AutoencoderKL`), whose latents are scaled by its config."""

    def __init__(self, components: Components, name: str = "vae") -> None:
        self._components, self._name = components, name
        self.config = components.config(name)

    def decoder(self) -> KlDecoder:
        return KlDecoder(self._components.module(self._name, skip=ENCODES), self.config)

    def encoder(self) -> KlEncoder:
        return KlEncoder(self._components.module(self._name, skip=DECODES), self.config)


class KlDecoder:
    """Latents to a picture. Satisfies `diffusion.Transform`."""

    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any]) -> None:
        self._vae: Any = vae
        self._config = config
        self._weight = held(vae)

    def run(self, ask: Ask) -> Mapping[str, Any]:
        latents: Latents = ask.inputs["latents"]
        return {"image": to_pixels(self.decode(latents.values)[0])}

    def bodies(self) -> Mapping[str, torch.nn.Module]:
        """What does the work."""
        return {"decoder": self._vae.decoder}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, h, w] -> [1, 3, H, W] in -1..1."""
        restored = self.restored(latents).to(self._weight)
        decoded: Tensor = self._vae.decode(restored, return_dict=False)[0]
        return decoded

    def restored(self, latents: Tensor) -> Tensor:
        """Latents as the VAE made them."""
        return restored(latents, self._config)


class KlEncoder:
    """A picture, resized to the `size` of what is made, to latents. Satisfies `diffusion.Transform`."""

    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any]) -> None:
        self._vae: Any = vae
        self._config = config
        self._weight = held(vae)

    def run(self, ask: Ask) -> Mapping[str, Any]:
        generator = ask.generator()
        pixels = from_pixels(ask.inputs["image"], ask.settings["size"]).to(self._weight)
        found = self._vae.encode(pixels).latent_dist.sample(generator).float()
        return {"latents": Latents(standardised(found, self._config), {"drawn": generator.get_state()})}
