"""Attention without a causal mask: which kernel computes it, and the call."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of rows of `places`, of which the first `lengths` count (int32 [rows]; None: all of them).

    `kernel` is `flash3` (FlashAttention 3, Hopper, bf16), else `sdpa`, torch's own choice.
    """

    kernel: str
    rows: int
    places: int
    lengths: Tensor | None
    starts: Tensor | None = None  # of each row in rows joined, int32 [rows + 1]
    mask: Tensor | None = None

    @classmethod
    def of(cls, rows: int, places: int, lengths: Tensor | None, like: Tensor) -> Attention:
        """For queries of the dtype and on the device of `like`. Reads nothing of `lengths` before it is called."""
        if _flash3(like) is not None:
            starts = torch.arange(0, (rows + 1) * places, places, dtype=torch.int32, device=like.device)
            return cls("flash3", rows, places, lengths, starts)
        mask = None
        if lengths is not None:  # a view of what `seen` fills
            mask = torch.zeros(rows, 1, 1, places, dtype=like.dtype, device=like.device)
        return cls("sdpa", rows, places, lengths, None, mask)

    def seen(self) -> None:
        """Takes over `lengths` as they are now."""
        if self.mask is not None and self.lengths is not None:
            hidden = torch.arange(self.places, device=self.mask.device) >= self.lengths[:, None]
            self.mask.copy_(torch.zeros_like(self.mask).masked_fill_(hidden[:, None, None], float("-inf")))

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each [rows, places, heads, dim] -> the same."""
        flash3 = _flash3(query) if self.kernel == "flash3" else None
        if flash3 is None:
            q, k, v = (t.transpose(1, 2) for t in (query, key, value))
            return functional.scaled_dot_product_attention(q, k, v, self.mask).transpose(1, 2)
        if self.lengths is None:
            made: Tensor = flash3.flash_attn_func(query, key, value)
            return made
        joined = (t.flatten(0, 1) for t in (query, key, value))
        made = flash3.flash_attn_varlen_func(
            *joined, self.starts, self.starts, self.places, self.places, seqused_k=self.lengths
        )
        return made.view(query.shape)


def _flash3(like: Tensor) -> Any:
    """FlashAttention 3, where it is installed and runs on the device of `like`, in its dtype; else None."""
    if like.device.type != "cuda" or like.dtype != torch.bfloat16:
        return None
    return _installed(torch.cuda.get_device_capability(like.device) == (9, 0))


@functools.cache
def _installed(hopper: bool) -> Any:
    if not hopper:
        return None
    try:
        import fa3_fwd_interface
    except ImportError:
        return None
    return fa3_fwd_interface
