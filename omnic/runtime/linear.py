"""Matrix products with a weight that never changes: `Linear`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

_TILE = 64  # oneDNN's blocked layouts pad to this; a weight that needs no padding keeps its exact size
_ROWS = 32  # oneDNN's bf16 kernels give a row the same bits in any batch of two to so many; with AMX, of one too


class Linear:
    """x @ weight.T + bias. x: [rows, columns] -> [rows, outputs].

    On a CPU with bf16 instructions the weight is held in oneDNN's blocked layout, which saves rearranging it at
    every product. The packed copy replaces the weight it is made from: where `packs` says so, `weight` is free to be
    overwritten afterwards.

    bf16 products on a CPU run in blocks of rows, so that what a row gives does not depend on the rows beside it. That
    reads the weights once a block, which long prompts pay for. benchmarks/linear.py measures both.
    """

    __slots__ = ("_packed", "_weight", "bias")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, pack: bool = True) -> None:
        pack = pack and weight.device.type == "cpu" and packs(weight.shape, weight.dtype)
        self.bias = bias
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None) if pack else None
        self._weight = None if pack else weight

    @property
    def weight(self) -> Tensor:
        """The weight [outputs, columns] as it was given, where it was not packed."""
        assert self._weight is not None, "packed"
        return self._weight

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if x.dtype != torch.bfloat16 or x.device.type != "cpu":
            return self._product(x)
        if rows > _ROWS:
            return torch.cat([self._product(block) for block in _blocks(x)])
        if rows == 1 and self._packed is None:
            # torch's product of one bf16 row takes a path that is slower for large weights and rounds otherwise
            return self._product(x.expand(2, -1))[:1]
        return self._product(x)

    def _product(self, x: Tensor) -> Tensor:
        if self._packed is not None:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
            return product
        assert self._weight is not None
        return functional.linear(x, self._weight, self.bias)


def _blocks(x: Tensor) -> list[Tensor]:
    blocks = list(torch.split(x, _ROWS))
    if blocks[-1].shape[0] == 1:  # see `rows == 1` above
        blocks[-2:] = torch.split(torch.cat(blocks[-2:]), [_ROWS - 1, 2])
    return blocks


def packs(shape: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether `Linear` makes its own packed copy of a weight of this shape on this CPU."""
    return (
        dtype == torch.bfloat16
        and all(size % _TILE == 0 for size in shape)
        and torch._C._has_mkldnn
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
