"""Causal video VAEs of diffusers (Wan, Qwen-Image), a frame of latents at a time: what a convolution over time has to
remember of the frames before is state of one request, and so the frames come out as if all were decoded together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from omnic.expr import Size

_REMEMBERED = 2  # frames before, of kernels of three


class Decoding:
    """A decode in work."""

    def __init__(self, vae: Any, config: Mapping[str, Any]) -> None:
        self._vae, self._patch = vae, _patch(config)
        self._state = _blank(vae.decoder)
        self._begun = False

    def frame(self, z: Tensor) -> Tensor:
        """The next frame of latents [1, C, 1, h, w] -> frames [1, 3, n, H, W] in -1..1: n is 1 at first, and then as
        many as the VAE takes together."""
        x = self._vae.post_quant_conv(z)
        made = self._vae.decoder(x, feat_cache=self._state, feat_idx=[0], **_first(self._vae, not self._begun))
        self._begun = True
        return _shown(made, self._patch)


class Encoding:
    """An encode in work."""

    def __init__(self, vae: Any, config: Mapping[str, Any]) -> None:
        self._vae, self._patch = vae, _patch(config)
        self._state = _blank(vae.encoder)

    def frames(self, x: Tensor) -> Tensor:
        """The next frames [1, 3, n, H, W] in -1..1, one at first and then as many as the VAE takes together -> the
        middle of what it makes of them, a frame of latents [1, C, 1, h, w]."""
        if self._patch > 1:
            x = _patches().patchify(x, self._patch)
        found = self._vae.encoder(x, feat_cache=self._state, feat_idx=[0])
        middle: Tensor = self._vae.quant_conv(found).chunk(2, 1)[0]
        return middle


# --- in tiles ---------------------------------------------------------------------------------------------------------


class Tiling:
    """A decode in work whose last layers, which take most of the memory, see a part of the picture at a time.

    The first layers, which look everywhere (attention), see the whole. Each of the others sees beyond its tile what
    its convolutions reach, so that tiles fit without blending: they differ from the whole by rounding alone.
    """

    def __init__(self, vae: Any, config: Mapping[str, Any], shape: tuple[int, int], tile: Size) -> None:
        """`shape` is height and width of the latents, `tile` a size in pixels."""
        self._vae = vae
        self._state = _blank(vae.decoder)
        self.scale = 2 ** sum(_up(block) is not None for block in vae.decoder.up_blocks) * _patch(config)
        rows, columns = (
            _spans(length, max(1, side // self.scale))
            for length, side in zip(shape, (tile.height, tile.width), strict=True)
        )
        self.tiles = tuple(_Tile(vae, config, (row, column), shape) for row in rows for column in columns)

    def features(self, z: Tensor) -> Tensor:
        """What the first layers make of the next frame of latents [1, C, 1, h, w], for `frame` of every tile."""
        decoder, at = self._vae.decoder, [0]
        x = _convolved(decoder.conv_in, self._vae.post_quant_conv(z), self._state, at)
        found: Tensor = decoder.mid_block(x, feat_cache=self._state, feat_idx=at)
        return found

    def frame(self, z: Tensor) -> Tensor:
        """As `Decoding.frame`."""
        features = self.features(z)
        whole: Tensor | None = None
        for tile in self.tiles:
            part = tile.frame(features)
            if whole is None:
                size = [length * self.scale for length in features.shape[3:]]
                whole = part.new_empty(*part.shape[:3], *size)
            whole[(..., *tile.where(self.scale))] = part
        assert whole is not None, "there are tiles"
        return whole


@dataclass(frozen=True, slots=True)
class _Span:
    """From `begin` to before `end`."""

    begin: int
    end: int

    def wider(self, margin: int, limit: int) -> _Span:
        return _Span(max(0, self.begin - margin), min(limit, self.end + margin))

    def times(self, factor: int) -> _Span:
        return _Span(self.begin * factor, self.end * factor)

    def within(self, other: _Span) -> slice:
        return slice(self.begin - other.begin, self.end - other.begin)


class _Tile:
    """The last layers of a decode, for one tile."""

    def __init__(self, vae: Any, config: Mapping[str, Any], spans: tuple[_Span, _Span], shape: tuple[int, int]) -> None:
        """`spans` are its rows and columns of the latents, of `shape` in all."""
        self._decoder, self._patch, self._spans, self._shape = vae.decoder, _patch(config), spans, shape
        self._vae = vae
        self._state = _blank(vae.decoder)
        self._reach = tuple(_reach(vae.decoder))
        self._begun = False

    def forget(self) -> None:
        """Lets go of what it remembers: there are no more frames."""
        self._state.clear()

    def where(self, scale: int) -> tuple[slice, slice]:
        """Its place in the picture, `scale` times as large as the latents."""
        rows, columns = (span.times(scale) for span in self._spans)
        return slice(rows.begin, rows.end), slice(columns.begin, columns.end)

    def frame(self, features: Tensor) -> Tensor:
        """`Tiling.features` -> its part [1, 3, n, rows, columns] of the next frames, in -1..1."""
        x, factor, at = features, 1, [0]
        seen = tuple(_Span(0, length) for length in self._shape)
        for block, reach in zip(self._decoder.up_blocks, self._reach, strict=False):
            x, seen = self._cut(x, seen, reach, factor)
            x = block(x, feat_cache=self._state, feat_idx=at, **_first(self._vae, not self._begun))
            if _up(block) is not None:
                factor, seen = 2 * factor, tuple(span.times(2) for span in seen)
        x, seen = self._cut(x, seen, self._reach[-1], factor)
        x = self._decoder.nonlinearity(self._decoder.norm_out(x))
        x = _convolved(self._decoder.conv_out, x, self._state, at)
        self._begun = True
        return _shown(self._cut(x, seen, 0, factor)[0], self._patch)

    def _cut(self, x: Tensor, seen: tuple[_Span, ...], reach: int, factor: int) -> tuple[Tensor, tuple[_Span, ...]]:
        """What is needed of x, which is of the spans `seen` of a picture `factor` times as large as the latents."""
        wanted = tuple(
            span.times(factor).wider(reach, length * factor)
            for span, length in zip(self._spans, self._shape, strict=True)
        )
        rows, columns = (w.within(s) for w, s in zip(wanted, seen, strict=True))
        return x[..., rows, columns], wanted


def _reach(decoder: Any) -> Iterator[int]:
    """How far beyond its tile each block must see, and the layer after them, in places of what it is given."""
    reach = [1]  # the last convolution
    for block in reversed(decoder.up_blocks):
        beyond = reach[0]
        if _up(block) is not None:
            beyond = (beyond + 1 + 1) // 2  # a convolution on twice as many places
        reach.insert(0, beyond + 2 * len(block.resnets))
    yield from reach


def _up(block: Any) -> Any:
    """The layer of a block that doubles height and width, or None."""
    ups = getattr(block, "upsamplers", None)
    return ups[0] if ups else getattr(block, "upsampler", None)


def _spans(length: int, most: int) -> list[_Span]:
    """`length` in as few spans of at most `most` as it takes, as even as can be."""
    count = -(-length // most)
    ends = [length * i // count for i in range(count + 1)]
    return [_Span(a, b) for a, b in pairwise(ends)]


# --- what both share --------------------------------------------------------------------------------------------------


def _blank(module: nn.Module) -> list[Any]:
    """The state of a module before its first frame: a place for each of its convolutions over time."""
    return [None] * sum(isinstance(layer, nn.Conv3d) for layer in module.modules())


def _first(vae: Any, first: bool) -> dict[str, bool]:
    """What the decoder's parts have to be told of the first frame. Qwen-Image's are not."""
    return {"first_chunk": first} if type(vae).__name__ == "AutoencoderKLWan" else {}


def _convolved(layer: Any, x: Tensor, state: list[Any], at: list[int]) -> Tensor:
    """A causal convolution with the state at place `at[0]`, which moves on."""
    before = state[at[0]]
    kept = x[:, :, -_REMEMBERED:].clone()
    if kept.shape[2] < _REMEMBERED and before is not None:
        kept = torch.cat([before[:, :, -1:], kept], 2)
    made: Tensor = layer(x, before)
    state[at[0]] = kept
    at[0] += 1
    return made


def _patch(config: Mapping[str, Any]) -> int:
    return int(config.get("patch_size") or 1)


def _patches() -> Any:
    from diffusers.models.autoencoders import autoencoder_kl_wan

    return autoencoder_kl_wan


def _shown(x: Tensor, patch: int) -> Tensor:
    if patch > 1:
        x = _patches().unpatchify(x, patch)
    return x.clamp(-1.0, 1.0)
