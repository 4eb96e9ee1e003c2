"""Rough pictures of latents: a map from channels to colours, fitted to the VAE that decodes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from omnic import manifest
from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime import families
from omnic.runtime.diffusion import Ask, Job, Latents
from omnic.runtime.guidance import NONE
from omnic.runtime.home import Home
from omnic.runtime.pictures import to_pixels
from omnic.runtime.schedule import Schedule, even_sigmas
from omnic.runtime.sketch import Sketches, colours
from omnic.runtime.weights import Checkpoint
from tests.runtime.painting import EULER

CHANNELS = 4
TRUE = torch.randn(CHANNELS, 3, generator=torch.Generator().manual_seed(1)) / 8


@dataclass
class Linear:
    """A VAE whose pictures are what `TRUE` makes of each place, four pixels wide. Satisfies `Transform`."""

    video: bool = False
    asked: int = 0

    def run(self, ask: Ask) -> Mapping[str, Any]:
        self.asked += 1
        x = ask.inputs["latents"].values
        if self.video:
            assert x.shape[2] == 1
            return {"video": to_pixels(self.shown(x[:, :, 0]))[None]}
        return {"image": to_pixels(self.shown(x))}

    @staticmethod
    def shown(x: Tensor) -> Tensor:
        wide = functional.interpolate(x, scale_factor=4)
        return torch.einsum("chw,cd->dhw", wide[0], TRUE) + 0.1


@dataclass
class Still:
    """Satisfies `diffusion.Denoiser`: it makes nothing, and says that it has made `latents`."""

    latents: Tensor
    loads: list[Linear] = field(default_factory=list)

    def prepare(self, ask: Ask) -> Job:
        schedule = Schedule(EULER, 4, sigmas=even_sigmas(4))
        return Job((self.latents,), (schedule,), ({},), NONE, "", ask.generator())

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Any) -> tuple[Tensor, ...]:
        return x

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(self.latents)}

    def vae(self) -> Linear:
        self.loads.append(Linear(self.latents.ndim == 5))
        return self.loads[-1]


@dataclass
class Pixels(Still):
    """Says that it has made `picture`."""

    picture: Any = field(default_factory=lambda: np.zeros((2, 2, 3), np.uint8))

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"image": self.picture}


def sketched(still: Still, times: int = 1) -> Any:
    job = still.prepare(Ask(0, {}, {}))
    job.schedules[0].advance(0, job.x[0], job.x[0], job.generator)
    sketches = Sketches(still, still.vae)
    return [sketches.of(job, job.x) for _ in range(times)][-1]


def test_a_pixel_a_place_in_the_colours_that_the_vae_gives() -> None:
    x = torch.randn(1, CHANNELS, 6, 10, generator=torch.Generator().manual_seed(2))
    picture = sketched(Still(x))
    expected = to_pixels(Linear.shown(x))[::4, ::4]
    assert (picture.dtype, picture.shape) == (np.uint8, (6, 10, 3))
    assert np.abs(picture.astype(int) - expected).max() <= 2


def test_a_video_shows_its_middle_frame() -> None:
    x = torch.randn(1, CHANNELS, 5, 6, 10, generator=torch.Generator().manual_seed(2))
    expected = to_pixels(Linear.shown(x[:, :, 2]))[::4, ::4]
    assert np.abs(sketched(Still(x)).astype(int) - expected).max() <= 2


def test_what_is_made_of_pixels_is_shown_as_it_is_and_asks_for_no_vae() -> None:
    still = Pixels(torch.zeros(1, 3, 2, 2))
    assert sketched(still) is still.picture
    assert not still.loads


def test_of_a_sound_there_is_no_picture() -> None:
    still = Still(torch.zeros(1, CHANNELS, 30))
    assert sketched(still) is None
    assert not still.loads


def test_the_vae_is_loaded_once() -> None:
    still = Still(torch.zeros(1, CHANNELS, 2, 2))
    sketched(still, times=3)
    assert len(still.loads) == 1


def test_more_channels_are_fitted_to_more_pictures() -> None:
    vae = Many(64)
    assert colours(vae, 64, frames=False).shape == (65, 3)
    assert vae.places >= 8 * 65


class Many:
    """A VAE of any number of channels, which shows the mean of them."""

    def __init__(self, channels: int) -> None:
        self._channels, self.places = channels, 0

    def run(self, ask: Ask) -> Mapping[str, Any]:
        x = ask.inputs["latents"].values
        assert x.shape[1] == self._channels
        self.places += x.shape[2] * x.shape[3]
        return {"image": to_pixels(x.mean(1).expand(3, -1, -1))}


# --- the VAEs of families, tiny and random, which are far from linear -------------------------------------------------

FAMILIES = [("cogvideox", "cogvideox", 0.6), ("wan", "wan", 0.3), ("flux", "flux", 0.15), ("lumina2", "lumina2", 0.15)]


def decoder(family: str, like: str) -> Any:
    found = resolve(ModelSource("random", family, (("like", f"random/{like}"),)), Path())
    held = manifest.Model("m", "random", like, found.family, found.format, found.config)
    return families.load(found.family).load(Checkpoint(held, None), "vae_decode", Home("float32"), lambda *_: None)


@pytest.mark.parametrize(("family", "like", "least"), FAMILIES)
def test_it_is_more_like_the_picture_than_chance(family: str, like: str, least: float) -> None:
    vae = decoder(family, like)
    video = family in ("cogvideox", "wan")
    with torch.inference_mode():
        fitted = colours(vae, CHANNELS, frames=video)
        guessed, decoded = [], []
        for seed in range(8):
            x = torch.randn(1, CHANNELS, 8, 12, generator=torch.Generator().manual_seed(100 + seed))
            made = vae.run(Ask(0, {"latents": Latents(x[:, :, None] if video else x)}, {}))
            parts = [made] if isinstance(made, Mapping) else [*made]
            (picture,) = (value for part in parts for value in part.values())
            pixels = torch.from_numpy(picture.reshape(-1, *picture.shape[-2:])).float()
            pixels = pixels.reshape(1, *picture.shape[-3:]).permute(0, 3, 1, 2)
            decoded.append(functional.adaptive_avg_pool2d(pixels, (8, 12))[0])
            guessed.append(torch.einsum("chw,cd->dhw", x[0], fitted[:-1]))
    colours_of = (torch.stack(each, 1).flatten(1).numpy() for each in (guessed, decoded))
    alike = [np.corrcoef(guess, real)[0, 1] for guess, real in zip(*colours_of, strict=True)]
    assert np.mean(alike) > least
