"""Queries and keys of a prompt: normed, rotated, and kept with the values in pages: `rope`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rotated(at, norm, cosine, sine, epsilon, position, d, DIM: tl.constexpr, NORM: tl.constexpr):
    """The head of DIM numbers at `at`, normed and turned to its position. `norm` points to the head's gains."""
    other = (d + DIM // 2) % DIM
    x = tl.load(at + d).to(tl.float32)
    y = tl.load(at + other).to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / DIM + epsilon)
        x *= scale * tl.load(norm + d).to(tl.float32)
        y *= scale * tl.load(norm + other).to(tl.float32)
    return x * tl.load(cosine + position * DIM + d) + y * tl.load(sine + position * DIM + d)


@triton.jit
def _rope(
    qkv, norm, cosine, sine, keys, values, table, slots, positions, queries, epsilon, each_slot,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, DIM)
    position = tl.load(positions + row)
    at = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * DIM
    turned = rotated(at, norm + head * DIM, cosine, sine, epsilon, position, d, DIM, NORM)
    if head < HEADS:
        tl.store(queries + (row * HEADS + head) * DIM + d, turned.to(queries.dtype.element_ty))
    else:
        page = tl.load(table + tl.load(slots + row) * each_slot + position // PAGE).to(tl.int64)
        into = ((page * KV_HEADS + head - HEADS) * PAGE + position % PAGE) * DIM + d
        tl.store(keys + into, turned.to(keys.dtype.element_ty))
        tl.store(values + into, tl.load(at + KV_HEADS * DIM + d))


def rope(
    qkv: Tensor, norm: Tensor | None, cosine: Tensor, sine: Tensor, keys: Tensor, values: Tensor, table: Tensor,
    slots: Tensor, positions: Tensor, queries: Tensor, epsilon: float,
) -> None:  # fmt: skip
    """Fills `queries`, and the pages of `keys` and `values` that hold the rows' positions.

    qkv: [rows, (heads + 2 · kv heads) · dim]; norm: [heads + kv heads, dim] or None; cosine, sine: float32 [context,
    dim], the sine's first half negative (x · cosine + swapped halves · sine); keys, values: [pages, kv heads, tokens
    a page, dim]; table: int32 [slots, pages a slot]; slots, positions: int32 [rows]; queries: [rows, heads, dim].
    """
    rows, heads, dim = queries.shape
    _, kv_heads, page, _ = keys.shape
    _rope[(rows, heads + kv_heads)](
        qkv, qkv if norm is None else norm, cosine, sine, keys, values, table, slots, positions, queries, epsilon,
        table.shape[1], HEADS=heads, KV_HEADS=kv_heads, DIM=dim, PAGE=page, NORM=norm is not None, num_warps=1,
    )  # fmt: skip
