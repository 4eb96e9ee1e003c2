"""The decode stage: units in, sound out, on lanes that requests share."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.decode import Decode, Lanes, noise
from omnic.runtime.edges import Port, Segmenter
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.flow import Flow, Piece
from omnic.runtime.segment import Clauses, Sentences, Whole
from omnic.runtime.spoken import Phrases
from omnic.runtime.transform import Resample
from omnic.runtime.weights import Checkpoint

TEXT = "One **is** first. Two is next. Three? Four! Five is the last of them."


class Noisy:
    """A decoder that makes 10 samples of noise a letter, and watches how it is called."""

    parts = ("say",)
    rate_hz = 1000
    options: Mapping[str, Any] = {"speed": 1.0}

    def __init__(self, slow: Callable[[str], float] = lambda _: 0.0) -> None:
        self.slow = slow
        self.units_said: list[str] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def warm_up(self) -> None:
        self.units_said.append("(warm)")

    def units(self, segmenter: Segmenter | None) -> Phrases:
        return Phrases(segmenter)

    def decode(self, unit: str, noise: np.random.Generator, *, speed: float) -> NDArray[np.float32]:
        with self.lock:
            self.units_said.append(unit)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            time.sleep(self.slow(unit))
            if "boom" in unit:
                raise ValueError("cannot say boom")
            letters = 0 if "你" in unit else len(unit)
            return noise.standard_normal(round(10 * letters / speed)).astype(np.float32)
        finally:
            with self.lock:
                self.at_once -= 1


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Decode, Noisy]]:
    def make(lanes: int = 1, slow: Callable[[str], float] = lambda _: 0.0) -> tuple[Decode, Noisy]:
        decoder = Noisy(slow)
        monkeypatch.setattr(families, "load", lambda family: SimpleNamespace(load=lambda checkpoint, threads: decoder))
        checkpoint = Checkpoint(Model("voice", "random", "noisy", "noisy", "random", {}), None)
        decode = Decode("speak", checkpoint, part="say", lanes=lanes, threads=1)
        decode.load(lambda *_: None)
        return decode, decoder

    return make


async def say(decode: Decode, text: str, seed: int = 1, segmenter: Segmenter | None = None, **options: Any) -> Any:
    """The whole sound of a text that the request itself brings."""
    flow = Flow(seed)
    running = decode.start(flow, text=flow.given(text, segmenter or Sentences()), **options)
    flow.output("speech", running.audio)
    return (await flow.result())["speech"]


def deltas(flow: Flow, pieces: list[str]) -> Port:
    """A stage that gives pieces of text, minding credit."""
    port = Port()

    async def work() -> None:
        for piece in pieces:
            await port.room()
            port.send(piece)
            await asyncio.sleep(0)
        port.close()

    flow.run(work, stage="think")
    return port


def chat(decode: Decode, pieces: list[str], segmenter: Segmenter | None = None, seed: int = 1) -> Flow:
    """A flow whose text a stage makes and this one speaks; both are outputs."""
    flow = Flow(seed)
    port = deltas(flow, pieces)
    running = decode.start(flow, text=port.channel(4, segmenter or Sentences()))
    flow.output("reply", port)
    flow.output("speech", running.audio)
    return flow


Make = Callable[..., tuple[Decode, Noisy]]


def test_a_chunk_of_sound_for_each_sentence(stage: Make) -> None:
    decode, decoder = stage()

    async def main() -> list[int]:
        flow = Flow(1)
        flow.output("speech", decode.start(flow, text=flow.given(TEXT, Sentences())).audio)
        return [len(event.value) async for event in flow if isinstance(event, Piece)]

    assert asyncio.run(main()) == [130, 120, 60, 50, 250]
    assert decoder.units_said[1:3] == ["One is first.", "Two is next."]
    assert decode.stats() == {
        "requests": 1, "units": 5, "audio_seconds": pytest.approx(0.61), "busy_seconds": decode.stats()["busy_seconds"],
        "queue": 0, "running": 0,
    }  # fmt: skip


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, len(TEXT))), lanes=st.integers(1, 4))
def test_streamed_is_whole_sample_for_sample(stage: Make, cuts: list[int], lanes: int) -> None:
    decode, _ = stage(lanes)
    at = sorted({0, *cuts, len(TEXT)})
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(at)]

    async def main() -> None:
        whole = await say(decode, TEXT)
        streamed = (await chat(decode, pieces).result())["speech"]
        assert np.array_equal(whole, streamed)
        await decode.close()

    asyncio.run(main())


@pytest.mark.parametrize("segmenter", [None, Whole()])
def test_text_that_comes_whole_or_in_deltas_is_cut_into_sentences_here(
    stage: Make, segmenter: Segmenter | None
) -> None:
    decode, decoder = stage()

    async def main() -> None:
        cut = await say(decode, TEXT)
        flow = Flow(1)
        flow.output("speech", decode.start(flow, text=flow.given(TEXT, segmenter)).audio)
        assert np.array_equal((await flow.result())["speech"], cut)

    asyncio.run(main())
    assert decoder.units_said[1:6] == decoder.units_said[6:]


def test_an_edge_that_cuts_clauses_has_clauses_spoken(stage: Make) -> None:
    decode, decoder = stage()
    asyncio.run(say(decode, "If it rains today, we stay. Good.", segmenter=Clauses()))
    assert decoder.units_said[1:] == ["If it rains today,", "we stay.", "Good."]


def test_options_reach_the_decoder_and_unknown_ones_are_refused(stage: Make) -> None:
    decode, _ = stage()
    assert len(asyncio.run(say(decode, "Hello.", speed=2.0))) == 30
    with pytest.raises(TypeError, match="pitch"):
        asyncio.run(say(decode, "Hello.", pitch=2.0))


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_is_keyed_by_seed_and_place(stage: Make) -> None:
    first = noise(5, 0).standard_normal(4)
    assert np.array_equal(first, noise(5, 0).standard_normal(4))
    others = [noise(5, 1), noise(6, 0), noise(5 + (1 << 32), 0), noise((1 << 63) - 1, 0)]
    assert all(not np.array_equal(first, other.standard_normal(4)) for other in others)


def test_a_request_sounds_the_same_whatever_its_neighbours_and_lanes(stage: Make) -> None:
    alone, _ = stage(1)
    busy, _ = stage(3, slow=lambda _: random.random() * 0.003)

    async def main() -> None:
        expected = await say(alone, TEXT, seed=9)
        crowd = await asyncio.gather(
            *(say(busy, f"Neighbour {n}. " * n + TEXT, seed=n) for n in range(5)), say(busy, TEXT, seed=9)
        )
        assert np.array_equal(crowd[-1], expected)
        assert not np.array_equal(await say(alone, TEXT, seed=10), expected)

    asyncio.run(main())


# --- lanes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 3])
def test_no_more_units_are_in_work_than_there_are_lanes(stage: Make, lanes: int) -> None:
    decode, decoder = stage(lanes, slow=lambda _: 0.002)

    async def main() -> None:
        await asyncio.gather(*(say(decode, "Some words. " * 6) for _ in range(4)))

    asyncio.run(main())
    assert decoder.most_at_once == lanes


def test_units_are_heard_in_order_though_later_ones_are_ready_first(stage: Make) -> None:
    decode, _ = stage(3, slow=lambda unit: 0.03 if "One" in unit else 0.0)
    quick, _ = stage(1)

    async def main() -> None:
        assert np.array_equal(await say(decode, TEXT), await say(quick, TEXT))

    asyncio.run(main())


def test_lanes_take_from_requests_in_turn() -> None:
    async def main() -> list[str]:
        lanes, done = Lanes(1, "lane"), list[str]()
        jobs = [lanes.run(name[0], lambda name=name: done.append(name)) for name in ("a1", "a2", "a3", "b1", "b2")]
        assert (lanes.running, lanes.waiting) == (1, 4)
        await asyncio.gather(*jobs)
        await lanes.close()
        return done

    assert asyncio.run(main()) == ["a1", "a2", "b1", "a3", "b2"]


def test_what_a_request_had_waiting_is_forgotten_with_it() -> None:
    async def main() -> None:
        lanes, done = Lanes(1, "lane"), list[str]()
        jobs = [lanes.run(name[0], lambda name=name: done.append(name)) for name in ("a1", "a2", "b1")]
        lanes.forget("a")
        await jobs[2]
        assert done == ["a1", "b1"]
        assert [job.cancelled() for job in jobs] == [True, True, False]
        await lanes.close()

    asyncio.run(main())


def test_requests_take_turns(stage: Make) -> None:
    decode, decoder = stage(1, slow=lambda _: 0.003)

    async def main() -> None:
        long = asyncio.create_task(say(decode, "Long words. " * 30))
        while decoder.units_said.count("Long words.") < 3:
            await asyncio.sleep(0)
        begun = len(decoder.units_said)
        await say(decode, "Short one. Short two.")
        assert not long.done()
        assert decoder.units_said.index("Short two.") < begun + 6
        await long

    asyncio.run(main())


def test_a_slow_listener_holds_the_work_back(stage: Make) -> None:
    decode, decoder = stage(2)

    async def main() -> None:
        flow = Flow(1)
        running = decode.start(flow, text=flow.given("More words. " * 60, Sentences()))
        flow.output("speech", running.audio, window=1)
        heard = 0
        async for event in flow:
            if isinstance(event, Piece):
                heard += 1
                await asyncio.sleep(0.001)
                assert len(decoder.units_said) - 1 <= heard + 6  # the window, and what two lanes have ahead
                assert decode.stats()["queue"] <= 2
        assert heard == 60

    asyncio.run(main())


def test_a_cancelled_request_stops_at_the_next_unit_and_leaves_the_others_alone(stage: Make) -> None:
    decode, decoder = stage(1, slow=lambda _: 0.002)

    async def main() -> None:
        async def leave() -> None:
            flow = Flow(1)
            flow.output("speech", decode.start(flow, text=flow.given("Gone soon. " * 50, Sentences())).audio)
            async with aclosing(aiter(flow)) as events:  # type: ignore[type-var]
                async for _ in events:
                    break

            assert decode.stats()["queue"] <= 2  # of the other request

        _, kept = await asyncio.gather(leave(), say(decode, "Stay here. " * 20))
        assert not decode._lanes._promised
        assert len(kept) == 20 * 100
        assert decode.stats()["queue"] == 0
        await decode.close()
        assert decode.stats()["running"] == 0

    asyncio.run(main())
    assert decoder.units_said.count("Gone soon.") < 6


def test_a_unit_that_fails_fails_its_own_request(stage: Make) -> None:
    decode, _ = stage(2)

    async def main() -> None:
        bad, good = await asyncio.gather(
            say(decode, "One. Two boom. Three."), say(decode, TEXT), return_exceptions=True
        )
        assert isinstance(bad, StageFailed)
        assert str(bad) == "stage `speak` failed: ValueError: cannot say boom"
        assert len(good) == 610
        assert decode.stats()["queue"] == 0

    asyncio.run(main())


def test_a_unit_that_fails_ends_the_reading_of_the_text(stage: Make) -> None:
    decode, decoder = stage(1, slow=lambda _: 0.001)

    async def main() -> None:
        flow = Flow(1)
        text = flow.given("Say boom. " * 40, Sentences())
        flow.output("speech", decode.start(flow, text=text).audio)
        with pytest.raises(StageFailed):
            await asyncio.wait_for(flow.result(), 20)
        assert text.waiting == 0
        assert not decode._lanes._promised
        await decode.close()
        assert len(decoder.units_said) < 6

    asyncio.run(main())


def test_a_unit_that_fails_does_not_wait_for_the_rest_of_the_text(stage: Make) -> None:
    decode, _ = stage(1)

    async def main() -> None:
        flow, port = Flow(1), Port()

        async def work() -> None:
            port.send("Say boom. Next")
            await asyncio.sleep(60)

        flow.run(work, stage="think")
        flow.output("speech", decode.start(flow, text=port.channel(4, Sentences())).audio)
        with pytest.raises(StageFailed, match="speak"):
            await asyncio.wait_for(flow.result(), 20)

    asyncio.run(main())


def test_an_error_above_passes_through_unchanged(stage: Make) -> None:
    decode, _ = stage()

    async def main() -> None:
        flow, port = Flow(), Port()

        async def work() -> None:
            port.send("Some text. Mo")
            error = RequestError("the context is full", "messages")
            port.close(error)
            raise error

        flow.run(work, stage="think")
        flow.output("speech", decode.start(flow, text=port.channel(4, Sentences())).audio)
        with pytest.raises(RequestError, match="context"):
            await flow.result()

    asyncio.run(main())


def test_eight_streams_with_a_slow_listener_lose_nothing(stage: Make) -> None:
    decode, _ = stage(2, slow=lambda _: 0.001)
    text = "Here is a sentence. Here comes another! And one? " * 4

    async def listen(flow: Flow) -> tuple[str, int]:
        reply, samples = "", 0
        async for event in flow:
            if isinstance(event, Piece):
                if event.output == "reply":
                    reply += event.value
                else:
                    samples += len(event.value)
                    await asyncio.sleep(0.002)
        return reply, samples

    async def main() -> None:
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        expected = len(await say(decode, text))
        heard = await asyncio.gather(*(listen(chat(decode, pieces)) for _ in range(8)))
        assert heard == [(text, expected)] * 8

    asyncio.run(main())


# --- nothing to say ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["```\ncode = 1\n```", "🙂 🎉", "---", " ", "你好"])
def test_a_request_with_nothing_to_speak_is_refused_and_names_its_field(stage: Make, text: str) -> None:
    decode, _ = stage()
    with pytest.raises(RequestError) as caught:
        asyncio.run(say(decode, text))
    assert (caught.value.field, caught.value.status) == ("input", 400)


@pytest.mark.parametrize("text", ["```\ncode = 1\n```", "🙂 🎉", "", "你好"])
def test_an_answer_with_nothing_to_speak_is_silent_and_says_why(stage: Make, text: str) -> None:
    decode, _ = stage()

    async def main() -> None:
        result = await chat(decode, [text]).result()
        assert result["reply"] == text
        assert result["speech"] is None
        assert "speech" in result["finished"].notes

    asyncio.run(main())


def test_the_reason_reaches_the_output_through_the_stages_between(stage: Make) -> None:
    decode, _ = stage()
    down = Resample("down", source_rate=1000, rate=500)

    async def main(text: str) -> dict[str, str]:
        flow = Flow(1)
        port = deltas(flow, [text])
        voice = decode.start(flow, text=port.channel(4, Sentences()))
        flow.output("reply", port)
        flow.output("speech", down.start(flow, audio=voice.audio.channel(4)).audio)
        notes: dict[str, str] = (await flow.result())["finished"].notes
        return notes

    assert asyncio.run(main("🙂")).keys() == {"speech"}
    assert asyncio.run(main("Hello. 🙂")) == {}


def test_a_part_the_family_does_not_have_fails_on_loading(stage: Make) -> None:
    stage()
    checkpoint = Checkpoint(Model("voice", "random", "noisy", "noisy", "random", {}), None)
    with pytest.raises(ValueError, match="sing"):
        Decode("speak", checkpoint, part="sing", lanes=1, threads=1).load(lambda *_: None)
