"""Channels and ports: credits, order, and what happens to what is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnic.runtime.edges import Channel, Port


class Pairs:
    """Cuts numbers into pairs, to see a segmenter at work."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def push(self, item: int) -> list[tuple[int, ...]]:
        self.held.append(item)
        return [self._take()] if len(self.held) == 2 else []

    def flush(self) -> list[tuple[int, ...]]:
        return [self._take()] if self.held else []

    def _take(self) -> tuple[int, ...]:
        held, self.held = tuple(self.held), []
        return held


async def everything(channel: Channel[Any]) -> list[Any]:
    return [item async for item in channel]


def test_items_come_in_order_and_end() -> None:
    async def main() -> list[int]:
        port = Port()
        channel = port.channel(window=8)
        for number in range(5):
            port.send(number)
        port.close()
        return await everything(channel)

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_credit_falls_with_each_item_and_comes_back_when_one_is_taken() -> None:
    credited = []
    port = Port(on_credit=lambda: credited.append(port.credit))
    channel = port.channel(window=2)
    port.send("a")
    port.send("b")
    assert port.credit == 0
    assert channel.take() == "a"
    assert credited == [1]


def test_a_port_has_the_credit_of_its_slowest_consumer() -> None:
    port = Port()
    slow, fast = port.channel(window=1), port.channel(window=9)
    port.send("x")
    assert port.credit == 0
    slow.drop()
    assert port.credit == 8
    fast.drop()
    assert port.credit > 1000


def test_a_producer_waits_for_room_and_never_sends_more_than_the_window() -> None:
    async def main() -> int:
        port = Port()
        channel = port.channel(window=3)
        most = 0

        async def produce() -> None:
            nonlocal most
            for number in range(50):
                await port.room()
                port.send(number)
                most = max(most, channel.waiting)
            port.close()

        producing = asyncio.create_task(produce())
        got = []
        async for number in channel:
            got.append(number)
            await asyncio.sleep(0)
        await producing
        assert got == list(range(50))
        return most

    assert asyncio.run(main()) <= 3


def test_an_error_comes_after_what_was_sent_before_it() -> None:
    async def main() -> list[Any]:
        channel: Channel[int] = Channel(window=4)
        channel.send(1)
        channel.close(ValueError("broken"))
        got: list[Any] = []
        try:
            async for item in channel:
                got.append(item)
        except ValueError as error:
            got.append(str(error))
        return got

    assert asyncio.run(main()) == [1, "broken"]


def test_a_segmenter_is_flushed_at_a_clean_end_and_not_at_an_error() -> None:
    async def main(error: Exception | None) -> list[Any]:
        channel: Channel[Any] = Channel(window=4, segmenter=Pairs())
        for number in range(5):
            channel.send(number)
        channel.close(error)
        got = []
        try:
            async for item in channel:
                got.append(item)
        except OSError:
            got.append("error")
        return got

    assert asyncio.run(main(None)) == [(0, 1), (2, 3), (4,)]
    assert asyncio.run(main(OSError())) == [(0, 1), (2, 3), "error"]


def test_leaving_early_gives_the_producer_its_credit_back() -> None:
    async def main() -> None:
        port = Port()
        channel = port.channel(window=1)
        port.send(1)
        async for _ in channel:
            break
        await asyncio.sleep(0)
        port.send(2)
        await asyncio.wait_for(port.room(), 10)
        assert channel.waiting == 0

    asyncio.run(main())


def test_a_consumer_that_goes_wakes_a_producer_that_waits() -> None:
    async def main() -> None:
        credited = []
        port = Port(on_credit=lambda: credited.append(port.credit))
        channel = port.channel(window=1)
        port.send(1)
        waiting = asyncio.create_task(port.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        channel.drop()
        await asyncio.wait_for(waiting, 10)
        assert credited[-1] > 1000

    asyncio.run(main())


def test_sending_on_a_closed_channel_is_a_fault_of_the_producer() -> None:
    channel: Channel[int] = Channel(window=1)
    channel.close()
    with pytest.raises(RuntimeError, match="closed"):
        channel.send(1)


def test_sending_after_an_error_or_to_nobody_is_of_no_effect() -> None:
    failed, left = Channel[int](window=1), Channel[int](window=1)
    failed.close(ValueError())
    left.drop()
    for channel in (failed, left):
        channel.send(1)
        assert channel.waiting == 0


def test_a_channel_cannot_be_opened_on_a_port_that_has_begun() -> None:
    port = Port()
    port.send(1)
    with pytest.raises(RuntimeError, match="begun"):
        port.channel(window=1)


def test_a_window_below_one_would_never_move() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Channel(window=0)


@given(
    bursts=st.lists(st.integers(0, 7), max_size=20),
    window=st.integers(1, 5),
    pauses=st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
def test_nothing_is_lost_however_items_bunch_and_however_slow_consumers_are(
    bursts: list[int], window: int, pauses: list[int]
) -> None:
    async def main() -> None:
        port = Port()
        channels = [port.channel(window), port.channel(window, Pairs())]
        total = sum(bursts)

        async def produce() -> None:
            number = 0
            for burst in bursts:
                await port.room()
                for _ in range(burst):  # arrive together
                    port.send(number)
                    number += 1
            port.close()

        async def consume(channel: Channel[Any]) -> list[Any]:
            got = []
            async for item in channel:
                got.append(item)
                for _ in range(pauses[len(got) % len(pauses)]):
                    await asyncio.sleep(0)
            return got

        _, plain, paired = await asyncio.gather(produce(), *map(consume, channels))
        assert plain == list(range(total))
        assert [number for pair in paired for number in pair] == plain

    asyncio.run(main())
