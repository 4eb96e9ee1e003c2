"""The residual stream of a decoder: `embed` begins it, `residual_norm` adds to it and gives it normed."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from omnic.runtime.kernels.gemv import launched


@triton.jit
def _embed(embedding, tokens, slots, x, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    token = tl.load(tokens + tl.load(slots + row)).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    within = columns < WIDTH
    value = tl.load(embedding + token * WIDTH + columns, mask=within)
    tl.store(x + row * WIDTH + columns, value.to(tl.float32), mask=within)


@triton.jit
def _residual_norm(
    x, delta, gain, out, epsilon,
    WIDTH: tl.constexpr, DELTA: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    columns = tl.arange(0, BLOCK)
    within = columns < WIDTH
    weight = tl.load(gain + columns, mask=within, other=0.0).to(tl.float32)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
    start = tl.program_id(0).to(tl.int64) * WIDTH
    value = tl.load(x + start + columns, mask=within, other=0.0)
    if DELTA:
        value += tl.load(delta + start + columns, mask=within, other=0.0).to(tl.float32)
        tl.store(x + start + columns, value, mask=within)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / WIDTH + epsilon)
    tl.store(out + start + columns, (value * scale * weight).to(out.dtype.element_ty), mask=within)


def embed(embedding: Tensor, tokens: Tensor, slots: Tensor, x: Tensor, *, dependent: bool = False) -> None:
    """x[row] = embedding[tokens[slots[row]]]. embedding: [vocabulary, width]; slots: int32 [rows]; x: float32."""
    rows, width = x.shape
    _embed[(rows,)](
        embedding, tokens, slots, x, WIDTH=width, BLOCK=triton.next_power_of_2(width), DEPENDENT=dependent,
        num_warps=_warps(width), **launched(dependent),
    )  # fmt: skip


def residual_norm(
    x: Tensor, delta: Tensor | None, gain: Tensor, out: Tensor, epsilon: float, *, dependent: bool = False
) -> None:
    """x += delta, then out = x / sqrt(mean(x²) + epsilon) · gain, a row at a time, in float32 but for what is stored.

    x: float32 [rows, width]; delta, out: [rows, width]; gain: [width]; all contiguous.
    """
    rows, width = x.shape
    _residual_norm[(rows,)](
        x, x if delta is None else delta, gain, out, epsilon, WIDTH=width, DELTA=delta is not None,
        BLOCK=triton.next_power_of_2(width), DEPENDENT=dependent, num_warps=_warps(width), **launched(dependent),
    )  # fmt: skip


def _warps(width: int) -> int:
    return max(1, min(16, int(triton.next_power_of_2(width)) // 512))
