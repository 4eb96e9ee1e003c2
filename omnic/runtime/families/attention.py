"""Attention over the slots of a cache, for spans of different lengths in one forward: `Plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.language import Span

_CALL_TOKENS = 256  # what one more call costs, as cached tokens that could be read in that time
# Within these a row has the same bits in any call, whatever else the call holds (bf16, on a CPU):
_ALIGNED = 16  # lengths are padded to a multiple, always with a mask
_ROWS = 32  # positions of one sequence in a call


class Cache:
    """Keys and values of one layer: `slots` sequences of up to `context` tokens. All of it is touched at once."""

    def __init__(self, slots: int, context: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
        # a token's key and value lie side by side, as they are written together
        memory = torch.empty(slots, context, 2, kv_heads, head_dim, dtype=dtype).zero_()
        self.context, self.kv_heads, self.nbytes = context, kv_heads, memory.nbytes
        self.keys, self.values = memory.permute(2, 0, 3, 1, 4).unbind()  # each [slots, kv heads, context, head_dim]
        self._keys, self._values = memory.view(-1, 2, kv_heads, head_dim).unbind(1)

    def put(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Writes keys and values [rows, kv heads, head_dim] at `rows`: slot * context + position."""
        self._keys.index_copy_(0, rows, keys)
        self._values.index_copy_(0, rows, values)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows attended to in one call: single tokens in slots `low` to `high`, or one longer span.

    The call reads `length` tokens of each slot; `mask` hides what a row must not see. Where slots between lie
    idle, `at` says at which of them the rows are.
    """

    first: int  # row of the forward
    rows: int
    low: int
    high: int
    length: int
    mask: Tensor
    at: Tensor | None = None


class Plan:
    """How one forward's rows attend. Made once a forward, used by every layer."""

    def __init__(self, spans: Sequence[Span], context: int, dtype: torch.dtype) -> None:
        """`spans` in any order; runs of single tokens in rising slots are what can share a call."""
        self._context, self._dtype = context, dtype
        groups: list[Group] = []
        run: list[Span] = []
        row = 0
        for span in spans:
            if len(span.tokens) == 1 and (not run or span.slot > run[-1].slot):
                run.append(span)
            else:
                groups += self._together(run, row - len(run))
                run = [span] if len(span.tokens) == 1 else []
                if not run:
                    groups += self._alone(span, row)
            row += len(span.tokens)
        groups += self._together(run, row - len(run))
        self._groups = tuple(groups)

    def attend(self, queries: Tensor, cache: Cache) -> Tensor:
        """queries: [rows, heads, head_dim] -> the same of attended values."""
        if len(self._groups) == 1:
            return _attend(queries, cache, self._groups[0])
        parts = [_attend(queries[g.first : g.first + g.rows], cache, g) for g in self._groups]
        return torch.cat(parts)

    def _alone(self, span: Span, row: int) -> list[Group]:
        groups = []
        for at in range(0, len(span.tokens), _ROWS):
            rows = min(_ROWS, len(span.tokens) - at)
            start = span.start + at
            length = self._padded(start + rows)
            mask = torch.full((rows, length), float("-inf"), dtype=self._dtype).triu_(start + 1)
            if rows == 1:  # as single tokens attend
                mask = mask.view(1, 1, 1, length)
            groups.append(Group(row + at, rows, span.slot, span.slot + 1, length, mask))
        return groups

    def _together(self, run: Sequence[Span], row: int) -> list[Group]:
        """Single tokens in rising slots, cut where one more call is cheaper than what padding would read."""
        best: list[tuple[int, int]] = [(0, 0)]  # per count of spans: least cost, and where its last group starts
        for end in range(1, len(run) + 1):
            choices, length = [], 0
            for start in range(end - 1, -1, -1):
                length = max(length, run[start].start + 1)
                read = (run[end - 1].slot - run[start].slot + 1) * length
                choices.append((best[start][0] + _CALL_TOKENS + read, start))
            best.append(min(choices))
        groups: list[Group] = []
        end = len(run)
        while end:
            start = best[end][1]
            groups.append(self._group(run[start:end], row + start))
            end = start
        return groups[::-1]

    def _group(self, run: Sequence[Span], row: int) -> Group:
        low, high = run[0].slot, run[-1].slot + 1
        length = self._padded(max(span.start for span in run) + 1)
        at = torch.tensor([span.slot - low for span in run])
        seen = torch.full((high - low,), length)  # idle slots see all: what they give is not used
        seen[at] = torch.tensor([span.start + 1 for span in run])
        hidden = torch.arange(length) >= seen.unsqueeze(1)
        mask = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, float("-inf"))
        return Group(
            row, len(run), low, high, length, mask.view(-1, 1, 1, length), at if len(run) < high - low else None
        )

    def _padded(self, length: int) -> int:
        return min(-(-length // _ALIGNED) * _ALIGNED, self._context)


def _attend(queries: Tensor, cache: Cache, group: Group) -> Tensor:
    keys = cache.keys[group.low : group.high, :, : group.length]
    values = cache.values[group.low : group.high, :, : group.length]
    rows, heads, dim = queries.shape
    kv_heads = cache.kv_heads
    if group.mask.ndim == 2:  # one sequence: its rows are positions
        positions = queries.transpose(0, 1).unsqueeze(0)
        attended = functional.scaled_dot_product_attention(
            positions, keys, values, group.mask, enable_gqa=heads != kv_heads
        )
        return attended.squeeze(0).transpose(0, 1).reshape(rows, heads, dim)
    # one token of each sequence: the heads that share a key head stand where positions would, as all see the same
    grouped = queries.reshape(rows, kv_heads, heads // kv_heads, dim)
    if group.at is not None:
        spread = grouped.new_zeros(group.high - group.low, *grouped.shape[1:])
        grouped = spread.index_copy_(0, group.at, grouped)
    attended = functional.scaled_dot_product_attention(grouped, keys, values, group.mask)
    if group.at is not None:
        attended = attended.index_select(0, group.at)
    return attended.reshape(rows, heads, dim)
