"""Latents: their noise, how transformers pack them, how VAEs scale them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional


def noise(shape: Sequence[int], generator: Generator) -> Tensor:
    """Standard normal, float32, drawn on the CPU: the same on every device."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32)


def packed(x: Tensor, patch: int = 2) -> Tensor:
    """[B, C, H, W] -> [B, H/p · W/p, C·p·p], patches row by row, channels before the places in a patch."""
    return functional.pixel_unshuffle(x, patch).flatten(2).transpose(1, 2)


def unpacked(x: Tensor, height: int, width: int, patch: int = 2) -> Tensor:
    """The inverse of `packed`, for latents of height × width."""
    grid = x.transpose(1, 2).reshape(len(x), -1, height // patch, width // patch)
    return functional.pixel_shuffle(grid, patch)


def standardised(x: Tensor, config: Mapping[str, Any]) -> Tensor:
    """A VAE's latents [B, C, …] as transformers see them, by its config: `latents_mean` and `latents_std` of each
    channel, or one `shift_factor` for all; and `scaling_factor`."""
    mean, std = _statistics(x, config)
    return (x - mean) / std


def restored(x: Tensor, config: Mapping[str, Any]) -> Tensor:
    """The inverse of `standardised`."""
    mean, std = _statistics(x, config)
    return x * std + mean


def _statistics(x: Tensor, config: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, std = (
        torch.tensor(found if (found := config.get(name)) is not None else [other], dtype=x.dtype, device=x.device)
        for name, other in (("latents_mean", config.get("shift_factor") or 0.0), ("latents_std", 1.0))
    )
    return mean.view(shape), std.view(shape) / (config.get("scaling_factor") or 1.0)


def padded(states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows [1, n, width] of different lengths as one [rows, longest, width], and the mask [rows, longest] of what is
    no padding."""
    longest = max(s.shape[1] for s in states)
    rows = torch.cat([functional.pad(s, (0, 0, 0, longest - s.shape[1])) for s in states])
    lengths = torch.tensor([s.shape[1] for s in states], device=rows.device)
    return rows, torch.arange(longest, device=rows.device)[None] < lengths[:, None]
