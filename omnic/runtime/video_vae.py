"""Causal video VAEs as stages: latents to frames some at a time, and pictures to latents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.causal import Decoding, Frame, Layers, Tiling
from omnic.runtime.causal_hunyuan import HunyuanLayers
from omnic.runtime.causal_wan import Encoding, WanLayers
from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.latents import restored, standardised
from omnic.runtime.modules import held
from omnic.runtime.pictures import from_pixels, to_frames, to_pixels

_ENCODES = ("encoder.", "quant_conv.")
_DECODES = ("decoder.", "post_quant_conv.")


class VideoVae:
    """A causal video VAE (Wan, Qwen-Image, HunyuanVideo 1.5), whose latents are scaled by its config."""

    def __init__(self, components: Components, name: str = "vae") -> None:
        self._components, self._name = components, name
        self.config = components.config(name)

    def pictures(self) -> PictureDecoder:
        """Latents of one frame to a picture."""
        return PictureDecoder(self._components.module(self._name, skip=_ENCODES), self.config)

    def frames(self) -> VideoDecoder:
        """Latents to a video."""
        return VideoDecoder(self._components.module(self._name, skip=_ENCODES), self.config)

    def encoder(self, kind: type[PictureEncoder] | None = None) -> PictureEncoder:
        """A picture to latents that are to be changed; `kind` is a family's own way."""
        return (kind or PictureEncoder)(self._components.module(self._name, skip=_DECODES), self.config)

    def first_frame(self, *, followed: bool) -> FirstFrame:
        """A picture to latents of a video that begins with it; `followed`, of all of that video, grey after it."""
        return FirstFrame(self._components.module(self._name, skip=_DECODES), self.config, followed)


class _Vae:
    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any]) -> None:
        self._vae: Any = vae
        self._config = config
        self._weight = held(vae)
        self._frame = Frame(self.layers())

    def bodies(self) -> Mapping[str, torch.nn.Module]:
        """What runs a frame as a whole. Tiles take it apart."""
        return {"decoder": self._frame}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, F, h, w] -> [1, 3, frames, H, W] in -1..1."""
        decoding = Decoding(self._frame, self.layers())
        return torch.cat([decoding.frame(z) for z in self._restored(latents)], 2)

    def layers(self) -> Layers:
        """Of its decoder."""
        hunyuan = type(self._vae).__name__ == "AutoencoderKLHunyuanVideo15"
        made: Layers = (HunyuanLayers if hunyuan else WanLayers)(self._vae, self._config)
        return made

    def _begun(self, ask: Ask, latents: Latents) -> Decoding | Tiling:
        tile: Size | None = ask.settings.get("tile")
        height, width = latents.values.shape[3:]
        if tile is not None:
            tiling = Tiling(self.layers(), (height, width), tile)
            if len(tiling.tiles) > 1:
                return tiling
        return Decoding(self._frame, self.layers())

    def _restored(self, latents: Tensor) -> tuple[Tensor, ...]:
        """Each frame as the VAE made it."""
        return torch.split(restored(latents.to(self._weight), self._config), 1, 2)


class PictureDecoder(_Vae):
    """Satisfies `diffusion.Transform`. Pictures larger than the setting `tile` are decoded in tiles."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        latents: Latents = ask.inputs["latents"]
        (z,) = self._restored(latents.values)
        return {"image": to_pixels(self._begun(ask, latents).frame(z)[0, :, 0])}


class VideoDecoder(_Vae):
    """Satisfies `diffusion.Streamed`: whole or in chunks, the frames are the same bytes.

    Pictures larger than the setting `tile` are decoded in tiles (`causal.Tiling`).
    """

    streams = "latents"

    def run(self, ask: Ask) -> Iterator[Mapping[str, Any]]:
        latents: Latents = ask.inputs["latents"]
        work = self._begun(ask, latents)
        if isinstance(work, Tiling):
            yield from self._by_tile(work, latents.values)
            return
        frames = []
        for z in self._restored(latents.values):
            frames.append(to_frames(work.frame(z)))
            yield {}
        yield {"video": np.concatenate(frames)}

    def begin(self, ask: Ask) -> Callable[[Any], Mapping[str, Any]]:
        work: Decoding | Tiling | None = None

        def push(latents: Latents) -> Mapping[str, Any]:
            nonlocal work
            work = work or self._begun(ask, latents)
            return {"video": np.concatenate([to_frames(work.frame(z)) for z in self._restored(latents.values)])}

        return push

    def _by_tile(self, work: Tiling, latents: Tensor) -> Iterator[Mapping[str, Any]]:
        """All frames of a tile before the next: what is remembered between frames is then a tile's alone."""
        features: list[Tensor] = []
        for z in self._restored(latents):
            features.append(work.features(z))
            yield {}
        video: NDArray[np.uint8] | None = None
        for tile in work.tiles:
            at = 0
            for one in features:
                part = to_frames(tile.frame(one))
                if video is None:
                    layers = self.layers()
                    height, width = (length * layers.scale for length in one.shape[3:])
                    video = np.empty((1 + layers.later * (len(features) - 1), height, width, 3), np.uint8)
                video[(slice(at, at + len(part)), *tile.where)] = part
                at += len(part)
                yield {}
            tile.forget()
        yield {"video": video}


class PictureEncoder(_Vae):
    """A picture, resized to the `size` of what is made, to latents. Satisfies `diffusion.Transform`."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        size: Size = ask.settings["size"]
        generator = ask.generator()
        pixels = from_pixels(ask.inputs["image"], size)[:, :, None].to(self._weight)
        found = self._vae.encode(pixels).latent_dist.sample(generator)
        latents = standardised(found, self._config).float()
        return {"latents": Latents(latents, {"drawn": generator.get_state()})}


class FirstFrame(_Vae):
    """A picture, resized to the `size` of the video, to latents. Satisfies `diffusion.Transform`."""

    def __init__(self, vae: torch.nn.Module, config: Mapping[str, Any], followed: bool) -> None:
        super().__init__(vae, config)
        self._followed = followed

    def run(self, ask: Ask) -> Iterator[Mapping[str, Any]]:
        size: Size = ask.settings["size"]
        picture = from_pixels(ask.inputs["image"], size)[:, :, None].to(self._weight)
        work = Encoding(self._vae, self._config)
        found = [work.frames(picture)]
        yield {}
        if self._followed:
            later = int(self._config["scale_factor_temporal"])
            grey = torch.zeros_like(picture).repeat(1, 1, later, 1, 1)
            for _ in range((int(ask.settings["frames"]) - 1) // later):
                found.append(work.frames(grey))
                yield {}
        yield {"latents": Latents(standardised(torch.cat(found, 2).float(), self._config))}
