"""Rough pictures of what a denoise stage is making, without the VAE that will decode it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from omnic.runtime.diffusion import Ask, Denoiser, Job, Latents, Transform
from omnic.runtime.pictures import to_pixels

if TYPE_CHECKING:
    Picture = NDArray[np.uint8]

_SIDE = 8  # of the latents that the map is fitted to, which most VAEs decode to 64 pixels
_SCALES = (1, 2, 4, 8)  # places wide are the patches of one colour in them: pictures have large things and small ones
_LEAST, _TIMES = 16, 8  # of them: so many, and so many places for each row of the map


class Sketches:
    """Pictures of jobs in work, on request. `vae` loads the part that decodes what the denoiser makes; it is called
    at the first picture of latents, and what it gave is let go of when the map is fitted."""

    def __init__(self, denoiser: Denoiser, vae: Callable[[], Transform]) -> None:
        self._denoiser, self._vae = denoiser, vae
        self._map: Tensor | None = None

    def of(self, job: Job, before: tuple[Tensor, ...]) -> Picture | None:
        """What the job will look like, as far as can be told, uint8 [height, width, 3]: of pixels as they are, of
        latents a pixel a place, of a video its middle frame. None for what is no picture. `before` is `job.x` before
        its last step."""
        pairs = zip(job.schedules, before, job.x, strict=True)
        made = self._denoiser.finish(replace(job, x=tuple(s.ahead(job.step, b, x) for s, b, x in pairs)))
        if "image" in made:
            picture: Picture = made["image"]
            return picture
        latents: Latents | None = made.get("latents")
        if latents is None or latents.values.ndim < 4:
            return None
        x = latents.values
        x = (x[:, :, x.shape[2] // 2] if x.ndim == 5 else x).float().cpu()
        if self._map is None:
            self._map = colours(self._vae(), x.shape[1], frames=latents.values.ndim == 5)
        return to_pixels(torch.einsum("chw,cd->dhw", _with_one(x)[0], self._map))


def colours(vae: Transform, channels: int, *, frames: bool) -> Tensor:
    """The map [channels + 1, 3] from latents, and a one beside them, to red, green and blue in -1..1 which is nearest,
    by least squares, to what `vae` makes of random latents: [1, channels, (1,) height, width]."""
    generator = torch.Generator("cpu").manual_seed(0)
    seen, shown = [], []
    for _ in range(max(_LEAST, -(-_TIMES * (channels + 1) // _SIDE**2))):
        small = (torch.randn(1, channels, _SIDE // s, _SIDE // s, generator=generator) for s in _SCALES)
        z = torch.stack([functional.interpolate(each, (_SIDE, _SIDE)) for each in small]).sum(0) / len(_SCALES) ** 0.5
        picture = _picture(vae.run(Ask(0, {"latents": Latents(z[:, :, None] if frames else z)}, {})))
        pixels = torch.from_numpy(picture).float().permute(2, 0, 1)[None] / 127.5 - 1
        seen.append(_with_one(z)[0].flatten(1).T)
        shown.append(functional.adaptive_avg_pool2d(pixels, _SIDE)[0].flatten(1).T)
    found: Tensor = torch.linalg.lstsq(torch.cat(seen), torch.cat(shown)).solution
    return found


def _with_one(x: Tensor) -> Tensor:
    """[1, C, h, w] -> [1, C + 1, h, w]."""
    return torch.cat([x, torch.ones_like(x[:, :1])], 1)


def _picture(made: Any) -> Picture:
    """What a VAE gives of latents of one frame: a picture, or a video whose first frame it is."""
    parts = [made] if isinstance(made, Mapping) else list(made)
    (found,) = (value for part in parts for value in part.values())
    picture: Picture = found if found.ndim == 3 else found[0]
    return picture
