"""The causal VAEs of Wan and Qwen-Image, through the layers of diffusers, which can carry their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omnic.runtime.causal import Memory, reach_of

_REMEMBERED = 2  # frames before, of kernels of three


class WanLayers:
    """Satisfies `causal.Layers`."""

    def __init__(self, vae: Any, config: Mapping[str, Any]) -> None:
        self._vae, self._patch = vae, _patch(config)
        self.module: nn.Module = vae.decoder
        self.beside: Sequence[nn.Module] = (vae.post_quant_conv,)
        self.blocks: Sequence[nn.Module] = tuple(vae.decoder.up_blocks)
        self.doubles = tuple(_doubles(block) for block in self.blocks)
        self.reach = reach_of(
            [(2 * len(b.resnets), int(d), d) for b, d in zip(vae.decoder.up_blocks, self.doubles, strict=True)]
        )
        self.scale = self._patch * int(2 ** sum(self.doubles))
        self.later = int(2 ** sum(config["temperal_downsample"]))
        self._told = type(vae).__name__ == "AutoencoderKLWan"  # Qwen-Image's layers are not told of the first frame

    def head(self, z: Tensor, memory: Memory) -> Tensor:
        decoder = self._vae.decoder
        x = _convolved(decoder.conv_in, self._vae.post_quant_conv(z), memory)
        made: Tensor = decoder.mid_block(x, feat_cache=memory.places, feat_idx=memory.at)
        return made

    def block(self, index: int, x: Tensor, memory: Memory) -> Tensor:
        more = {"first_chunk": memory.first} if self._told else {}
        made: Tensor = self._vae.decoder.up_blocks[index](x, feat_cache=memory.places, feat_idx=memory.at, **more)
        return made

    def tail(self, x: Tensor, memory: Memory) -> Tensor:
        decoder = self._vae.decoder
        x = decoder.norm_out(x)
        x = _convolved(decoder.conv_out, decoder.nonlinearity(x), memory)
        if self._patch > 1:
            x = _patches().unpatchify(x, self._patch)
        return x.clamp(-1.0, 1.0)


class Encoding:
    """An encode in work."""

    def __init__(self, vae: Any, config: Mapping[str, Any]) -> None:
        self._vae, self._patch = vae, _patch(config)
        self._memory = Memory(vae.encoder)

    def frames(self, x: Tensor) -> Tensor:
        """The next frames [1, 3, n, H, W] in -1..1, one at first and then as many as the VAE takes together -> the
        middle of what it makes of them, a frame of latents [1, C, 1, h, w]."""
        if self._patch > 1:
            x = _patches().patchify(x, self._patch)
        memory = self._memory.frame()
        found = self._vae.encoder(x, feat_cache=memory.places, feat_idx=memory.at)
        middle: Tensor = self._vae.quant_conv(found).chunk(2, 1)[0]
        return middle


def _doubles(block: Any) -> bool:
    return bool(getattr(block, "upsamplers", None) or getattr(block, "upsampler", None))


def _convolved(layer: Any, x: Tensor, memory: Memory) -> Tensor:
    """A causal convolution by itself, as the blocks of diffusers run theirs."""

    def kept(before: Tensor | None) -> Tensor:
        last = x[:, :, -_REMEMBERED:].clone()
        whole = last.shape[2] == _REMEMBERED or before is None
        return last if whole else torch.cat([before[:, :, -1:], last], 2)  # type: ignore[index]  # not None

    made: Tensor = layer(x, memory.exchange(kept))
    return made


def _patch(config: Mapping[str, Any]) -> int:
    return int(config.get("patch_size") or 1)


def _patches() -> Any:
    from diffusers.models.autoencoders import autoencoder_kl_wan

    return autoencoder_kl_wan
