"""From logits to tokens: each kernel against a plain reference, and the noise they draw with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from omnic.runtime.answer import Draw, rows_of
from omnic.runtime.sampling import Rows, draw, keep_top_k, keep_top_p, penalise, scale, uniform
from tests.runtime.talking import sample

VOCABULARIES = (7, 300, 5000)


def logits(vocabulary: int, rows: int = 8) -> Tensor:
    """Rows from nearly flat to very sharp."""
    noise = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    return noise * torch.logspace(-2, 1.5, rows).unsqueeze(1)


def kept(filtered: Tensor) -> list[int]:
    return (filtered > -torch.inf).sum(-1).tolist()


# --- temperature ------------------------------------------------------------------------------------------------------


def test_scale_divides_each_row_by_its_temperature() -> None:
    x = logits(300, 2)
    scaled = scale(x, torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(scaled.softmax(-1), torch.stack([(x[0] / 0.5).softmax(-1), (x[1] / 2).softmax(-1)]))


def test_a_temperature_of_0_leaves_the_order_and_a_tiny_one_gives_no_nan() -> None:
    x = logits(300, 2)
    scaled = scale(x, torch.tensor([0.0, 1e-30]))
    assert scaled.argmax(-1).equal(x.argmax(-1))
    chances = scaled.softmax(-1)
    assert chances.isfinite().all()
    assert chances[1].max() == 1


# --- repetition penalty -----------------------------------------------------------------------------------------------


def test_penalise_is_what_transformers_does() -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    x, ids = logits(300), torch.randint(300, (8, 40), generator=torch.Generator().manual_seed(3))
    seen = torch.zeros(8, 300, dtype=torch.bool).scatter_(1, ids, torch.ones_like(ids, dtype=torch.bool))
    penalised = penalise(x, seen, torch.full((8,), 1.3))
    torch.testing.assert_close(penalised, RepetitionPenaltyLogitsProcessor(1.3)(ids, x.clone()))


def test_each_row_has_its_own_penalty_and_1_changes_nothing() -> None:
    x, seen = logits(300, 2), torch.ones(2, 300, dtype=torch.bool)
    penalised = penalise(x, seen, torch.tensor([1.0, 2.0]))
    assert penalised[0].equal(x[0])
    assert (penalised[1] < x[1]).logical_or(x[1] == 0).all()


def test_without_a_penalty_nothing_is_looked_at() -> None:
    x = logits(300)
    assert penalise(x, None, None) is x


# --- top-k ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_top_k_keeps_the_k_largest(vocabulary: int) -> None:
    x = logits(vocabulary)
    counts = [1, 2, 5, 40, 1000, 4999, vocabulary, 0]
    filtered = keep_top_k(x, torch.tensor(counts))
    for row, count in enumerate(counts):
        largest = x[row].topk(min(count or vocabulary, vocabulary)).indices
        assert kept(filtered)[row] == len(largest)
        assert filtered[row, largest].equal(x[row, largest])


def test_top_k_keeps_those_that_tie_with_the_last() -> None:
    assert keep_top_k(torch.tensor([[3.0, 1.0, 2.0, 2.0]]), 2).tolist() == [[3.0, -torch.inf, 2.0, 2.0]]


# --- top-p ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_top_p_keeps_the_fewest_that_reach_p(vocabulary: int) -> None:
    x = logits(vocabulary)
    shares = [0.0, 0.1, 0.5, 0.9, 0.95, 0.999, 0.3, 0.9]
    filtered = keep_top_p(x, torch.tensor(shares, dtype=torch.float64))
    for row, share in enumerate(shares):
        ordered, tokens = x[row].softmax(-1).sort(descending=True)
        needed = int((ordered.double().cumsum(0) < share).sum()) + 1
        assert set(filtered[row].isfinite().nonzero().flatten().tolist()) == set(tokens[:needed].tolist())


def test_a_top_p_of_1_keeps_all_and_0_the_likeliest() -> None:
    x = logits(300, 2)
    assert kept(keep_top_p(x, torch.tensor([1.0, 0.0], dtype=torch.float64))) == [300, 1]


def test_top_p_counts_after_top_k() -> None:
    x = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    assert kept(keep_top_p(keep_top_k(x, 2), 0.5)) == [1]  # 0.4 of 0.7 is more than a half
    assert kept(keep_top_p(x, 0.5)) == [2]


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_a_draw_is_where_the_summed_chances_pass_the_number() -> None:
    x = torch.tensor([[0.25, 0.5, 0.25]]).log().expand(5, -1)
    numbers = torch.tensor([0.0, 0.2499, 0.26, 0.7499, 0.76], dtype=torch.float64)
    assert draw(x, numbers).tolist() == [0, 0, 1, 1, 2]


def test_a_token_that_was_filtered_out_is_never_drawn() -> None:
    x = torch.tensor([[-torch.inf, 1.0, -torch.inf, 2.0, -torch.inf]]).expand(2, -1)
    assert draw(x, torch.tensor([0.0, 1 - 2.0**-52], dtype=torch.float64)).tolist() == [1, 3]


def test_greedy_rows_take_the_likeliest_beside_rows_that_draw() -> None:
    x = logits(300, 2)
    mixed = draw(x, torch.tensor([0.3, 0.3], dtype=torch.float64), torch.tensor([0.0, 1.0]))
    assert mixed[0] == x[0].argmax()
    assert mixed[1] == draw(x, torch.tensor([0.3, 0.3], dtype=torch.float64))[1]


def test_draws_follow_the_chances() -> None:
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = 20_000
    numbers = torch.tensor([uniform(11, i) for i in range(draws)], dtype=torch.float64)
    drawn = draw(chances.log().expand(draws, -1), numbers).bincount(minlength=4)
    expected = chances * draws
    assert float(((drawn - expected) ** 2 / expected).sum()) < 16.3  # chi-square with 3 degrees of freedom, p = 0.001


def test_what_a_row_gives_does_not_depend_on_its_neighbours() -> None:
    x = logits(5000)
    draws = [Draw(seed, [0.0, 0.2, 0.7, 1.0, 1.5, 2.0, 1.0, 1.0][seed], [0, 50, 0, 1000, 7, 0, 0, 1][seed],
                  [1.0, 0.9, 0.95, 1.0, 0.5, 0.3, 0.99, 0.9][seed],
                  [1.0, 1.1, 1.0, 1.5, 2.0, 1.0, 1.2, 1.0][seed]) for seed in range(8)]  # fmt: skip
    seen = x.softmax(-1) > 1e-3
    requests = [
        SimpleNamespace(draw=d, answer=[0] * 5, tokens_seen=lambda _, i=i: seen[i]) for i, d in enumerate(draws)
    ]
    together = sample(x, rows_of(requests, 5000))
    alone = [sample(x[i : i + 1], rows_of(requests[i : i + 1], 5000)) for i in range(8)]
    assert together.tolist() == torch.cat(alone).tolist()


def test_numbers_for_all_rows_do_as_numbers_a_row() -> None:
    x = logits(300, 3)
    same = torch.full((3,), 0.7)
    assert scale(x, 0.7).equal(scale(x, same))
    assert keep_top_k(x, 20).equal(keep_top_k(x, torch.full((3,), 20)))
    assert keep_top_p(x, 0.7).equal(keep_top_p(x, torch.full((3,), 0.7, dtype=torch.float64)))


def test_without_settings_nothing_is_filtered() -> None:
    x = logits(300, 3)
    assert keep_top_p(keep_top_k(scale(x, None), None), None) is x
    assert draw(x, None).equal(x.argmax(-1))


def test_rows_hold_only_what_some_row_asks_for() -> None:
    def rows(*draws: Draw) -> Rows:
        return rows_of([SimpleNamespace(draw=d, answer=[]) for d in draws], 300)

    assert rows(Draw(1, 0.0, 0, 1.0), Draw(2, 0.0, 40, 0.9)) == Rows(None)  # greedy all
    some = rows(Draw(1, 0.0, 0, 1.0), Draw(2, 0.5, 0, 1.0))
    assert (some.top_k, some.top_p) == (None, None)
    assert some.temperature is not None
    assert some.temperature.tolist() == [0.0, 0.5]
    pinned = rows(Draw(1))  # the sample function has its numbers: it needs noise alone
    assert (pinned.temperature, pinned.top_k, pinned.top_p) == (None, None, None)
    assert pinned.uniform is not None


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**63 - 1])
def test_noise_is_philox(seed: int) -> None:
    for position in (1, 2, 77, 100_000):
        raw = np.random.Philox(key=seed, counter=[position - 1, 0, 0, 0]).random_raw()
        assert uniform(seed, position) == int(raw >> 12) / 2**52


def test_noise_differs_by_seed_and_by_position_and_lies_in_0_to_1() -> None:
    numbers = {uniform(seed, position) for seed in range(50) for position in range(50)}
    assert len(numbers) == 2500
    assert 0 <= min(numbers) < max(numbers) < 1
    assert abs(sum(numbers) / 2500 - 0.5) < 0.02
