"""The generate stage with a parrot for a model: what is asked for, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from omnic.runtime import engine
from omnic.runtime.answer import Draw, Request
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.flow import Finished, Flow, Piece
from omnic.runtime.generate import Generate
from omnic.runtime.generate_steps import Step
from omnic.runtime.language import Span
from omnic.runtime.segment import Whole
from omnic.runtime.text import Detokeniser, Stops
from tests.runtime.talking import PARROT, Parrot, ask, loaded, parrot, said

__all__ = ["parrot"]  # a fixture


@pytest.fixture
def stage(parrot: Parrot) -> Iterator[Generate]:
    with loaded(PARROT) as stage:
        yield stage


# --- an answer --------------------------------------------------------------------------------------------------------


def test_an_answer_comes_in_deltas_that_join_to_its_text(stage: Generate) -> None:
    async def deltas() -> list[str]:
        flow = Flow(0)
        running = stage.start(flow, messages=said("hello, world"), max_tokens=99, temperature=0.0)
        flow.output("reply", running.text)
        return [event.value async for event in flow if isinstance(event, Piece)]

    found = asyncio.run(deltas())
    assert "".join(found) == "hello, world"
    assert len(found) > 3
    assert all(found)


def test_a_conversation_may_come_from_another_stage(stage: Generate) -> None:
    async def answer() -> str:
        flow, port = Flow(0), Port()

        async def work() -> None:
            port.send(said("hello, world"))
            port.close()

        flow.run(work)
        flow.output("reply", stage.start(flow, messages=port.channel(1), max_tokens=99, temperature=0.0).text)
        return str((await flow.result())["reply"])

    assert asyncio.run(answer()) == "hello, world"


def test_usage_counts_the_whole_prompt_and_every_token_drawn_the_end_token_too(stage: Generate, parrot: Parrot) -> None:
    answer = asyncio.run(ask(stage, "hello, world"))
    assert answer.finished.finish_reason == "stop"
    assert answer.finished.prompt_tokens == len(parrot.codec.prompt(said("hello, world")))
    assert answer.finished.completion_tokens == len(parrot.codec.encode("hello, world")) + 1
    assert answer.tokens[-1] == 2


def test_an_answer_cut_at_max_tokens_says_so(stage: Generate, parrot: Parrot) -> None:
    answer = asyncio.run(ask(stage, "hello, world", max_tokens=2))
    assert answer.finished.finish_reason == "length"
    assert answer.finished.completion_tokens == 2
    assert answer.text == parrot.codec.decode(parrot.codec.encode("hello, world")[:2])


def test_an_answer_that_just_fits_its_end_token_has_stopped(stage: Generate, parrot: Parrot) -> None:
    exact = len(parrot.codec.encode("hello, world")) + 1
    answer = asyncio.run(ask(stage, "hello, world", max_tokens=exact))
    assert (answer.text, answer.finished.finish_reason) == ("hello, world", "stop")


def test_a_character_cut_by_max_tokens_shows_as_the_decoder_shows_it(stage: Generate) -> None:
    answer = asyncio.run(ask(stage, "🙂", max_tokens=2))
    assert (answer.text, answer.finished.finish_reason) == ("\ufffd", "length")


@pytest.mark.parametrize("text", ["naïve café", "天空为什么是蓝色的", "🙂🙃 👩‍👩‍👧", "tab\tand\nline  two"])
def test_characters_of_several_bytes_come_whole(stage: Generate, text: str) -> None:
    assert asyncio.run(ask(stage, text, max_tokens=99)).text == text


def test_an_answer_of_nothing_is_empty_text(stage: Generate, parrot: Parrot) -> None:
    answer = asyncio.run(ask(stage, "x", stop_token_ids=parrot.codec.encode("x")))
    assert (answer.text, answer.finished.completion_tokens) == ("", 1)


def test_a_token_id_can_stop(stage: Generate, parrot: Parrot) -> None:
    (comma,) = parrot.codec.encode(",")
    answer = asyncio.run(ask(stage, "hello, world", stop_token_ids=[comma]))
    assert (answer.text, answer.finished.finish_reason) == ("hello", "stop")


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("world", "hello, "),
        (("zebra", ", w"), "hello"),  # across tokens
        (("lo, world", "world"), "hel"),  # of two that end together, the longer
        (("orld!", "worl"), "hello, "),  # the one that is whole first
        ("hello, world!", "hello, world"),  # almost
        ("🙂", "hello, world"),
    ],
)
def test_stop_strings_end_an_answer_and_are_no_part_of_it(stage: Generate, stop: Any, text: str) -> None:
    answer = asyncio.run(ask(stage, "hello, world", stop=stop))
    assert (answer.text, answer.finished.finish_reason) == (text, "stop")


def test_a_stop_string_may_begin_inside_a_character_of_several_tokens(stage: Generate) -> None:
    assert asyncio.run(ask(stage, "sun 🌞 moon 🌝", stop="🌝", max_tokens=99)).text == "sun 🌞 moon "


def test_no_part_of_a_stop_string_is_ever_given(stage: Generate) -> None:
    async def seen() -> str:
        flow = Flow(0)
        running = stage.start(flow, messages=said("one END two"), max_tokens=99, temperature=0.0, stop=("END",))
        flow.output("reply", running.text)
        return "|".join([event.value async for event in flow if isinstance(event, Piece)])

    assert "E" not in asyncio.run(seen())


# --- what cannot be answered ------------------------------------------------------------------------------------------


def refused(stage: Generate, text: str, **inputs: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        asyncio.run(ask(stage, text, **inputs))
    return caught.value


@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_a_blank_message_is_refused(stage: Generate, text: str) -> None:
    error = refused(stage, text)
    assert (error.status, error.field) == (400, "messages")
    assert "blank" in error.message


def test_no_messages_are_refused(stage: Generate) -> None:
    assert "empty" in refused(stage, "", messages=[]).message


def test_messages_beyond_the_prompt_are_refused_with_both_numbers(stage: Generate, parrot: Parrot) -> None:
    text = "word " * 200
    error = refused(stage, text, max_tokens=1)
    tokens = len(parrot.codec.prompt(said(text)))
    assert (error.status, error.field, error.code) == (400, "messages", "context_length_exceeded")
    assert f"{tokens} tokens" in error.message
    assert "192" in error.message


def test_an_answer_beyond_the_context_is_refused_before_any_work(stage: Generate, parrot: Parrot) -> None:
    before = len(parrot.forwards)
    error = refused(stage, "hello", max_tokens=250)
    prompt = len(parrot.codec.prompt(said("hello")))
    assert error.code == "context_length_exceeded"
    assert f"{prompt + 250}, and the context holds 256" in error.message
    assert len(parrot.forwards) == before


def test_an_answer_may_fill_the_context_to_its_end(stage: Generate, parrot: Parrot) -> None:
    text = "ab" * 40
    room = 256 - len(parrot.codec.prompt(said(text)))
    assert asyncio.run(ask(stage, text, max_tokens=room)).text == text


@pytest.mark.parametrize(("stop", "why"), [((*"abcde",), "4 strings, not 5"), (("a", ""), "an empty string")])
def test_stop_strings_that_cannot_be_are_refused(stage: Generate, stop: Any, why: str) -> None:
    error = refused(stage, "hello", stop=stop)
    assert error.field == "stop"
    assert why in error.message


# --- many at once -----------------------------------------------------------------------------------------------------


def test_more_requests_than_slots_wait_their_turn_and_all_are_answered(stage: Generate) -> None:
    texts = [f"number {i} of many" for i in range(20)]

    async def everyone() -> list[str]:
        return [answer.text for answer in await asyncio.gather(*(ask(stage, text) for text in texts))]

    assert asyncio.run(everyone()) == texts


def test_requests_start_in_the_order_they_came(parrot: Parrot) -> None:
    with loaded(PARROT, slots=1) as stage:
        ends: list[int] = []

        async def one(index: int) -> None:
            await asyncio.sleep(0.01 * index)
            await ask(stage, f"message {index}")
            ends.append(index)

        async def everyone() -> None:
            await asyncio.gather(*map(one, range(6)))

        asyncio.run(everyone())
    assert ends == sorted(ends)


def test_running_answers_share_forwards(parrot: Parrot) -> None:
    async def everyone(stage: Generate) -> None:
        await asyncio.gather(*(ask(stage, "a b c d e f g h") for _ in range(4)))

    with loaded(PARROT, hook=lambda step: time.sleep(0.005)) as stage:
        asyncio.run(everyone(stage))
    assert max(len(spans) for spans in parrot.forwards) == 4


def test_one_call_to_the_event_loop_a_step_delivers_to_all(parrot: Parrot) -> None:
    calls: list[int] = []

    async def everyone(stage: Generate) -> None:
        loop = asyncio.get_running_loop()
        original = loop.call_soon_threadsafe

        def counted(callback: Any, *args: Any, **options: Any) -> Any:
            if threading.current_thread().name == "omnic cpu":
                calls.append(len(args[0]))
            return original(callback, *args, **options)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        await asyncio.gather(*(ask(stage, "a b c d e f g h") for _ in range(4)))

    with loaded(PARROT, hook=lambda step: time.sleep(0.005)) as stage:
        asyncio.run(everyone(stage))
        assert len(calls) <= stage.stats()["steps"]
    assert max(calls) == 4


def test_stats_add_up(stage: Generate) -> None:
    async def everyone() -> list[Finished]:
        return [a.finished for a in await asyncio.gather(*(ask(stage, f"say {i}") for i in range(7)))]

    finished = asyncio.run(everyone())
    stats = stage.stats()
    assert stats["requests"] == stats["first_tokens"] == 7
    assert stats["prompt_tokens"] == sum(f.prompt_tokens for f in finished)
    assert stats["completion_tokens"] == sum(f.completion_tokens for f in finished)
    assert stats["rows"] >= stats["steps"] > 0
    assert stats["busy_seconds"] > 0
    assert (stats["queue"], stats["running"], stats["slots"]) == (0, 0, 4)
    assert all(0 <= f.stages["think"]["first_token_seconds"] <= f.stages["think"]["seconds"] for f in finished)


# --- readers, slow and gone -------------------------------------------------------------------------------------------


def test_an_answer_waits_for_its_reader_and_neighbours_do_not_wait_with_it(stage: Generate, parrot: Parrot) -> None:
    async def slow_and_fast() -> tuple[int, str, str]:
        flow = Flow(0)
        running = stage.start(flow, messages=said("a " * 30), max_tokens=99, temperature=0.0)
        flow.output("reply", running.text, window=2)
        got: list[str] = []
        ahead = 0
        async with aclosing(flow.__aiter__()) as events:
            async for event in events:
                if isinstance(event, Piece):
                    got.append(event.value)
                    if len(got) == 5:
                        fast = await ask(stage, "b " * 20, max_tokens=60)
                        ahead = len(parrot.slots[0]) - len(parrot.codec.prompt(said("a " * 30)))
        return ahead, "".join(got), fast.text

    ahead, slow, fast = asyncio.run(slow_and_fast())
    assert ahead <= 5 + 2 + 1  # read, waiting, and the one that came after the window was full
    assert (slow.strip(), fast.strip()) == (("a " * 30).strip(), ("b " * 20).strip())


def test_an_edge_that_gathers_the_whole_answer_does_not_hold_it_up(stage: Generate) -> None:
    async def gathered() -> list[str]:
        flow, units = Flow(0), list[str]()
        running = stage.start(flow, messages=said("hello, world"), max_tokens=99, temperature=0.0)
        whole = running.text.channel(window=1, segmenter=Whole())  # no other reader, and this one waits for the end

        async def read() -> None:
            units.extend([unit async for unit in whole])

        flow.run(read)
        async with asyncio.timeout(20):
            async for _ in flow:
                pass
        return units

    assert asyncio.run(gathered()) == ["hello, world"]


def test_a_reader_that_leaves_frees_its_slot(parrot: Parrot) -> None:
    with loaded(PARROT, slots=1, hook=lambda step: time.sleep(0.002)) as stage:

        async def leave_then_ask() -> str:
            flow = Flow(0)
            running = stage.start(flow, messages=said("long " * 30), max_tokens=150, temperature=0.0)
            flow.output("reply", running.text)
            async with aclosing(flow.__aiter__()) as events:
                await anext(events)
            return (await ask(stage, "next")).text

        assert asyncio.run(leave_then_ask()) == "next"
        assert stage.stats()["running"] == 0
        assert stage.stats()["completion_tokens"] < 60


def test_a_cancelled_answer_stops_at_the_next_token(parrot: Parrot) -> None:
    steps: list[Step] = []

    def hook(step: Step) -> None:
        steps.append(step)
        time.sleep(0.02)

    with loaded(PARROT, hook=hook) as stage:

        async def cancel_soon() -> int:
            asking = asyncio.create_task(ask(stage, "long " * 30, max_tokens=150))
            await asyncio.sleep(0.2)
            asking.cancel()
            at = len(steps)
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.sleep(0.2)
            return len(steps) - at

        assert asyncio.run(cancel_soon()) <= 2


def test_waiting_requests_can_be_cancelled(parrot: Parrot) -> None:
    with loaded(PARROT, slots=1, hook=lambda step: time.sleep(0.002)) as stage:

        async def cancel_the_second() -> tuple[str, float]:
            first = asyncio.create_task(ask(stage, "long " * 20, max_tokens=150))
            second = asyncio.create_task(ask(stage, "never said"))
            await asyncio.sleep(0.05)
            second.cancel()
            return (await first).text, stage.stats()["queue"]

        text, queue = asyncio.run(cancel_the_second())
    assert text.split() == ["long"] * 20
    assert queue == 0


def test_many_aborts_touch_no_one_else(stage: Generate) -> None:
    """After 200 requests, every fifth aborted somewhere, the others and 20 more are right."""

    async def one(index: int) -> str:
        text = f"request {index} has its own words"
        if index % 5:
            return "" if (await ask(stage, text, max_tokens=60)).text == text else text
        asking = asyncio.create_task(ask(stage, text, max_tokens=60))
        await asyncio.sleep(0.0007 * (index % 50))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return ""

    async def everyone() -> list[str]:
        wrong = await asyncio.gather(*map(one, range(200)))
        return [*wrong, *await asyncio.gather(*(one(5 * i + 1) for i in range(20)))]

    assert not any(asyncio.run(everyone()))
    assert stage.stats()["running"] == 0


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_step_that_fails_fails_its_requests_and_no_more(parrot: Parrot, caplog: pytest.LogCaptureFixture) -> None:
    armed = threading.Event()

    def hook(step: Step) -> None:
        if armed.is_set():
            armed.clear()
            raise ValueError("boom")

    with loaded(PARROT, hook=hook) as stage:
        armed.set()
        with pytest.raises(StageFailed, match="stage `think` failed: ValueError: boom"):
            asyncio.run(ask(stage, "hello"))
        assert asyncio.run(ask(stage, "hello")).text == "hello"
    assert "a step failed" in caplog.text


def test_a_step_that_fails_after_it_ended_an_answer_leaves_nobody_waiting(
    parrot: Parrot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both_asked, take = threading.Event(), Request.take

    def failing(request: Request, token: int) -> Any:
        if request.max_tokens == 3 and len(request.answer) == 2:
            raise ValueError("boom")
        return take(request, token)

    monkeypatch.setattr(Request, "take", failing)

    async def both(stage: Generate) -> list[Any]:
        first = asyncio.create_task(ask(stage, "a b c d", max_tokens=4))  # one token ahead, so both end in one step
        await asyncio.sleep(0.05)
        second = asyncio.create_task(ask(stage, "a b c d", max_tokens=3))
        await asyncio.sleep(0.05)
        both_asked.set()
        return await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 20)

    with loaded(PARROT, prefill_chunk=64, hook=lambda step: both_asked.wait(20)) as stage:
        answers = asyncio.run(both(stage))
    assert [type(answer) for answer in answers] == [StageFailed, StageFailed]


def test_running_out_of_memory_is_worth_another_try(parrot: Parrot, caplog: pytest.LogCaptureFixture) -> None:
    def hook(step: Step) -> None:
        raise MemoryError

    with loaded(PARROT, hook=hook) as stage:
        with pytest.raises(StageFailed) as caught:
            asyncio.run(ask(stage, "hello"))
        assert caught.value.retryable


def test_logits_that_are_not_numbers_fail_their_request_alone(
    parrot: Parrot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with loaded(PARROT) as stage:
        sound = parrot.forward

        def unsound(spans: list[Span]) -> Any:
            logits = sound(spans)
            wanting = [span for span in spans if span.logits]
            for row, span in enumerate(wanting):
                if parrot.codec.decode(parrot.slots[span.slot]).find("poison") >= 0:
                    logits[row] = float("nan")
            return logits

        monkeypatch.setattr(parrot, "forward", unsound)

        async def both() -> list[Any]:
            return await asyncio.gather(ask(stage, "poison"), ask(stage, "water"), return_exceptions=True)

        poisoned, watered = asyncio.run(both())
    assert isinstance(poisoned, StageFailed)
    assert "not numbers" in str(poisoned)
    assert watered.text == "water"


def test_an_engine_that_dies_says_so_and_refuses_what_comes_later(
    parrot: Parrot, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(step: Step) -> None:
        raise SystemExit("gone")

    with loaded(PARROT, hook=hook) as stage:
        for _ in range(2):
            with pytest.raises(StageFailed, match="gone"):
                asyncio.run(asyncio.wait_for(ask(stage, "hello"), 5))
    assert "the engine died" in caplog.text


def test_a_model_that_fails_on_its_first_step_fails_to_load(parrot: Parrot, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spans: list[Span]) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(parrot, "forward", broken)
    with pytest.raises(RuntimeError, match="no such kernel"), loaded(PARROT):
        pass


def test_closing_fails_what_runs_and_leaves_no_thread(parrot: Parrot) -> None:
    threads = threading.active_count()
    with loaded(PARROT, hook=lambda step: time.sleep(0.01)) as stage:

        async def close_while_asking() -> Any:
            asking = asyncio.create_task(ask(stage, "long " * 30, max_tokens=150))
            await asyncio.sleep(0.1)
            await stage.close()
            return (await asyncio.gather(asking, return_exceptions=True))[0]

        error = asyncio.run(close_while_asking())
        assert isinstance(error, StageFailed)
        assert "closed" in str(error)
        with pytest.raises(StageFailed, match="was closed"):
            asyncio.run(ask(stage, "hello"))
    assert threading.active_count() <= threads


def test_a_loop_that_closed_under_a_request_harms_no_other(stage: Generate, parrot: Parrot) -> None:
    loop = asyncio.new_event_loop()
    orphan = Request(
        prompt=tuple(parrot.codec.prompt(said("nobody listens"))),
        max_tokens=50,
        draw=Draw(0, 0.0),
        stop_ids=frozenset(),
        stops=Stops(()),
        detokeniser=Detokeniser(parrot.codec.decode),
        text=Port(),
        tokens=Port(),
        loop=loop,
        done=loop.create_future(),
    )
    loop.close()
    assert stage._engine is not None
    stage._engine.submit(orphan)
    assert asyncio.run(ask(stage, "hello")).text == "hello"
    assert stage.stats()["running"] == 0
    assert len(orphan.answer) == 1  # noticed at its first delivery


# --- long prompts beside running answers ------------------------------------------------------------------------------


def test_a_long_prompt_makes_no_running_answer_wait_long(parrot: Parrot, monkeypatch: pytest.MonkeyPatch) -> None:
    """While 1,024 tokens prefill, a running stream waits no more than 3 times its median step (in a time that passes
    in the model alone: 4 ms a forward and 0.1 ms a token)."""
    now = 0.0
    seconds: list[float] = []
    sound = parrot.forward

    def timed(spans: list[Span]) -> Any:
        nonlocal now
        seconds.append(0.004 + 0.0001 * sum(len(span.tokens) for span in spans))
        now += seconds[-1]
        return sound(spans)

    monkeypatch.setattr(parrot, "forward", timed)
    monkeypatch.setattr(engine, "time", SimpleNamespace(perf_counter=lambda: now, monotonic=time.monotonic))
    given = threading.Event()

    def hook(step: Step) -> None:  # the stream is well under way when the prompt comes
        if step.number == 60:
            assert given.wait(10)

    with loaded(PARROT, dtype="bfloat16", context=2048, prompt=1500, prefill_chunk=256, hook=hook) as stage:
        long = "x y " * 256
        prompt = len(parrot.codec.prompt(said(long)))
        assert prompt >= 1024
        loads = len(seconds)

        async def both() -> None:
            stream = asyncio.create_task(ask(stage, "s " * 150, max_tokens=300))
            other = asyncio.create_task(ask(stage, long, max_tokens=1))
            while stage.stats()["queue"] + stage.stats()["running"] < 2:
                await asyncio.sleep(0.001)
            given.set()
            await asyncio.gather(stream, other)

        asyncio.run(both())
    steps = zip(seconds[loads:], parrot.forwards[loads:], strict=True)
    waits = [took for took, spans in steps if any(len(span.tokens) == 1 for span in spans)]
    assert max(waits) <= 3 * median(waits)
    chunks = [len(s.tokens) for spans in parrot.forwards[loads:] if len(spans) == 2 for s in spans if len(s.tokens) > 1]
    assert sum(chunks) > 900
    assert len(chunks) < prompt / 16  # and it does not starve the prompt either


def test_in_float32_prompts_are_cut_at_the_same_places_whatever_runs_beside(parrot: Parrot) -> None:
    text = "long " * 20
    prompt = len(parrot.codec.prompt(said(text)))

    def cuts(neighbours: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def hook(step: Step) -> None:
            time.sleep(0.001)
            mine = [w for w in step.work if w.sequence.prompt == prompt and w.sequence.prefilling]
            found.extend((w.start, w.length) for w in mine)

        with loaded(PARROT, hook=hook) as stage:

            async def everyone() -> None:
                streams = [asyncio.create_task(ask(stage, "n " * 31, max_tokens=60)) for _ in range(neighbours)]
                await asyncio.sleep(0.1 if neighbours else 0)
                await ask(stage, text)
                await asyncio.gather(*streams)

            asyncio.run(everyone())
        return found

    assert cuts(neighbours=0) == [(at, min(16, prompt - at)) for at in range(0, prompt, 16)]
    assert cuts(neighbours=3) == cuts(neighbours=0)
