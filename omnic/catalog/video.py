"""What the families of video share: causal VAEs, and the keys of their parts."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Key, Part
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Size

_SMALLEST, _LARGEST = Size(256, 256), Size(4096, 4096)

# Elements a pixel of width `pixel_width` that a causal VAE holds at its peak: what it remembers of frames before, and
# what it works on besides. Measured for both versions of Wan's. A tile sees beyond its border, together less than as
# if it had `_MARGIN` times its pixels.
_REMEMBERED, _WORK = (25, 28), (28, 57)
_ENCODED, _ENCODED_VIDEO = (11, 14), (40, 53)
_MARGIN = 1.3
_TILE = f"min({_MARGIN} * tile_high, size_high)"
_TILES = f"(1 + {_MARGIN - 1:g} * (tile_high < size_high)) * size_high"


def decode(index: Index, latents: Type, fps: int) -> Part:
    """Latents to a video, by a causal VAE: it comes some frames at a time. In chunks, all tiles are in work at once;
    whole, one after the other, beside what the first layers made of all frames."""
    vae = index["vae"]
    width, version = pixel_width(vae, decodes=True), _version(vae)
    remembered = f"({_REMEMBERED[version]} * (chunked * {_TILES} + (1 - chunked) * {_TILE}))"
    first = "(1 - chunked) * (tile_high < size_high) * size_high * frames_high / 64"
    return d.vae_decode(
        index,
        latents,
        d.video(index, fps),
        activation=f"{width} * ({remembered} + {_WORK[version]} * {_TILE} + {first})",
        result="(1 - chunked) * 6 * size_high * frames_high",
        keys=(tile(),),
        streams=d.FRAMES,
    )


def first_frame(index: Index, latents: Type, keys: tuple[Key, ...], *, followed: bool) -> Part:
    """A picture to latents of the video that begins with it; `followed`, of all of that video."""
    vae = index["vae"]
    held = (_ENCODED_VIDEO if followed else _ENCODED)[_version(vae)]
    return d.vae_encode(index, latents, keys, activation=f"size_high * {held * pixel_width(vae, decodes=False)}")


def tile() -> Key:
    """Of a decode that can be cut without seams."""
    return Key("tile", Type("size"), _LARGEST, Range(_SMALLEST, _LARGEST),
               "pixels decoded at once: larger pictures are cut, which takes less memory and more time")  # fmt: skip


def pixel_width(vae: Component, *, decodes: bool) -> int:
    """Channels of a causal VAE where it works on whole pixels; one that takes them in patches has fewer a pixel."""
    base = (vae.config.get("decoder_base_dim") if decodes else None) or vae.config["base_dim"]
    return -(-int(base) // int(vae.config.get("patch_size") or 1) ** 2)


def _version(vae: Component) -> int:
    return int(bool(vae.config.get("is_residual")))
