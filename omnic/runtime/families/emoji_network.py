"""The emoji painter: a small diffusion transformer (DiT) from a sentence's token states to a 64×64 picture.

It predicts the velocity of flow matching in the convention of diffusers' FlowMatchEulerDiscreteScheduler: a noisy
picture is `x = sigma * noise + (1 - sigma) * picture`, the time `t` is `sigma`, and the velocity is `noise - picture`.
Pictures are RGB in [-1, 1]; white is 1.

The picture's 4×4 patches and the sentence's tokens are one sequence, so every block attends to both. What the whole
sentence says (the mean of its states, as the encoder's own pooling has it) reaches each block with the time, as
adaptive layer norm whose gates start at zero (adaLN-zero).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of the model. `size` and `patch` are in pixels, `tokens` is the longest caption in tokens."""

    size: int = 64
    patch: int = 4
    channels: int = 3
    width: int = 320
    depth: int = 10
    heads: int = 5
    hidden: int = 960  # of each block's feed-forward part
    condition: int = 96  # width of what adapts the layer norms
    text: int = 384  # width of the encoder's token states
    tokens: int = 24

    @property
    def grid(self) -> int:
        """Patches along a side."""
        return self.size // self.patch

    @property
    def patch_values(self) -> int:
        return self.channels * self.patch**2

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def forward_flops(self, batch: int = 1, tokens: int | None = None) -> int:
        """Floating-point operations of one forward pass (a multiply-add is two), small vectors left out."""
        rows = self.grid**2 + (self.tokens if tokens is None else tokens)
        linear = self.depth * self.width * (4 * self.width + 2 * self.hidden)
        ends = 2 * self.grid**2 * self.patch_values * self.width
        attention = self.depth * 2 * rows * rows * self.width
        return 2 * batch * (rows * linear + attention + ends)


class Block(nn.Module):
    """Attention, then a feed-forward part, each with adaptive layer norm before it and a gate after it."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.heads
        head = c.width // c.heads
        self.adapt = nn.Linear(c.condition, 6 * c.width)
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=False)
        self.q_scale = nn.Parameter(torch.ones(head))
        self.k_scale = nn.Parameter(torch.ones(head))
        self.out = nn.Linear(c.width, c.width)
        self.up = nn.Linear(c.width, c.hidden)
        self.down = nn.Linear(c.hidden, c.width)

    def forward(self, x: Tensor, condition: Tensor, mask: Tensor) -> Tensor:
        """x [B, N, width], condition [B, condition] and mask [B, 1, 1, N] (bool, true: attend to it) -> x's shape."""
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = self.adapt(condition)[:, None].chunk(6, dim=-1)
        x = x + gate_a * self._attend(_adapted(x, shift_a, scale_a), mask)
        y = self.down(F.gelu(self.up(_adapted(x, shift_f, scale_f)), approximate="tanh"))
        out: Tensor = x + gate_f * y
        return out

    def _attend(self, x: Tensor, mask: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k = (_rms(q) * self.q_scale).to(v.dtype), (_rms(k) * self.k_scale).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out: Tensor = self.out(y.transpose(1, 2).reshape(b, n, width))
        return out


class EmojiDiT(nn.Module):
    """The model: `forward(x, t, text, mask)` is the velocity."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = c = config or Config()
        self.patch_in = nn.Linear(c.patch_values, c.width)
        self.position = nn.Parameter(_sine_grid(c.grid, c.width))
        self.token_in = nn.Linear(c.text, c.width)
        self.token_position = nn.Parameter(torch.zeros(c.tokens, c.width))
        self.time = nn.Sequential(nn.Linear(256, c.width), nn.SiLU(), nn.Linear(c.width, c.width))
        self.sentence = nn.Sequential(nn.Linear(c.text, c.width), nn.SiLU(), nn.Linear(c.width, c.width))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(c.width, c.condition), nn.SiLU())
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.depth))
        self.adapt_out = nn.Linear(c.condition, 2 * c.width)
        self.patch_out = nn.Linear(c.width, c.patch_values)
        self._start()

    def _start(self) -> None:
        """Initial weights: small linear layers, and zero where the model should start as the identity."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        gates = [module.adapt for module in self.blocks if isinstance(module, Block)]
        for zero in (*gates, self.adapt_out, self.patch_out):
            nn.init.zeros_(zero.weight)
        nn.init.normal_(self.token_position, std=0.02)

    def forward(self, x: Tensor, t: Tensor, text: Tensor, mask: Tensor) -> Tensor:
        """The velocity [B, 3, 64, 64].

        x [B, 3, 64, 64] is the noisy picture and t [B] its sigma in 0..1. text [B, L, 384] holds the encoder's last
        hidden states, L ≤ 24, and mask [B, L] is true (or 1) at tokens, false at padding, which changes nothing.
        """
        c = self.config
        mask = mask.bool()
        pooled = _rms(_mean(text, mask))
        condition = self.condition(self.time(_sines(t).to(text.dtype)) + self.sentence(pooled))
        patches = self.patch_in(_patched(x, c.patch)) + self.position
        tokens = self.token_in(_rms(text)) + self.token_position[: text.shape[1]]
        h = torch.cat((patches, tokens), dim=1)
        n = patches.shape[1]
        attend = F.pad(mask, (n, 0), value=True)[:, None, None]
        for block in self.blocks:
            h = block(h, condition, attend)
        shift, scale = self.adapt_out(condition)[:, None].chunk(2, dim=-1)
        return _unpatched(self.patch_out(_adapted(h[:, :n], shift, scale)), c.patch, c.grid)


def modulated(block: nn.Module, given: Mapping[str, Any]) -> Tensor:
    """What the attention of a Block sees, from the arguments of its `forward`."""
    assert isinstance(block, Block)
    shift, scale = block.adapt(given["condition"])[:, None].chunk(6, dim=-1)[:2]
    return _adapted(given["x"], shift, scale)


def _adapted(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), 1 + scale)


def _rms(x: Tensor) -> Tensor:
    """x [..., D] over the root mean square of its last dimension."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def _mean(text: Tensor, mask: Tensor) -> Tensor:
    """The mean [B, D] of the states text [B, L, D] at the tokens of mask [B, L]."""
    weights = mask.to(text.dtype)
    return torch.einsum("bl,bld->bd", weights, text) / weights.sum(1, keepdim=True).clamp(min=1)


def _patched(x: Tensor, patch: int) -> Tensor:
    """[B, C, H, W] -> [B, H/patch * W/patch, C * patch * patch], row by row."""
    return F.pixel_unshuffle(x, patch).flatten(2).transpose(1, 2)


def _unpatched(x: Tensor, patch: int, grid: int) -> Tensor:
    """The inverse of `_patched`, for a picture of grid × grid patches."""
    return F.pixel_shuffle(x.transpose(1, 2).reshape(len(x), -1, grid, grid), patch)


def _sines(t: Tensor, width: int = 256) -> Tensor:
    """Sines and cosines [B, width] of t [B], in 0..1, which counts as 0..1000 (DiT's time embedding)."""
    rates = torch.exp(-math.log(10_000) * torch.arange(width // 2, device=t.device) / (width // 2))
    angles = 1000 * t.float()[:, None] * rates
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def _sine_grid(grid: int, width: int) -> Tensor:
    """Sines and cosines [grid², width] of a patch's row and column, where the learned positions start."""
    quarter = width // 4
    rates = 10_000 ** (-torch.arange(quarter) / quarter)
    angles = torch.arange(grid)[:, None] * rates
    line = torch.cat((angles.sin(), angles.cos()), dim=-1)  # [grid, width / 2]
    rows = line[:, None].expand(grid, grid, -1)
    columns = line[None].expand(grid, grid, -1)
    return torch.cat((rows, columns), dim=-1).reshape(grid * grid, -1)
