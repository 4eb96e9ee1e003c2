"""Attention of new tokens over pages, and the pages themselves, against the same in float64 over plain tensors."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.kernels.decode_attention import Workspace, decode_attention, least_of, splits_of
from omnic.runtime.kernels.prefill_attention import prefill_attention
from omnic.runtime.kernels.rope import rope

HEADS, KV_HEADS, DIM, PAGE, PAGES, SLOTS = 6, 2, 16, 16, 8, 4
EPSILON = 1e-6


def close(found: Tensor, exact: Tensor) -> bool:
    return float((found.double() - exact).norm() / exact.norm()) < 1e-6


@dataclass
class Case:
    """Rows of new tokens for sequences whose pages lie in no order."""

    slots: Tensor
    positions: Tensor
    normed: bool

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.qkv = torch.randn(len(self.slots), (HEADS + 2 * KV_HEADS) * DIM)
        self.norm = torch.randn(HEADS + KV_HEADS, DIM) if self.normed else None
        angles = torch.outer(torch.arange(PAGE * PAGES).float(), 100.0 ** -(torch.arange(DIM // 2) / DIM))
        self.cosine = angles.cos().repeat(1, 2)
        self.sine = torch.cat((-angles.sin(), angles.sin()), 1)
        self.keys, self.values = torch.randn(2, SLOTS * PAGES, KV_HEADS, PAGE, DIM).unbind()
        self.table = torch.randperm(SLOTS * PAGES).view(SLOTS, PAGES).int()

    def exact(self) -> tuple[Tensor, Tensor, Tensor]:
        """What rows find, and keys and values with theirs in place."""
        keys, values, found = self.keys.double(), self.values.double(), []
        for row, slot in enumerate(self.slots.tolist()):
            at = int(self.positions[slot])
            heads = self.qkv[row].view(-1, DIM).double()
            qk, value = heads[: HEADS + KV_HEADS], heads[HEADS + KV_HEADS :]
            if self.norm is not None:
                qk = qk / (qk.square().mean(-1, keepdim=True) + EPSILON).sqrt() * self.norm.double()
            qk = qk * self.cosine[at].double() + qk.roll(DIM // 2, -1) * self.sine[at].double()
            page = int(self.table[slot, at // PAGE])
            keys[page, :, at % PAGE], values[page, :, at % PAGE] = qk[HEADS:], value
            k, v = (
                held[self.table[slot].long()].transpose(0, 1).reshape(1, KV_HEADS, -1, DIM)[:, :, : at + 1]
                for held in (keys, values)
            )
            q = qk[:HEADS].view(1, HEADS, 1, DIM)
            found.append(functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).reshape(-1))
        return torch.stack(found), keys, values


def case(normed: bool = True) -> Case:
    """Sequences at their first token, in the middle of a page, at the start of one and at the last token there is."""
    slots = torch.tensor([2, 0, 3, 1], dtype=torch.int32)
    return Case(slots, torch.tensor([37, 0, PAGE * PAGES - 1, 5 * PAGE], dtype=torch.int32), normed)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize("splits", [1, 4, 16])
def test_each_row_sees_the_tokens_before_it_and_itself(splits: int, least: int, normed: bool) -> None:
    c = case(normed)
    work = Workspace.of(len(c.slots), HEADS, KV_HEADS, DIM, splits, torch.device("cpu"))
    expected, keys, values = c.exact()
    out = torch.full((len(c.slots), HEADS * DIM), torch.nan)
    decode_attention(
        c.qkv, c.norm, c.cosine, c.sine, c.keys, c.values, c.table, c.slots, c.positions, out, work, EPSILON,
        least=least,
    )  # fmt: skip
    assert close(out, expected)
    assert close(c.keys, keys)
    assert torch.equal(c.values.double(), values)
    assert not work.arrived.any(), "the next launch counts from zero"


def test_what_pages_hold_beyond_a_row_changes_nothing() -> None:
    c = case()
    expected, _, _ = c.exact()
    for slot in range(SLOTS):
        beyond = int(c.positions[slot]) + 1
        for position in range(beyond, PAGE * PAGES):
            page = int(c.table[slot, position // PAGE])
            c.keys[page, :, position % PAGE] = c.values[page, :, position % PAGE] = torch.nan
    work = Workspace.of(len(c.slots), HEADS, KV_HEADS, DIM, 4, torch.device("cpu"))
    out = torch.full((len(c.slots), HEADS * DIM), torch.nan)
    decode_attention(
        c.qkv, c.norm, c.cosine, c.sine, c.keys, c.values, c.table, c.slots, c.positions, out, work, EPSILON
    )
    assert close(out, expected)


@pytest.mark.parametrize("normed", [True, False])
def test_a_prompts_keys_and_values_are_those_that_decoding_would_keep(normed: bool) -> None:
    c = case(normed)
    _, keys, values = c.exact()
    queries = torch.full((len(c.slots), HEADS, DIM), torch.nan)
    rope(
        c.qkv, c.norm, c.cosine, c.sine, c.keys, c.values, c.table, c.slots, c.positions[c.slots.long()], queries,
        EPSILON,
    )  # fmt: skip
    assert close(c.keys, keys)
    assert torch.equal(c.values.double(), values)
    assert queries.isfinite().all()


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 70), (40, 65)])
def test_a_piece_of_a_prompt_sees_all_before_it_and_not_what_follows(start: int, count: int) -> None:
    c = case()
    spare = 3  # rows that are nobody's, in a slot of their own
    queries = torch.randn(count + spare, HEADS, DIM)
    positions = torch.tensor([*range(start, start + count), *[0] * spare], dtype=torch.int32)
    slots = torch.tensor([2] * count + [0] * spare, dtype=torch.int32)
    k, v = (
        held.double()[c.table[2].long()].transpose(0, 1).reshape(1, KV_HEADS, -1, DIM)[:, :, : start + count]
        for held in (c.keys, c.values)
    )
    mask = torch.ones(count, start + count, dtype=torch.bool).tril(start)
    q = queries[:count].double().transpose(0, 1).unsqueeze(0)
    exact = functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    for position in range(start + count, PAGE * PAGES):
        page = int(c.table[2, position // PAGE])
        c.keys[page, :, position % PAGE] = c.values[page, :, position % PAGE] = torch.nan
    out = torch.full((count + spare, HEADS * DIM), torch.nan)
    prefill_attention(queries, c.keys, c.values, c.table, slots, positions, out)
    assert close(out[:count], exact.squeeze(0).transpose(0, 1).reshape(count, -1))


def test_few_rows_are_split_among_more_programs() -> None:
    assert splits_of(1, 8) > splits_of(64, 8) >= 2
    assert least_of(1, 8) < least_of(64, 8)
