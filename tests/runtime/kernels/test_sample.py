"""The end of a step: the likeliest token, the noise, and sequences that move on."""

from __future__ import annotations

import torch
from torch import Tensor

from omnic.runtime import sampling
from omnic.runtime.kernels.sample import State, finish, likeliest, parts, uniform

SLOTS = 4
SPARE = SLOTS  # the slot that is nobody's


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def chosen(logits: Tensor, slots: Tensor, state: State, drawn: Tensor | None = None) -> list[int]:
    values = torch.full((len(logits), parts(logits.shape[1])), torch.nan)
    indices = torch.full(values.shape, -7, dtype=torch.int32)
    out = torch.full((len(logits),), -7, dtype=torch.int32)
    likeliest(logits, values, indices)
    finish(values, indices, drawn, slots, state, out)
    return [int(token) for token in out]


def test_the_first_of_the_largest_is_chosen() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5000)
    logits[1, 4990] = logits[1, 4000] = 9.0
    assert chosen(logits, ints(0, 1, 2), State.of(SLOTS, torch.device("cpu"))) == logits.argmax(-1).tolist()


def test_a_large_vocabulary_is_cut_into_64_parts_and_a_small_one_into_fewer() -> None:
    assert [parts(n) for n in (400, 1024, 3000, 151936)] == [1, 1, 4, 64]


def test_a_sequence_goes_on_from_its_token_and_the_spare_slot_stays() -> None:
    state = State.of(SLOTS, torch.device("cpu"))
    state.positions[:] = 10
    logits = torch.zeros(2, 100)
    logits[:, 42] = 1.0
    chosen(logits, ints(2, SPARE), state)
    assert state.tokens.tolist() == [0, 0, 42, 0, 0]
    assert state.positions.tolist() == [10, 10, 11, 10, 10]
    assert state.drawn.tolist() == [0, 0, 1, 0, 0]


def test_a_token_that_was_drawn_is_taken_as_it_is() -> None:
    state = State.of(SLOTS, torch.device("cpu"))
    assert chosen(torch.randn(2, 100), ints(0, 3), state, torch.tensor([7, 9])) == [7, 9]
    assert state.tokens.tolist() == [7, 0, 0, 9, 0]


def test_logits_that_are_no_numbers_give_no_token() -> None:
    logits = torch.randn(4, 3000)
    logits[0, 77], logits[1, 2999], logits[2] = torch.nan, torch.inf, -torch.inf
    found = chosen(logits, ints(0, 1, 2, 3), State.of(SLOTS, torch.device("cpu")))
    assert found[:3] == [-1, -1, -1]
    assert found[3] >= 0


def test_noise_is_that_of_the_host_to_the_bit() -> None:
    state = State.of(SLOTS, torch.device("cpu"))
    seeds, places = [5, 2**63 + 11, 2**100 + 3, (1 << 128) - 1], [0, 1, 77, 2**40]
    for slot, (seed, place) in enumerate(zip(seeds, places, strict=True)):
        halves = (seed & (1 << 64) - 1, seed >> 64)
        state.seeds[slot] = torch.tensor([half - (half >> 63 << 64) for half in halves])
        state.drawn[slot] = place
    out = torch.full((SLOTS,), torch.nan, dtype=torch.float64)
    uniform(state, ints(3, 2, 1, 0), out)
    assert out.tolist() == [sampling.uniform(seeds[i], places[i]) for i in (3, 2, 1, 0)]
