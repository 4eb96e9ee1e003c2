"""One row times a weight matrix, which is read once at the memory's pace: `gemv` and `gated_gemv`."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class Tiling(NamedTuple):
    """How a product is cut: `block` outputs a program, `chunk` columns at a time, `warps` a program."""

    block: int
    chunk: int
    warps: int


@triton.jit
def _gemv(
    x, gain, weight, bias, out, outputs, epsilon,
    COLUMNS: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr,
    BLOCK: tl.constexpr, CHUNK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < outputs
    at = weight + rows.to(tl.int64)[:, None] * COLUMNS
    columns = tl.arange(0, CHUNK)
    w = tl.load(at + columns[None, :], mask=inside[:, None] & (columns < COLUMNS)[None, :], other=0.0,
                eviction_policy="evict_first")  # fmt: skip
    if DEPENDENT:  # weights are nobody's output: the first of them are on their way before the input is ready
        tl.extra.cuda.gdc_wait()
    summed = tl.zeros([BLOCK, CHUNK], tl.float32)
    squares = tl.zeros([CHUNK], tl.float32)
    for start in tl.static_range(0, COLUMNS, CHUNK):
        columns = start + tl.arange(0, CHUNK)
        within = columns < COLUMNS
        if start > 0:
            w = tl.load(at + columns[None, :], mask=inside[:, None] & within[None, :], other=0.0,
                        eviction_policy="evict_first")  # fmt: skip
        row = tl.load(x + columns, mask=within, other=0.0).to(tl.float32)
        if NORM:
            squares += row * row
            row *= tl.load(gain + columns, mask=within, other=0.0).to(tl.float32)
        summed += w.to(tl.float32) * row[None, :]
    total = tl.sum(summed, axis=1)
    if NORM:
        total *= tl.rsqrt(tl.sum(squares, axis=0) / COLUMNS + epsilon)
    if BIAS:
        total += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total += tl.load(out + rows, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + rows, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_gemv(
    x, gain, weight, bias, out, outputs, epsilon,
    COLUMNS: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < outputs
    gate_at = weight + rows.to(tl.int64)[:, None] * COLUMNS
    up_at = weight + (rows + outputs).to(tl.int64)[:, None] * COLUMNS
    columns = tl.arange(0, CHUNK)
    mask = inside[:, None] & (columns < COLUMNS)[None, :]
    gate_w = tl.load(gate_at + columns[None, :], mask=mask, other=0.0, eviction_policy="evict_first")
    up_w = tl.load(up_at + columns[None, :], mask=mask, other=0.0, eviction_policy="evict_first")
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
    gates = tl.zeros([BLOCK, CHUNK], tl.float32)
    ups = tl.zeros([BLOCK, CHUNK], tl.float32)
    squares = tl.zeros([CHUNK], tl.float32)
    for start in tl.static_range(0, COLUMNS, CHUNK):
        columns = start + tl.arange(0, CHUNK)
        within = columns < COLUMNS
        if start > 0:
            mask = inside[:, None] & within[None, :]
            gate_w = tl.load(gate_at + columns[None, :], mask=mask, other=0.0, eviction_policy="evict_first")
            up_w = tl.load(up_at + columns[None, :], mask=mask, other=0.0, eviction_policy="evict_first")
        row = tl.load(x + columns, mask=within, other=0.0).to(tl.float32)
        squares += row * row
        row *= tl.load(gain + columns, mask=within, other=0.0).to(tl.float32)
        gates += gate_w.to(tl.float32) * row[None, :]
        ups += up_w.to(tl.float32) * row[None, :]
    scale = tl.rsqrt(tl.sum(squares, axis=0) / COLUMNS + epsilon)
    gate = tl.sum(gates, axis=1) * scale
    up = tl.sum(ups, axis=1) * scale
    if BIAS:
        gate += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
        up += tl.load(bias + outputs + rows, mask=inside, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + rows, result.to(out.dtype.element_ty), mask=inside)


def gemv(
    x: Tensor, weight: Tensor, out: Tensor, *, gain: Tensor | None = None, epsilon: float = 0.0,
    bias: Tensor | None = None, add: bool = False, dependent: bool = False, tiling: Tiling | None = None,
) -> None:  # fmt: skip
    """out = weight @ x + bias, summed in float32; with `add`, on top of what `out` holds.

    x: [1, columns]; weight: [outputs, columns]; out: [1, outputs]; all contiguous. With `gain` [columns] the product
    is of x brought to a mean square of 1 (plus `epsilon`) and multiplied by it: the norm is taken out of the sum, so
    that x is read once. `dependent` launches it while the kernel before it, so launched too, still runs.
    """
    outputs, columns = weight.shape
    cut = tiling or tiling_of(outputs, columns)
    _gemv[(triton.cdiv(outputs, cut.block),)](
        x, weight if gain is None else gain, weight, weight if bias is None else bias, out, outputs, epsilon,
        COLUMNS=columns, NORM=gain is not None, BIAS=bias is not None, ADD=add,
        BLOCK=cut.block, CHUNK=cut.chunk, DEPENDENT=dependent, num_warps=cut.warps, **launched(dependent),
    )  # fmt: skip


def gated_gemv(
    x: Tensor, weight: Tensor, out: Tensor, *, gain: Tensor, epsilon: float, bias: Tensor | None = None,
    dependent: bool = False, tiling: Tiling | None = None,
) -> None:  # fmt: skip
    """out = silu(gate) · up, where [gate, up] = weight @ (x normed as in `gemv`) + bias.

    x: [1, columns]; weight: [2 · outputs, columns], the gates first; out: [1, outputs].
    """
    outputs, columns = weight.shape[0] // 2, weight.shape[1]
    cut = tiling or tiling_of(outputs, columns)
    _gated_gemv[(triton.cdiv(outputs, cut.block),)](
        x, gain, weight, weight if bias is None else bias, out, outputs, epsilon,
        COLUMNS=columns, BIAS=bias is not None, BLOCK=cut.block, CHUNK=cut.chunk, DEPENDENT=dependent,
        num_warps=cut.warps, **launched(dependent),
    )  # fmt: skip


def tiling_of(outputs: int, columns: int) -> Tiling:
    """A tiling by the sizes of a product, as benchmarks/gemv.py found it: rows of one length, few enough a program that
    all of the device has some."""
    chunk = min(2048 if columns >= 2048 else 1024, triton.next_power_of_2(columns))
    return Tiling(2 if columns >= 2048 and outputs <= 4096 >= columns else 4, chunk, max(1, chunk // 256))


def launched(dependent: bool) -> dict[str, Any]:
    """The launch option of a kernel that may start before the one ahead of it ends."""
    return {"launch_pdl": True} if dependent else {}
