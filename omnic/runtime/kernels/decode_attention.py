"""Attention of one new token a row over its pages of keys and values: `decode_attention`.

The new token's query and key are normed and rotated here, and its key and value kept, so that between the products
around it attention is one kernel. A row's tokens are split among programs (Dao et al., "Flash-Decoding", 2023), as many
as its length asks for; the last of them to end joins what all have found.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from omnic.runtime.kernels.gemv import launched

_GROUP = 16  # rows of a matrix instruction; the query heads of one key head fill some of them


@dataclass(frozen=True, slots=True)
class Workspace:
    """What programs leave for the one that joins them, for up to `rows` rows. `arrived` is zero between launches."""

    splits: int
    sums: Tensor  # float32 [rows, heads, splits, dim]
    tops: Tensor  # float32 [rows, heads, splits]: the largest score, in powers of two
    weights: Tensor  # float32 [rows, heads, splits]: the sum of exponentials
    arrived: Tensor  # int32 [rows, kv heads]

    @classmethod
    def of(cls, rows: int, heads: int, kv_heads: int, dim: int, splits: int, device: torch.device) -> Workspace:
        return cls(
            splits,
            torch.empty(rows, heads, splits, dim, dtype=torch.float32, device=device),
            torch.empty(rows, heads, splits, dtype=torch.float32, device=device),
            torch.empty(rows, heads, splits, dtype=torch.float32, device=device),
            torch.zeros(rows, kv_heads, dtype=torch.int32, device=device),
        )


@triton.jit
def _look(q, k, v, seen, top, weight, summed):
    """One page more: the largest score, the sum of exponentials and the sum of values, of all that was seen."""
    scores = tl.where(seen[None, :], tl.dot(q, k, input_precision="ieee"), float("-inf"))
    higher = tl.maximum(top, tl.max(scores, axis=1))
    chances = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(top - higher)
    summed = summed * shrink[:, None] + tl.dot(chances.to(v.dtype), v, input_precision="ieee")
    return higher, weight * shrink + tl.sum(chances, axis=1), summed


@triton.jit
def _decode_attention(
    qkv, norm, cosine, sine, keys, values, table, slots, positions, out, sums, tops, weights, arrived, epsilon, scale,
    each_slot,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SHARED: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr,
    PAGE: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr, NORM: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(slots + row)
    position = tl.load(positions + slot)
    tiles = (position + PAGE - 1) // PAGE
    each = tl.maximum((tiles + SPLITS - 1) // SPLITS, LEAST)
    used = tl.maximum((tiles + each - 1) // each, 1)
    d = tl.arange(0, DIM)
    g = tl.arange(0, GROUP)
    t = tl.arange(0, PAGE)
    other = (d + DIM // 2) % DIM
    wanted = (g < SHARED)[:, None]
    heads = (head * SHARED + g)[:, None] * DIM
    turn = tl.load(cosine + position * DIM + d)
    swap = tl.load(sine + position * DIM + d)
    first = split * each
    page = tl.load(table + slot * each_slot + tl.minimum(first, each_slot - 1)).to(tl.int64)
    at = (page * KV_HEADS + head) * PAGE * DIM
    seen = first * PAGE + t < position
    k = tl.load(keys + at + t[None, :] * DIM + d[:, None], mask=seen[None, :], other=0.0)
    v = tl.load(values + at + t[:, None] * DIM + d[None, :], mask=seen[:, None], other=0.0)
    if DEPENDENT:  # all above was there before the step began
        tl.extra.cuda.gdc_wait()
    if split >= used:
        return
    # the query heads that share this key head, and the new token's key
    start = qkv + row.to(tl.int64) * (HEADS + 2 * KV_HEADS) * DIM
    mine = (HEADS + head) * DIM
    q = tl.load(start + heads + d[None, :], mask=wanted, other=0.0).to(tl.float32)
    r = tl.load(start + heads + other[None, :], mask=wanted, other=0.0).to(tl.float32)
    x = tl.load(start + mine + d).to(tl.float32)
    y = tl.load(start + mine + other).to(tl.float32)
    value = tl.load(start + mine + KV_HEADS * DIM + d)
    if NORM:
        size = tl.rsqrt(tl.sum(q * q, axis=1) / DIM + epsilon)[:, None]
        q *= size * tl.load(norm + heads + d[None, :], mask=wanted, other=0.0).to(tl.float32)
        r *= size * tl.load(norm + heads + other[None, :], mask=wanted, other=0.0).to(tl.float32)
        length = tl.rsqrt(tl.sum(x * x, axis=0) / DIM + epsilon)
        x *= length * tl.load(norm + mine + d).to(tl.float32)
        y *= length * tl.load(norm + mine + other).to(tl.float32)
    q = ((q * turn[None, :] + r * swap[None, :]) * scale).to(keys.dtype.element_ty)
    key = (x * turn + y * swap).to(keys.dtype.element_ty)
    last = split == used - 1
    if last:  # the new token is its to keep, and to look at
        page = tl.load(table + slot * each_slot + position // PAGE).to(tl.int64)
        into = ((page * KV_HEADS + head) * PAGE + position % PAGE) * DIM + d
        tl.store(keys + into, key)
        tl.store(values + into, value)
    score = tl.sum(q.to(tl.float32) * key.to(tl.float32)[None, :], axis=1)
    top = tl.where(last, score, float("-inf"))
    weight = tl.where(last, 1.0, 0.0) + tl.zeros([GROUP], tl.float32)
    summed = tl.where(last, value.to(tl.float32), 0.0)[None, :] + tl.zeros([GROUP, DIM], tl.float32)
    top, weight, summed = _look(q, k, v, seen, top, weight, summed)
    for tile in tl.range(first + 1, tl.minimum(first + each, tiles)):
        page = tl.load(table + slot * each_slot + tile).to(tl.int64)
        at = (page * KV_HEADS + head) * PAGE * DIM
        seen = tile * PAGE + t < position
        k = tl.load(keys + at + t[None, :] * DIM + d[:, None])
        v = tl.load(values + at + t[:, None] * DIM + d[None, :], mask=seen[:, None], other=0.0)
        top, weight, summed = _look(q, k, v, seen, top, weight, summed)
    result = out + row.to(tl.int64) * HEADS * DIM + heads + d[None, :]
    if used == 1:
        tl.store(result, (summed / weight[:, None]).to(out.dtype.element_ty), mask=wanted)
    else:
        place = (row * HEADS + head * SHARED + g) * SPLITS + split
        tl.store(sums + place.to(tl.int64)[:, None] * DIM + d[None, :], summed, mask=wanted)
        tl.store(tops + place, top, mask=g < SHARED)
        tl.store(weights + place, weight, mask=g < SHARED)
        tl.debug_barrier()  # all of this program's stores come before its arrival
        if tl.atomic_add(arrived + row * KV_HEADS + head, 1, sem="acq_rel") == used - 1:
            s = tl.arange(0, SPLITS)
            for one in tl.static_range(SHARED):
                places = (row * HEADS + head * SHARED + one) * SPLITS + s
                there = s < used
                found = tl.load(tops + places, mask=there, other=float("-inf"), cache_modifier=".cg")
                share = tl.exp2(found - tl.max(found, axis=0))
                whole = tl.sum(tl.load(weights + places, mask=there, other=0.0, cache_modifier=".cg") * share, axis=0)
                parts = tl.load(
                    sums + places.to(tl.int64)[:, None] * DIM + d[None, :], mask=there[:, None], other=0.0,
                    cache_modifier=".cg",
                )  # fmt: skip
                joined = tl.sum(parts * share[:, None], axis=0) / whole
                at_head = out + (row.to(tl.int64) * HEADS + head * SHARED + one) * DIM + d
                tl.store(at_head, joined.to(out.dtype.element_ty))
            tl.store(arrived + row * KV_HEADS + head, 0)


def decode_attention(
    qkv: Tensor, norm: Tensor | None, cosine: Tensor, sine: Tensor, keys: Tensor, values: Tensor, table: Tensor,
    slots: Tensor, positions: Tensor, out: Tensor, work: Workspace, epsilon: float, *, dependent: bool = False,
    least: int | None = None,
) -> None:  # fmt: skip
    """Row r is the token at `positions[slots[r]]` of sequence `slots[r]`: its key and value are kept, and out[r] gets
    what its queries find among all tokens up to and with it.

    qkv: [rows, (heads + 2 · kv heads) · dim]; out: [rows, heads · dim]; the others as in `rope`, but positions, which
    are those of slots. No two rows share a slot, but for one whose result nobody wants. `least` is the fewest pages
    that a program is given, of rows that have as many.
    """
    rows = qkv.shape[0]
    _, kv_heads, page, dim = keys.shape
    heads = out.shape[1] // dim
    _decode_attention[(rows, kv_heads, work.splits)](
        qkv, qkv if norm is None else norm, cosine, sine, keys, values, table, slots, positions, out,
        work.sums, work.tops, work.weights, work.arrived, epsilon, dim**-0.5 * 1.4426950408889634,
        table.shape[1], HEADS=heads, KV_HEADS=kv_heads, SHARED=heads // kv_heads,
        GROUP=max(_GROUP, triton.next_power_of_2(heads // kv_heads)),
        DIM=dim, PAGE=page, SPLITS=work.splits, LEAST=least or least_of(rows, kv_heads),
        NORM=norm is not None, DEPENDENT=dependent, num_warps=4, **launched(dependent),
    )  # fmt: skip


def splits_of(rows: int, kv_heads: int) -> int:
    """Programs that one row and key head may be split among: enough to fill the device with a few rows."""
    return max(2, min(32, int(triton.next_power_of_2(256 // (rows * kv_heads)))))


def least_of(rows: int, kv_heads: int) -> int:
    """Pages below which a program's share is not split further: joining shares costs more than it saves where rows
    alone fill the device."""
    return 1 if rows * kv_heads <= 64 else 2 if rows * kv_heads <= 128 else 8
