"""Attention of a piece of a prompt over the pages that hold it and all before it: `prefill_attention`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # rows a program, all of one sequence


@triton.jit
def _prefill_attention(
    queries, keys, values, table, slots, positions, out, rows, scale, each_slot,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    first, head = tl.program_id(0) * BLOCK, tl.program_id(1)
    row = first + tl.arange(0, BLOCK)
    there = row < rows
    d = tl.arange(0, DIM)
    t = tl.arange(0, PAGE)
    position = tl.load(positions + row, mask=there, other=0)
    pages = table + tl.load(slots + first) * each_slot
    places = row.to(tl.int64)[:, None] * HEADS * DIM + head * DIM + d[None, :]
    q = tl.load(queries + places, mask=there[:, None], other=0.0)
    q = (q.to(tl.float32) * scale).to(q.dtype)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    weight = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK, DIM], tl.float32)
    furthest = tl.max(position, axis=0)
    for tile in tl.range(0, furthest // PAGE + 1):
        page = tl.load(pages + tile).to(tl.int64)
        at = (page * KV_HEADS + head // (HEADS // KV_HEADS)) * PAGE * DIM
        k = tl.load(keys + at + t[None, :] * DIM + d[:, None])
        v = tl.load(values + at + t[:, None] * DIM + d[None, :], mask=(tile * PAGE + t <= furthest)[:, None], other=0.0)
        seen = (tile * PAGE + t)[None, :] <= position[:, None]
        scores = tl.where(seen, tl.dot(q, k, input_precision="ieee"), float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        chances = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        summed = summed * shrink[:, None] + tl.dot(chances.to(v.dtype), v, input_precision="ieee")
        weight = weight * shrink + tl.sum(chances, axis=1)
        top = higher
    tl.store(out + places, (summed / weight[:, None]).to(out.dtype.element_ty), mask=there[:, None])


def prefill_attention(
    queries: Tensor, keys: Tensor, values: Tensor, table: Tensor, slots: Tensor, positions: Tensor, out: Tensor
) -> None:
    """out[r] is what row r's queries find among the tokens of its sequence up to its own, whose keys and values must
    all be in their pages.

    queries: [rows, heads, dim]; out: [rows, heads · dim]; keys, values: [pages, kv heads, tokens a page, dim]; table:
    int32 [slots, pages a slot]; slots, positions: int32 [rows]. A sequence's rows start at a multiple of BLOCK; what
    the rows after them get, up to the next multiple, means nothing.
    """
    rows, heads, dim = queries.shape
    _, kv_heads, page, _ = keys.shape
    _prefill_attention[(triton.cdiv(rows, BLOCK), heads)](
        queries, keys, values, table, slots, positions, out, rows, dim**-0.5 * 1.4426950408889634,
        table.shape[1], HEADS=heads, KV_HEADS=kv_heads, DIM=dim, PAGE=page, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
