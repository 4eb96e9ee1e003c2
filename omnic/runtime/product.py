"""Matrix products of a captured step: `Product`, in the weight's dtype or in fp8."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(FP8).max


class Product:
    """x @ weight.T + bias. x: [rows, columns] -> [rows, outputs], in the dtype of the bias.

    In fp8, each output's weights have a scale and so has each row of x (`kernels.modulate` makes both), and products
    are summed in float32.
    """

    __slots__ = ("_bias", "_scale", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor, *, fp8: bool = False) -> None:
        self._bias, self._scale = bias, None
        if fp8:
            largest = weight.float().abs().amax(1, keepdim=True).clamp_min_(1e-12)
            self._scale = (largest / _LARGEST).T.contiguous()  # [1, outputs]
            weight = (weight.float() * (_LARGEST / largest)).to(FP8)
        self._weight = weight

    @property
    def fp8(self) -> bool:
        return self._scale is not None

    @property
    def nbytes(self) -> int:
        return self._weight.nbytes + self._bias.nbytes + (0 if self._scale is None else self._scale.nbytes)

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
