"""What the families of video share: causal VAEs, and the keys of their parts."""

from __future__ import annotations

from dataclasses import dataclass

from omnic.catalog import diffusion as d
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Key, Part
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Size

_SMALLEST, _LARGEST = Size(256, 256), Size(4096, 4096)


@dataclass(frozen=True, slots=True)
class Held:
    """Elements a pixel that a causal VAE holds at its peak, in multiples of its channels where it works on whole pixels
    (fewer, where it takes pixels in patches): `width` and `encoder_width`. Decoding, what it remembers of the frames
    before, and what it works on besides, or all of it for one picture; encoding a picture, and the video that begins
    with it. Measured."""

    width: int
    remembered: int
    work: int
    still: int
    encoder_width: int = 0
    picture: int = 0
    video: int = 0


def held(vae: Component) -> Held:
    """Of Wan's two versions, of Qwen-Image and of HunyuanVideo 1.5."""
    config = vae.config
    if "block_out_channels" in config:
        return Held(int(config["block_out_channels"][0]), 28, 28, 38)
    patch, encoder = int(config.get("patch_size") or 1) ** 2, int(config["base_dim"])
    width, encoder_width = -(-int(config.get("decoder_base_dim") or encoder) // patch), -(-encoder // patch)
    if config.get("is_residual"):
        return Held(width, 28, 57, 23, encoder_width, 14, 53)
    return Held(width, 25, 28, 19, encoder_width, 11, 40)


# A tile sees beyond its border, all of them together less than as if they had `_MARGIN` times their pixels.
_MARGIN = 1.3
_TILE = f"min({_MARGIN} * tile_high, size_high)"
_TILES = f"(1 + {_MARGIN - 1:g} * (tile_high < size_high)) * size_high"


def decode(index: Index, latents: Type, fps: int) -> Part:
    """Latents to a video, by a causal VAE: it comes some frames at a time. In chunks, all tiles are in work at once;
    whole, one after the other, beside what the first layers made of all frames."""
    vae = held(index["vae"])
    remembered = f"{vae.remembered} * (chunked * {_TILES} + (1 - chunked) * {_TILE})"
    first = "(1 - chunked) * (tile_high < size_high) * size_high * frames_high / 64"
    return d.vae_decode(
        index,
        latents,
        d.video(index, fps),
        activation=f"{vae.width} * ({remembered} + {vae.work} * {_TILE} + {first})",
        result="(1 - chunked) * 6 * size_high * frames_high",
        keys=(tile(),),
        streams=d.FRAMES,
    )


def first_frame(index: Index, latents: Type, keys: tuple[Key, ...], *, followed: bool) -> Part:
    """A picture to latents of the video that begins with it; `followed`, of all of that video."""
    vae = held(index["vae"])
    of = vae.video if followed else vae.picture
    return d.vae_encode(index, latents, keys, activation=f"size_high * {of * vae.encoder_width}")


def picture(index: Index, latents: Type) -> Part:
    """Latents of one frame to a picture, by a causal VAE."""
    vae = held(index["vae"])
    activation = f"{vae.width} * ({vae.still} * {_TILE} + (tile_high < size_high) * size_high / 16)"
    return d.vae_decode(index, latents, d.image(index), activation, keys=(tile(),))


def tile() -> Key:
    """Of a decode that can be cut without seams."""
    return Key("tile", Type("size"), _LARGEST, Range(_SMALLEST, _LARGEST),
               "pixels decoded at once: larger pictures are cut, which takes less memory and more time")  # fmt: skip
