"""Flows: pieces in order, exactly one end, and stages that let go whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnic.runtime.edges import Channel, Port
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Finished, Flow, Piece


class Letters:
    """A stage that gives letters, and remembers who holds it."""

    def __init__(self, fail_at: int | None = None, error: Exception | None = None) -> None:
        self.fail_at, self.error = fail_at, error
        self.held = self.let_go = self.given = 0

    def start(self, flow: Flow, count: int) -> Port:
        port = Port()

        async def work() -> None:
            self.held += 1
            for number in range(count):
                if number == self.fail_at:
                    raise self.error or ValueError("no more letters")
                await port.room()
                port.send(chr(97 + number % 26))
                self.given += 1
                await asyncio.sleep(0)
            flow.report.finish_reason = "stop"
            port.close()

        flow.run(work, self._end, "letters")
        return port

    def _end(self) -> None:
        self.let_go += 1


class Upper:
    """A stage that makes each letter a capital, slowly, and counts."""

    def __init__(self, pause: Callable[[], Awaitable[None]] | None = None, fail_at: int | None = None) -> None:
        self.pause, self.fail_at = pause, fail_at
        self.requests = self.let_go = 0

    def start(self, flow: Flow, letters: Channel[str]) -> Port:
        port = Port()

        async def work() -> None:
            self.requests += 1
            index = 0
            async for letter in letters:
                if index == self.fail_at:
                    raise ValueError("no capital")
                if self.pause:
                    await self.pause()
                await port.room()
                port.send(letter.upper())
                index += 1
            port.close()

        flow.run(work, self._end, "upper")
        return port

    def _end(self) -> None:
        self.let_go += 1


def both(letters: Letters, upper: Upper, count: int = 20, window: int = 2, outputs: int = 64) -> Flow:
    flow = Flow(seed=7)
    small = letters.start(flow, count)
    capital = upper.start(flow, small.channel(window))
    flow.output("small", small, outputs)
    flow.output("capital", capital, outputs)
    return flow


def text(count: int) -> str:
    return "".join(chr(97 + n % 26) for n in range(count))


async def events(flow: Flow) -> list[Piece | Finished]:
    return [event async for event in flow]


def test_pieces_come_as_they_are_made_and_finished_comes_last() -> None:
    got = asyncio.run(_run(lambda: both(Letters(), Upper())))
    *pieces, finished = got
    small = [p for p in pieces if isinstance(p, Piece) and p.output == "small"]
    assert "".join(p.value for p in small) == text(20)
    assert [p.index for p in small] == list(range(20))
    assert isinstance(finished, Finished)
    assert (finished.seed, finished.finish_reason) == (7, "stop")
    # the slow output did not wait for the other's end
    assert [p.output for p in pieces if isinstance(p, Piece)][:6].count("capital") > 0


async def _run(make: Callable[[], Flow]) -> list[Piece | Finished]:
    return await events(make())


def test_result_joins_text_and_sound() -> None:
    async def main() -> dict[str, Any]:
        flow = Flow()
        port = Port()

        async def work() -> None:
            for _ in range(3):
                port.send(np.ones(4, np.float32))
            port.close()

        flow.run(work)
        flow.output("speech", port)
        flow.output("small", Letters().start(flow, 3))
        return await flow.result()

    result = asyncio.run(main())
    assert result["small"] == "abc"
    assert result["speech"].shape == (12,)
    assert result["finished"].completion_tokens == 0


def test_what_the_request_gives_flows_like_what_a_stage_gives() -> None:
    async def main() -> dict[str, Any]:
        flow = Flow()
        flow.output("capital", Upper().start(flow, flow.given("hello")))
        return await flow.result()

    assert asyncio.run(main())["capital"] == "HELLO"


def test_a_flow_of_text_alone_never_touches_what_speaks() -> None:
    upper = Upper()

    async def main() -> None:
        flow = Flow()
        flow.output("small", Letters().start(flow, 5))
        await events(flow)

    asyncio.run(main())
    assert upper.requests == 0


def test_unseeded_flows_report_the_seed_they_drew() -> None:
    async def main() -> int:
        flow = Flow()
        last = (await events(flow))[-1]
        assert isinstance(last, Finished)
        assert last.seed == flow.seed
        return last.seed

    assert len({asyncio.run(main()) for _ in range(4)}) > 1


@pytest.mark.parametrize("outputs", [1, 64])
def test_a_slow_reader_holds_the_producer_back(outputs: int) -> None:
    letters = Letters()

    async def main() -> None:
        flow = Flow()
        flow.output("small", letters.start(flow, 500), outputs)
        async for event in flow:
            if isinstance(event, Piece):
                assert letters.given <= event.index + outputs + 1
                for _ in range(3):
                    await asyncio.sleep(0)

    asyncio.run(main())
    assert letters.given == 500


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_stage_that_raises_fails_the_flow_once_and_every_stage_lets_go() -> None:
    letters, upper = Letters(fail_at=5), Upper()

    async def main() -> Flow:
        flow = both(letters, upper)
        with pytest.raises(StageFailed, match="stage `letters` failed: ValueError: no more letters"):
            await events(flow)
        assert len(asyncio.all_tasks()) == 1
        return flow

    assert asyncio.run(main()).state == "failed"
    assert (letters.let_go, upper.let_go) == (1, 1)


def test_a_stage_downstream_that_raises_stops_the_one_above_it() -> None:
    letters, upper = Letters(), Upper(fail_at=3)

    async def main() -> None:
        with pytest.raises(StageFailed, match="upper"):
            await events(both(letters, upper, count=10_000))

    asyncio.run(main())
    assert letters.given < 100
    assert (letters.let_go, upper.let_go) == (1, 1)


def test_an_error_that_a_port_was_closed_with_reaches_whoever_reads_the_flow() -> None:
    async def main() -> None:
        flow, port = Flow(), Port()

        async def work() -> None:
            port.close(StageFailed("engine", "it broke"))

        flow.run(work)
        flow.output("small", port)
        with pytest.raises(StageFailed, match="it broke"):
            await events(flow)
        assert flow.state == "failed"

    asyncio.run(main())


def test_a_refused_request_is_not_dressed_up_as_a_failure() -> None:
    letters = Letters(fail_at=0, error=RequestError("too long", "messages"))

    async def main() -> None:
        with pytest.raises(RequestError) as caught:
            await events(both(letters, Upper()))
        assert caught.value.field == "messages"

    asyncio.run(main())


@pytest.mark.parametrize("error", [MemoryError(), type("OutOfMemoryError", (RuntimeError,), {})()])
def test_running_out_of_memory_is_worth_another_try(error: Exception) -> None:
    async def main() -> None:
        with pytest.raises(StageFailed) as caught:
            await events(both(Letters(fail_at=1, error=error), Upper()))
        assert caught.value.retryable

    asyncio.run(main())


def test_a_stage_whose_work_stops_by_itself_fails_the_flow() -> None:
    async def main() -> None:
        flow = Flow()

        async def work() -> None:
            raise asyncio.CancelledError

        flow.run(work, stage="odd")
        with pytest.raises(StageFailed, match="odd"):
            await events(flow)

    asyncio.run(main())


def test_cancel_stops_the_stages_even_if_nobody_reads_on() -> None:
    letters, upper = Letters(), Upper()

    async def main() -> None:
        flow = both(letters, upper, count=10_000)
        iterator = aiter(flow)
        await anext(iterator)
        flow.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (letters.let_go, upper.let_go) == (1, 1)
        with pytest.raises(Cancelled):
            await anext(iterator)
        assert flow.state == "cancelled"

    asyncio.run(main())


def test_leaving_the_iteration_cancels() -> None:
    letters, upper = Letters(), Upper()

    async def main() -> None:
        flow = both(letters, upper, count=10_000)
        async with aclosing(aiter(flow)) as iterator:  # type: ignore[type-var]
            async for _ in iterator:
                break
        assert flow.state == "cancelled"
        assert (letters.let_go, upper.let_go) == (1, 1)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_an_output_nobody_reads_any_more_gives_its_credit_back() -> None:
    async def main() -> None:
        flow, port = Flow(), Port()

        async def work() -> None:
            port.send("a")
            await asyncio.sleep(1)

        flow.run(work)
        flow.output("small", port, window=1)
        async with aclosing(aiter(flow)) as iterator:  # type: ignore[type-var]
            async for _ in iterator:
                break
        port.send("b")
        assert port.credit > 1000  # an engine's thread may wait for it

    asyncio.run(main())


def test_a_reader_that_is_cancelled_cancels_the_flow() -> None:
    letters, upper = Letters(), Upper()

    async def main() -> None:
        flow = both(letters, upper, count=100_000)
        reader = asyncio.create_task(events(flow))
        await asyncio.sleep(0.01)
        reader.cancel()
        await asyncio.wait({reader})
        assert reader.cancelled()
        assert flow.state == "cancelled"
        assert (letters.let_go, upper.let_go) == (1, 1)

    asyncio.run(main())


def test_a_flow_cancelled_before_it_began_does_nothing() -> None:
    letters = Letters()

    async def main() -> None:
        flow = both(letters, Upper())
        flow.cancel()
        with pytest.raises(Cancelled):
            await events(flow)
        assert flow.state == "cancelled"

    asyncio.run(main())
    assert letters.held == 0


def test_a_flow_runs_once_and_cancelling_what_has_ended_changes_nothing() -> None:
    async def main() -> None:
        flow = both(Letters(), Upper())
        await events(flow)
        flow.cancel()
        assert flow.state == "finished"
        with pytest.raises(RuntimeError, match="once"):
            await events(flow)

    asyncio.run(main())


def test_a_fault_in_letting_go_does_not_keep_the_others_from_it() -> None:
    letters, upper = Letters(), Upper()

    async def main() -> None:
        flow = Flow()

        async def nothing() -> None: ...

        def bad() -> None:
            raise ValueError("cannot let go")

        flow.run(nothing, bad, "bad")
        flow.output("small", letters.start(flow, 3))
        with pytest.raises(ValueError, match="cannot let go"):
            await events(flow)
        assert flow.state == "failed"

    asyncio.run(main())
    assert letters.let_go == 1
    assert upper.let_go == 0


@settings(max_examples=60)
@given(
    stop_after=st.integers(0, 30),
    how=st.sampled_from(["cancel", "leave", "kill", "fail above", "fail below", "nothing"]),
    window=st.integers(1, 3),
    outputs=st.integers(1, 4),
)
def test_every_flow_ends_exactly_once_wherever_it_is_stopped(
    stop_after: int, how: str, window: int, outputs: int
) -> None:
    letters = Letters(fail_at=stop_after if how == "fail above" else None)
    upper = Upper(fail_at=stop_after if how == "fail below" else None)

    async def main() -> None:
        flow = both(letters, upper, 20, window, outputs)
        seen = 0

        async def read() -> str:
            nonlocal seen
            async with aclosing(aiter(flow)) as iterator:  # type: ignore[type-var]
                async for event in iterator:
                    if isinstance(event, Finished):
                        return "finished"
                    seen += 1
                    if seen > stop_after and how == "cancel":
                        flow.cancel()
                    if seen > stop_after and how == "leave":
                        return "left"
                    if seen > stop_after and how == "kill":
                        raise asyncio.CancelledError
            raise AssertionError("a flow ends with Finished or raises")

        try:
            end = await read()
        except StageFailed:
            end = "failed"
        except (Cancelled, asyncio.CancelledError):
            end = "cancelled"
        expected = {"nothing": "finished", "cancel": "cancelled", "kill": "cancelled", "leave": "left"}.get(
            how, "failed"
        )
        if how.startswith("fail") and stop_after >= 20:
            expected = "finished"
        assert end == expected
        assert flow.state == ("cancelled" if end == "left" else end)
        assert (letters.let_go, upper.let_go) == (1, 1)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_eight_streams_at_once_with_a_slow_downstream_lose_nothing() -> None:
    lock_order: list[int] = []

    async def main() -> list[dict[str, Any]]:
        turn = asyncio.Semaphore(1)

        async def pause() -> None:  # one slow consumer for all of them, so that chunks pile up
            async with turn:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                lock_order.append(1)

        upper = Upper(pause)
        return await asyncio.gather(*(both(Letters(), upper, 100 + n, window=4).result() for n in range(8)))

    for number, result in enumerate(asyncio.run(main())):
        assert result["small"] == text(100 + number)
        assert result["capital"] == text(100 + number).upper()
    assert len(lock_order) == sum(100 + n for n in range(8))
