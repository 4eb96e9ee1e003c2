"""The scheduler: what runs next. It holds no tensors, so neither do its tests."""

from __future__ import annotations

import random
from typing import Any

import pytest

from omnic.runtime.scheduler import Pace, Scheduler, Sequence, Work


def always(sequence: Sequence) -> bool:
    return True


def step(scheduler: Scheduler, ready: Any = always, seconds: float = 0.01) -> list[tuple[int, int, int, bool]]:
    """Plans and runs a step; every sequence that samples gets its token. -> (slot, start, length, samples)"""
    work = scheduler.plan(ready)
    scheduler.launched(work)
    scheduler.took(work, seconds)
    return [(w.sequence.slot, w.start, w.length, w.samples) for w in work]


def added(scheduler: Scheduler, *prompts: int) -> list[Sequence]:
    sequences = [Sequence(prompt) for prompt in prompts]
    for sequence in sequences:
        scheduler.add(sequence)
    return sequences


def test_a_prompt_runs_in_chunks_and_then_a_token_a_step() -> None:
    scheduler = Scheduler(slots=1, prefill_chunk=16)
    added(scheduler, 40)
    assert [step(scheduler) for _ in range(5)] == [
        [(0, 0, 16, False)],
        [(0, 16, 16, False)],
        [(0, 32, 8, True)],
        [(0, 40, 1, True)],
        [(0, 41, 1, True)],
    ]


def test_a_last_chunk_of_one_token_is_still_prompt() -> None:
    scheduler = Scheduler(slots=1, prefill_chunk=16)
    (sequence,) = added(scheduler, 17)
    step(scheduler)
    assert sequence.prefilling
    assert step(scheduler) == [(0, 16, 1, True)]
    assert not sequence.prefilling


def test_waiting_sequences_take_the_lowest_free_slot_in_order_of_arrival() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=64)
    a, b, c, d = added(scheduler, 4, 4, 4, 4)
    step(scheduler)
    assert (a.slot, b.slot, c.slot, d.slot) == (0, 1, -1, -1)
    scheduler.remove(b)
    step(scheduler)
    assert (c.slot, d.slot) == (1, -1)
    scheduler.remove(a)
    step(scheduler)
    assert d.slot == 0


def test_streams_go_on_beside_a_prompt() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=16, steady=True)
    added(scheduler, 4)
    step(scheduler)
    added(scheduler, 40)
    assert step(scheduler) == [(0, 4, 1, True), (1, 0, 16, False)]
    assert step(scheduler) == [(0, 5, 1, True), (1, 16, 16, False)]


def test_prompts_share_a_chunk_and_the_oldest_comes_first_whatever_its_slot() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=16)
    a, b, c = added(scheduler, 4, 30, 30)
    assert step(scheduler) == [(0, 0, 4, True), (1, 0, 12, False)]
    scheduler.remove(a)
    assert step(scheduler) == [(1, 12, 16, False)]  # b is older than c, which now has slot 0
    assert step(scheduler) == [(1, 28, 2, True), (0, 0, 14, False)]
    assert (b.slot, c.slot) == (1, 0)


def test_steady_prompts_are_only_cut_at_multiples_of_the_chunk() -> None:
    scheduler = Scheduler(slots=3, prefill_chunk=16, steady=True)
    added(scheduler, 20, 20, 6)
    assert step(scheduler) == [(0, 0, 16, False)]
    assert step(scheduler) == [(0, 16, 4, True)]  # 12 are left over, and not given to the next
    assert step(scheduler)[1:] == [(1, 0, 16, False)]
    assert step(scheduler)[1:] == [(1, 16, 4, True), (2, 0, 6, True)]


def test_a_sequence_that_is_not_ready_keeps_its_slot_and_is_passed_over() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=64)
    a, b = added(scheduler, 4, 4)
    step(scheduler)
    assert step(scheduler, lambda s: s is not a) == [(1, 4, 1, True)]
    assert step(scheduler, lambda s: False) == []
    assert step(scheduler) == [(0, 4, 1, True), (1, 5, 1, True)]
    assert b.slot == 1


def test_removing_works_at_any_time_and_twice() -> None:
    scheduler = Scheduler(slots=1, prefill_chunk=64)
    a, b, c = added(scheduler, 4, 4, 4)
    step(scheduler)
    scheduler.remove(b)  # waits
    scheduler.remove(a)  # runs
    scheduler.remove(a)
    step(scheduler)
    assert scheduler.running == [c]
    assert not scheduler.waiting
    assert c.slot == 0


# --- pace -------------------------------------------------------------------------------------------------------------


def paced(plain: float, token: float) -> Pace:
    pace = Pace()
    for _ in range(9):
        pace.took(0, 4, plain)
        pace.took(10, 4, plain + 10 * token)
    return pace


@pytest.mark.parametrize(
    ("plain", "token", "chunk"),
    [
        (0.020, 0.00049, 40),  # as many tokens as take as long as the step does
        (0.020, 0.0001, 64),  # no more than was planned
        (0.020, 0.0100, 8),  # but always some
        (0.020, 0.0, 16),  # nothing to go by
    ],
)
def test_a_chunk_beside_streams_at_most_doubles_their_step(plain: float, token: float, chunk: int) -> None:
    assert paced(plain, token).chunk(64) == chunk


def test_one_slow_step_does_not_change_the_pace() -> None:
    pace = paced(0.020, 0.00049)
    pace.took(0, 4, 3.0)
    pace.took(10, 4, 3.0)
    assert pace.chunk(64) == 40


def test_the_pace_follows_a_machine_that_became_slower() -> None:
    pace = paced(0.020, 0.00049)
    for _ in range(40):
        pace.took(10, 4, 0.020 + 10 * 0.002)
    assert pace.chunk(64) == 8


# --- all of it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_every_token_runs_once_in_order_and_every_sequence_ends(seed: int) -> None:
    choices = random.Random(seed)
    slots, chunk, steady = choices.randint(1, 4), choices.randint(1, 33), bool(choices.randint(0, 1))
    prompts = [choices.randint(1, 70) for _ in range(choices.randint(1, 12))]
    scheduler = Scheduler(slots, chunk, steady=steady)
    sequences = [Sequence(prompt) for prompt in prompts]
    coming, wanted = list(sequences), {id(s): choices.randint(1, 5) for s in sequences}
    ran: dict[int, int] = {id(s): 0 for s in sequences}
    for _ in range(3000):
        if coming and choices.randint(0, 1):
            scheduler.add(coming.pop(0))
        work: tuple[Work, ...] = scheduler.plan(lambda s: choices.randint(0, 4) > 0)
        assert len({w.sequence.slot for w in work}) == len(work)
        assert all(w.start == ran[id(w.sequence)] and w.length > 0 for w in work)
        assert sum(w.length for w in work if w.sequence.prefilling) <= chunk
        for w in work:
            ran[id(w.sequence)] += w.length
            assert w.samples == (ran[id(w.sequence)] == w.sequence.prompt + w.sequence.generated)
        scheduler.launched(work)
        scheduler.took(work, choices.randint(0, 5) / 100)
        for w in work:
            if w.sequence.generated == wanted[id(w.sequence)]:
                scheduler.remove(w.sequence)
        if not (coming or scheduler.running or scheduler.waiting):
            break
    assert [s.generated for s in sequences] == [wanted[id(s)] for s in sequences]
