"""Adaptive layer norm of diffusion transformers: `modulate`, which may add a gated residual first and give fp8."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

FP8_MAX = 448.0  # of float8_e4m3fn


@triton.jit
def _modulate(
    x, delta, gate, shift, scale, out, out_scale, epsilon, rows_a_job, stride, gate_stride,
    WIDTH: tl.constexpr, DELTA: tl.constexpr, FP8: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    job = row // rows_a_job
    columns = tl.arange(0, BLOCK)
    within = columns < WIDTH
    value = tl.load(x + row * WIDTH + columns, mask=within, other=0.0).to(tl.float32)
    if DELTA:
        gates = tl.load(gate + job * gate_stride + columns, mask=within, other=0.0).to(tl.float32)
        value += gates * tl.load(delta + row * WIDTH + columns, mask=within, other=0.0).to(tl.float32)
        held = value.to(x.dtype.element_ty)
        tl.store(x + row * WIDTH + columns, held, mask=within)
        value = held.to(tl.float32)
    mean = tl.sum(value, axis=0) / WIDTH
    centred = tl.where(within, value - mean, 0.0)
    normed = centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / WIDTH + epsilon)
    scales = tl.load(scale + job * stride + columns, mask=within, other=0.0).to(tl.float32)
    shifts = tl.load(shift + job * stride + columns, mask=within, other=0.0).to(tl.float32)
    result = normed * (1.0 + scales) + shifts
    if FP8:
        largest = tl.maximum(tl.max(tl.where(within, tl.abs(result), 0.0), axis=0), 1e-12)
        tl.store(out_scale + row, largest / 448.0)
        result = result * (448.0 / largest)
    tl.store(out + row * WIDTH + columns, result.to(out.dtype.element_ty), mask=within)


def modulate(
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    out: Tensor,
    epsilon: float,
    *,
    delta: Tensor | None = None,
    gate: Tensor | None = None,
    out_scale: Tensor | None = None,
) -> None:
    """x += gate · delta where `delta` is given; out = layer_norm(x) · (1 + scale) + shift, in float32 but for what is
    stored.

    x, delta, out: [rows, width], contiguous; shift, scale, gate: [jobs, width], each for rows / jobs consecutive rows;
    jobs lie as far apart in shift as in scale. With `out_scale`, float32 [rows], out is float8_e4m3fn, and out ·
    out_scale the result.
    """
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    _modulate[(rows,)](
        x, x if delta is None else delta, shift if gate is None else gate, shift, scale, out,
        x if out_scale is None else out_scale, epsilon, rows // shift.shape[0], shift.stride(0),
        shift.stride(0) if gate is None else gate.stride(0),
        WIDTH=width, DELTA=delta is not None, FP8=out_scale is not None, BLOCK=block,
        num_warps=max(1, min(8, block // 512)),
    )  # fmt: skip


@triton.jit
def _quantise(x, out, out_scale, WIDTH: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    within = columns < WIDTH
    value = tl.load(x + row * WIDTH + columns, mask=within, other=0.0).to(tl.float32)
    if GELU:
        inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
        value = value / (1.0 + tl.exp(-2.0 * inner))  # x · sigmoid(2y) is x / 2 · (1 + tanh(y))
    largest = tl.maximum(tl.max(tl.abs(value), axis=0), 1e-12)
    tl.store(out_scale + row, largest / 448.0)
    tl.store(out + row * WIDTH + columns, (value * (448.0 / largest)).to(out.dtype.element_ty), mask=within)


def quantise(x: Tensor, out: Tensor, out_scale: Tensor, *, gelu: bool = False) -> None:
    """Rows of x, after tanh's approximation of GELU where `gelu`, as out · out_scale with the largest of each row at
    the largest fp8.

    x: [rows, width]; out: float8_e4m3fn of that shape; out_scale: float32 [rows]; all contiguous.
    """
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    _quantise[(rows,)](x, out, out_scale, WIDTH=width, GELU=gelu, BLOCK=block, num_warps=max(1, min(16, block // 1024)))
