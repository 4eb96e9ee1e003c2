"""The end of a step on the device: `likeliest` and `finish` choose tokens and move sequences on, `uniform` is what
they draw with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from omnic.runtime.kernels.gemv import launched

_BLOCK = 1024
_PARTS = 64  # at most so many programs a row; a power of two


@dataclass(frozen=True, slots=True)
class State:
    """Where each sequence is; the last slot is nobody's and never moves."""

    tokens: Tensor  # int32 [slots + 1]: the token that runs next
    positions: Tensor  # int32 [slots + 1]: how many ran before it
    drawn: Tensor  # int64 [slots + 1]: tokens of the answer so far
    seeds: Tensor  # int64 [slots + 1, 2]: the seed's 128 bits, the lower half first

    @classmethod
    def of(cls, slots: int, device: torch.device) -> State:
        return cls(
            torch.zeros(slots + 1, dtype=torch.int32, device=device),
            torch.zeros(slots + 1, dtype=torch.int32, device=device),
            torch.zeros(slots + 1, dtype=torch.int64, device=device),
            torch.zeros(slots + 1, 2, dtype=torch.int64, device=device),
        )


@triton.jit
def _likeliest(
    logits, values, indices, vocabulary,
    SHARE: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    place = tl.full([BLOCK], 0, tl.int32) + vocabulary
    for start in tl.static_range(0, SHARE, BLOCK):
        at = part * SHARE + start + tl.arange(0, BLOCK)
        x = tl.load(logits + row * vocabulary + at, mask=at < vocabulary, other=float("-inf")).to(tl.float32)
        x = tl.where(x != x, float("inf"), x)  # what is no number is seen to be none
        place = tl.where(x > best, at, place)
        best = tl.maximum(x, best)
    top = tl.max(best, axis=0)
    tl.store(values + row * PARTS + part, top)
    tl.store(indices + row * PARTS + part, tl.min(tl.where(best == top, place, vocabulary), axis=0))


@triton.jit
def _finish(
    values, indices, drawn_tokens, slots, tokens, positions, drawn, out, spare,
    PARTS: tl.constexpr, DRAWN: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    p = tl.arange(0, PARTS)
    found = tl.load(values + row * PARTS + p)
    top = tl.max(found, axis=0)
    if DRAWN:
        token = tl.load(drawn_tokens + row).to(tl.int32)
    else:
        at = tl.load(indices + row * PARTS + p)
        token = tl.min(tl.where(found == top, at, 2147483647), axis=0)
    slot = tl.load(slots + row)
    sound = tl.abs(top) < float("inf")
    tl.store(out + row, tl.where(sound, token, -1))
    if slot != spare:
        tl.store(tokens + slot, tl.where(sound, token, 0))
        tl.store(positions + slot, tl.load(positions + slot) + 1)
        tl.store(drawn + slot, tl.load(drawn + slot) + 1)


@triton.jit
def _uniform(seeds, drawn, slots, out):
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    key0 = tl.load(seeds + slot * 2).to(tl.uint64, bitcast=True)
    key1 = tl.load(seeds + slot * 2 + 1).to(tl.uint64, bitcast=True)
    a = tl.load(drawn + slot).to(tl.uint64, bitcast=True)
    zero = a ^ a
    b = zero
    c = zero
    d = zero
    left = zero + 0xD2E7470EE14C6C93
    right = zero + 0xCA5A826395121157
    for _ in tl.static_range(10):
        high = tl.umulhi(c, right)
        low = c * right
        other_high = tl.umulhi(a, left)
        other_low = a * left
        a = high ^ b ^ key0
        b = low
        c = other_high ^ d ^ key1
        d = other_low
        key0 += 0x9E3779B97F4A7C15
        key1 += 0xBB67AE8584CAA73B
    tl.store(out + row, (a >> 12).to(tl.float64) * 2.220446049250313e-16)


def parts(vocabulary: int) -> int:
    """How many parts `likeliest` cuts a row into."""
    return min(_PARTS, int(triton.next_power_of_2(triton.cdiv(vocabulary, _BLOCK))))


def likeliest(logits: Tensor, values: Tensor, indices: Tensor, *, dependent: bool = False) -> None:
    """The largest of each part of a row and where it is, the first of equals; inf for one that holds a NaN.

    logits: [rows, vocabulary]; values: float32 [rows, parts]; indices: int32 [rows, parts].
    """
    rows, vocabulary = logits.shape
    count = values.shape[1]
    share = triton.cdiv(triton.cdiv(vocabulary, count), _BLOCK) * _BLOCK
    _likeliest[(rows, count)](
        logits, values, indices, vocabulary, SHARE=share, PARTS=count, BLOCK=_BLOCK, DEPENDENT=dependent,
        num_warps=4, **launched(dependent),
    )  # fmt: skip


def finish(
    values: Tensor, indices: Tensor, drawn: Tensor | None, slots: Tensor, state: State, out: Tensor, *,
    dependent: bool = False,
) -> None:  # fmt: skip
    """The token of each row becomes the next of its sequence, which moves on by one; `out` (int32 [rows]) gets it, or
    -1 where the largest logit is no finite number. `drawn` [rows] says the tokens, or None: the likeliest.

    values, indices: what `likeliest` gave; slots: int32 [rows], the state's last for rows that are nobody's.
    """
    _finish[(len(out),)](
        values, indices, indices if drawn is None else drawn, slots, state.tokens, state.positions, state.drawn, out,
        len(state.tokens) - 1, PARTS=values.shape[1], DRAWN=drawn is not None, DEPENDENT=dependent, num_warps=1,
        **launched(dependent),
    )  # fmt: skip


def uniform(state: State, slots: Tensor, out: Tensor) -> None:
    """out (float64 [rows]) = `sampling.uniform` of each row's seed and place in its answer, to the bit."""
    _uniform[(len(out),)](state.seeds, state.drawn, slots, out, num_warps=1)
