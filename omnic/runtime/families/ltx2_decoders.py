"""LTX-2: latents to what is seen, and to what is heard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.pictures import to_frames


class Screen:
    """Latents to a video, all frames at once: each sees those after it, too. Satisfies `diffusion.Transform`."""

    def __init__(self, components: Components) -> None:
        self._vae: Any = components.module("vae", skip=("encoder.",))
        self._scale = float(components.config("vae").get("scaling_factor") or 1.0)
        self._dtype = components.dtype

    def run(self, ask: Ask) -> Mapping[str, Any]:
        latents: Latents = ask.inputs["latents"]
        return {"video": to_frames(self.decode(latents.values))}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, F, h, w] -> [1, 3, frames, H, W] in -1..1."""
        mean, deviation = (t.float().view(1, -1, 1, 1, 1) for t in (self._vae.latents_mean, self._vae.latents_std))
        restored = latents * deviation / self._scale + mean
        decoded: Tensor = self._vae.decode(restored.to(self._dtype), None, return_dict=False)[0]
        return decoded


class Speaker:
    """Latents to a spectrogram, and that to sound. Satisfies `diffusion.Transform`."""

    def __init__(self, components: Components) -> None:
        self._vae: Any = components.module("audio_vae", skip=("encoder.",))
        self._vocoder: Any = components.module("vocoder")
        self._dtype = components.dtype

    def run(self, ask: Ask) -> Mapping[str, Any]:
        """One channel, the mean of those that the vocoder makes."""
        latents: Latents = ask.inputs["latents"]
        return {"audio": self.decode(latents.values)[0].mean(0).cpu().numpy()}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, length, places] -> [1, channels, samples] in -1..1, float32."""
        shape = (1, latents.shape[1], 1, latents.shape[3])
        mean, deviation = (t.float().view(shape) for t in (self._vae.latents_mean, self._vae.latents_std))
        spectrogram = self._vae.decode((latents * deviation + mean).to(self._dtype), return_dict=False)[0]
        sound: Tensor = self._vocoder(spectrogram)
        return sound.float()
