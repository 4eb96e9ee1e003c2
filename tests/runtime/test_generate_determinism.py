"""The same seed gives the same tokens, whatever runs beside, before and after (float32, tiny models)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from omnic.runtime.generate import Generate
from tests.runtime.talking import ask, loaded, tiny

ASKED: list[dict[str, Any]] = [
    {"text": "why is the sky blue", "seed": 1, "temperature": 0.0},
    {"text": "why is the sky blue", "seed": 2, "temperature": 1.0},
    {
        "text": "name three colours and say which of them the sky has at noon",
        "seed": 3,
        "temperature": 0.8,
        "top_k": 40,
    },
    {"text": "x", "seed": 4, "temperature": 1.3, "top_p": 0.9},
    {
        "text": "a much longer question " * 5,
        "seed": 5,
        "temperature": 0.7,
        "top_k": 100,
        "top_p": 0.8,
        "repetition_penalty": 1.3,
    },
    {"text": "tell me more", "seed": 2**62, "temperature": 2.0, "max_tokens": 7},
]


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def stage(request: pytest.FixtureRequest) -> Iterator[Generate]:
    options = {"head_dim": 16} if request.param == "qwen3" else {}
    with loaded(tiny(request.param, seed=11, tie_word_embeddings=True, **options)) as stage:
        yield stage


@pytest.fixture(scope="module")
def alone(stage: Generate) -> list[tuple[int, ...]]:
    return [asyncio.run(ask(stage, **{"max_tokens": 24, **asked})).tokens for asked in ASKED]


def test_answers_are_not_all_alike(alone: list[tuple[int, ...]]) -> None:
    assert len(set(alone)) == len(ASKED)
    assert max(len(set(tokens)) for tokens in alone) > 10


def test_asked_again_the_answer_is_the_same(stage: Generate, alone: list[tuple[int, ...]]) -> None:
    assert [asyncio.run(ask(stage, **{"max_tokens": 24, **asked})).tokens for asked in ASKED] == alone


@pytest.mark.parametrize("pattern", range(25))
def test_neighbours_change_nothing(stage: Generate, alone: list[tuple[int, ...]], pattern: int) -> None:
    """50 patterns in all: other orders of arrival, other neighbours, some of them cancelled on their way."""
    choose = random.Random(pattern)

    async def neighbour() -> None:
        await asyncio.sleep(choose.random() * 0.05)
        text = "other words " * choose.randint(1, 8)
        asking = asyncio.create_task(ask(stage, text, seed=choose.randint(0, 99), temperature=choose.random(),
                                         max_tokens=choose.randint(1, 40)))  # fmt: skip
        if choose.random() < 0.4:
            await asyncio.sleep(choose.random() * 0.05)
            asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def mine(index: int) -> tuple[int, tuple[int, ...]]:
        await asyncio.sleep(choose.random() * 0.05)
        return index, (await ask(stage, **{"max_tokens": 24, **ASKED[index]})).tokens

    async def everyone() -> list[Any]:
        work = [mine(i) for i in range(len(ASKED))] + [neighbour() for _ in range(choose.randint(1, 10))]
        choose.shuffle(work)
        return [found for found in await asyncio.gather(*work) if found is not None]

    for index, tokens in asyncio.run(everyone()):
        assert tokens == alone[index], ASKED[index]
