"""Which weights of Qwen-Image's transformer are held in fp8, and how those that are multiplied together are joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omnic.runtime.product import FP8, Product

_IN_FP8 = re.compile(r"transformer_blocks\.(\d+)\.(attn\.to_(q|k|v|out\.0)|img_mlp\.net\.(0\.proj|2))\.weight")
_KEPT = 4  # layers at either end whose errors go through all others, or straight to the picture


def eight(layers: int) -> Callable[[str], bool]:
    """Which weights of a transformer of so many layers can be held in fp8: the image's, but at both ends."""

    def chosen(name: str) -> bool:
        found = _IN_FP8.fullmatch(name)
        return found is not None and _KEPT <= int(found[1]) < layers - _KEPT

    return chosen


def joined(*parts: Any) -> Product:
    """One product whose outputs are those of all `parts` in turn."""
    narrow = parts[0].weight.dtype == FP8
    return Product(_tensor(parts, "weight"), _tensor(parts, "bias"), _tensor(parts, "weight_scale") if narrow else None)


def _tensor(parts: Sequence[Any], name: str) -> Tensor:
    """One tensor of all parts, which are then views of it."""
    held = [getattr(part, name) for part in parts]
    if len(held) == 1:
        found: Tensor = held[0].data
        return found
    bare = [t.data.view(torch.uint8) if t.dtype == FP8 else t.data for t in held]  # which torch can join
    joined = torch.cat(bare).view(held[0].dtype)
    for part, old, view in zip(parts, held, torch.split(joined, [len(t) for t in held]), strict=True):
        setattr(part, name, nn.Parameter(view, requires_grad=False) if isinstance(old, nn.Parameter) else view)
    return joined
