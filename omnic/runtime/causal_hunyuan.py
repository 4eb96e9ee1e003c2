"""The causal VAE of HunyuanVideo 1.5. diffusers runs it over all frames at once; here its modules run frame by frame,
over what they remember, with the same numbers and without attention masks of frames times frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from omnic.runtime.causal import Memory, reach_of

_REMEMBERED = 2  # frames before, of kernels of three


class HunyuanLayers:
    """Satisfies `causal.Layers`."""

    def __init__(self, vae: Any, config: Mapping[str, Any]) -> None:
        self.module: nn.Module = vae.decoder
        self.beside: Sequence[nn.Module] = ()
        self.blocks: Sequence[nn.Module] = tuple(vae.decoder.up_blocks)
        self.doubles = tuple(block.upsamplers is not None for block in vae.decoder.up_blocks)
        self.reach = reach_of(
            [(2 * len(b.resnets) + int(d), 0, d) for b, d in zip(vae.decoder.up_blocks, self.doubles, strict=True)]
        )
        self.scale, self.later = int(config["spatial_compression_ratio"]), int(config["temporal_compression_ratio"])

    def head(self, z: Tensor, memory: Memory) -> Tensor:
        decoder: Any = self.module
        x = _convolved(decoder.conv_in, z, memory) + z.repeat_interleave(decoder.repeat, 1)
        first, *rest = decoder.mid_block.resnets
        x = _resnet(first, x, memory)
        for attention, resnet in zip(decoder.mid_block.attentions, rest, strict=True):
            if attention is not None:
                x = _attended(attention, x, memory)
            x = _resnet(resnet, x, memory)
        return x

    def block(self, index: int, x: Tensor, memory: Memory) -> Tensor:
        block: Any = self.blocks[index]
        for resnet in block.resnets:
            x = _resnet(resnet, x, memory)
        for upsampler in block.upsamplers or ():
            x = _larger(upsampler, x, memory)
        return x

    def tail(self, x: Tensor, memory: Memory) -> Tensor:
        decoder: Any = self.module
        return _convolved(decoder.conv_out, decoder.conv_act(decoder.norm_out(x)), memory)


def _convolved(layer: Any, x: Tensor, memory: Memory) -> Tensor:
    """A causal convolution. Before the first frame there was, to it, what the first one shows."""

    def kept(before: Tensor | None) -> Tensor:
        whole = torch.cat([x[:, :, :1].repeat(1, 1, _REMEMBERED, 1, 1) if before is None else before, x], 2)
        return whole[:, :, -_REMEMBERED:].clone()

    before = memory.exchange(kept)
    if before is None:
        before = x[:, :, :1].repeat(1, 1, _REMEMBERED, 1, 1)
    around = (*layer.time_causal_padding[:4], 0, 0)
    made: Tensor = layer.conv(functional.pad(torch.cat([before, x], 2), around, mode=layer.pad_mode))
    return made


def _resnet(layer: Any, x: Tensor, memory: Memory) -> Tensor:
    made = _convolved(layer.conv1, layer.nonlinearity(layer.norm1(x)), memory)
    made = _convolved(layer.conv2, layer.nonlinearity(layer.norm2(made)), memory)
    return made + (x if layer.conv_shortcut is None else layer.conv_shortcut(x))


def _attended(layer: Any, x: Tensor, memory: Memory) -> Tensor:
    """Attention of a frame over itself and all before it."""
    normed = layer.norm(x)
    query, key, value = (_places(project(normed)) for project in (layer.to_q, layer.to_k, layer.to_v))

    def kept(before: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        return (key, value) if before is None else (torch.cat([before[0], key], 2), torch.cat([before[1], value], 2))

    place = memory.at[0]
    memory.exchange(kept)
    keys, values = memory.places[place]
    found = functional.scaled_dot_product_attention(query, keys, values)
    made: Tensor = layer.proj_out(found.squeeze(1).transpose(1, 2).reshape(x.shape)) + x
    return made


def _places(x: Tensor) -> Tensor:
    """[1, C, 1, h, w] -> [1, 1, h w, C]."""
    return x.flatten(2).transpose(1, 2)[:, None]


def _larger(layer: Any, x: Tensor, memory: Memory) -> Tensor:
    """Twice as many rows and columns and, where the layer does, as many frames, of which the first is one."""
    made = _convolved(layer.conv, x, memory)
    repeats, frames = layer.repeats, 2 if layer.add_temporal_upsample else 1
    if frames == 2 and memory.first:
        made = layer._dcae_upsample_rearrange(made, r1=1)
        made, frames = made[:, : made.shape[1] // 2], 1
        beside = layer._dcae_upsample_rearrange(x, r1=1).repeat_interleave(repeats // 2, 1)
    elif frames == 2:
        made = layer._dcae_upsample_rearrange(made, r1=2)
        beside = layer._dcae_upsample_rearrange(x, r1=2).repeat_interleave(repeats, 1)
    else:
        made = layer._dcae_upsample_rearrange(made, r1=1)
        beside = layer._dcae_upsample_rearrange(x.repeat_interleave(repeats, 1), r1=1)
    larger: Tensor = made + beside
    return larger
