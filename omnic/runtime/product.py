"""Matrix products of a captured step: `Product`, in the weight's dtype or in fp8."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(FP8).max


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight: [outputs, columns] -> the same in fp8, and float32 [outputs] to multiply it with: the largest of each
    output's weights is the largest fp8."""
    largest = weight.float().abs().amax(1, keepdim=True).clamp_min_(1e-12)
    return (weight.float() * (_LARGEST / largest)).to(FP8), (largest / _LARGEST).squeeze(1)


class Product:
    """x @ weight.T + bias. x: [rows, columns] -> [rows, outputs], in the dtype of the bias.

    `scale`, float32 [outputs], comes with a weight in fp8; rows of x are then in fp8 too, each with a scale
    (`kernels.modulate` makes both), and products are summed in float32.
    """

    __slots__ = ("_bias", "_scale", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor, scale: Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias
        self._scale = None if scale is None else scale[None]

    @property
    def fp8(self) -> bool:
        return self._scale is not None

    def __call__(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """`scale`: float32 [rows], where x is in fp8."""
        if self._scale is None:
            return functional.linear(x, self._weight, self._bias)
        assert scale is not None, "a product in fp8 gets rows in fp8"
        return torch._scaled_mm(
            x, self._weight.T, scale[:, None], self._scale, self._bias, out_dtype=self._bias.dtype, use_fast_accum=True
        )

    def into(self, x: Tensor, out: Tensor) -> None:
        """The product, written to `out`. Not in fp8."""
        assert self._scale is None
        torch.addmm(self._bias, x, self._weight.T, out=out)

    def gelu(self, x: Tensor) -> Tensor:
        """The product after tanh's approximation of GELU, in one kernel where the library has it. Not in fp8."""
        assert self._scale is None
        if x.device.type == "cuda":
            made: Tensor = torch._addmm_activation(self._bias, x, self._weight.T, use_gelu=True)
            return made
        return functional.gelu(functional.linear(x, self._weight, self._bias), approximate="tanh")
