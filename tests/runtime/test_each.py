"""A denoise stage that is given several values: a picture for each, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from omnic.runtime.denoise import Denoise
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError
from omnic.runtime.families.bert import Encoder
from omnic.runtime.flow import Finished, Flow, Piece
from omnic.runtime.segment import Sentences
from tests.runtime.painting import Emoji, Sketch, emoji, loaded, paint

GIVEN = {"side": 4, "steps": 3, "guidance": 2.0}


class Sketches(Sketch):
    """A sketch of every tone that comes."""

    streams = "tone"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Denoise]:
    with loaded(Sketches(), monkeypatch) as stage:
        yield stage


def flow_of(stage: Denoise, tones: Sequence[Any], *, seed: int = 5, window: int = 64, ends: Any = None) -> Flow:
    flow, source = Flow(seed), Port()
    edge = source.channel(window)

    async def feed() -> None:
        for tone in tones:
            await source.room()
            source.send(tone)
        source.close(ends)

    flow.run(feed, stage="source")
    flow.output("image", stage.start(flow, tone=edge, **GIVEN).image)
    return flow


async def pieces(flow: Flow) -> tuple[list[Piece], Finished]:
    found = [event async for event in flow if isinstance(event, Piece | Finished)]
    assert isinstance(found[-1], Finished)
    return found[:-1], found[-1]  # type: ignore[return-value]  # the last is the only one that is no Piece


def test_each_value_is_a_picture_with_a_seed_of_its_own(stage: Denoise) -> None:
    made, finished = asyncio.run(pieces(flow_of(stage, (0.1, 0.2, 0.3))))
    assert [piece.index for piece in made] == [0, 1, 2]
    for i, tone in enumerate((0.1, 0.2, 0.3)):
        assert np.array_equal(made[i].value, paint(stage, tone=tone, seed=5 + i, **GIVEN).image)
    assert finished.stages["paint"]["steps"] == 9
    assert stage.stats()["requests"] == 6


def test_a_value_that_is_no_stream_is_one_picture(stage: Denoise) -> None:
    flow = Flow(5)
    flow.output("image", stage.start(flow, tone=0.1, **GIVEN).image)
    alone = asyncio.run(flow.result())["image"]
    assert np.array_equal(alone, asyncio.run(flow_of(stage, (0.1,)).result())["image"])


def test_of_no_value_nothing_is_made(stage: Denoise) -> None:
    made, finished = asyncio.run(pieces(flow_of(stage, ())))
    assert made == []
    assert finished.stages["paint"] == {}


def test_several_pictures_stay_apart_in_a_result(stage: Denoise) -> None:
    pictures = asyncio.run(flow_of(stage, (0.1, 0.2)).result())["image"]
    assert [picture.shape for picture in pictures] == [(4, 4, 3), (4, 4, 3)]


def test_the_first_is_there_before_the_last_is_begun(stage: Denoise) -> None:
    async def run() -> None:
        gate = asyncio.Event()
        flow, source = Flow(5), Port()
        edge = source.channel(4)

        async def feed() -> None:
            source.send(0.1)
            await gate.wait()
            source.send(0.2)
            source.close()

        flow.run(feed, stage="source")
        flow.output("image", stage.start(flow, tone=edge, **GIVEN).image)
        seen = 0
        async for event in flow:
            if isinstance(event, Piece):
                seen += 1
                gate.set()  # without the first picture there would never be a second value
        assert seen == 2

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_fails_upstream_ends_the_request(stage: Denoise) -> None:
    with pytest.raises(RequestError, match="no more"):
        asyncio.run(pieces(flow_of(stage, (0.1,), ends=RequestError("no more", "prompt"))))
    assert stage.stats()["running"] == stage.stats()["queue"] == 0


def test_leaving_in_the_middle_frees_the_stage(stage: Denoise) -> None:
    async def run() -> None:
        async with aclosing(aiter(flow_of(stage, [0.1] * 50))) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Piece):
                    break

    asyncio.run(run())
    assert np.array_equal(paint(stage, tone=0.1, seed=5, **GIVEN).image, paint(stage, tone=0.1, seed=5, **GIVEN).image)
    assert stage.stats()["running"] == stage.stats()["queue"] == 0


# --- the encoder and the painter of emoji -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages() -> Iterator[Emoji]:
    with emoji() as stages:
        yield stages


def told(stages: Emoji, text: str, **given: Any) -> Any:
    """What is painted of text that is cut into sentences."""

    async def run() -> Any:
        flow = Flow(3)
        read = stages.read.start(flow, text=flow.given(text, segmenter=Sentences()), **given)
        done = stages.paint.start(flow, condition=read.embeds.channel(window=4), steps=1, guidance=1.5)
        flow.output("image", done.image)
        return (await flow.result())["image"]

    return asyncio.run(run())


def test_a_text_is_painted_sentence_by_sentence(stages: Emoji) -> None:
    found = told(stages, "A red fox ran. The moon rose!")

    async def alone(prompt: str, seed: int) -> Any:
        return (await stages.begun(prompt, seed=seed, steps=1, guidance=1.5).result())["image"]

    assert np.array_equal(found[0], asyncio.run(alone("A red fox ran. ", 3)))
    assert np.array_equal(found[1], asyncio.run(alone("The moon rose!", 4)))


def test_the_rest_of_a_long_sentence_can_be_left_out(stages: Emoji) -> None:
    long = "the fox " * 15
    with pytest.raises(RequestError, match="tokens long"):
        told(stages, long)
    assert np.array_equal(told(stages, long, keep=24), told(stages, "the fox " * 11, keep=24))


def test_text_that_is_blank_gives_nothing(stages: Emoji) -> None:
    encoder = stages.read._transform
    assert isinstance(encoder, Encoder)
    assert told(stages, " \n ") is None
