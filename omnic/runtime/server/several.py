"""Answers that have several results: their runs side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def several(runs: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """What comes of all `runs`, as it comes, each with the index of its run.

    Raises what the first run to fail raised. Leaving early ends them all.
    """
    if len(runs) == 1:
        async with aclosing(runs[0]) as items:
            async for each in items:
                yield 0, each
        return
    arrived: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(maxsize=len(runs))
    pumps = [asyncio.create_task(_pump(index, run, arrived)) for index, run in enumerate(runs)]
    try:
        left = len(runs)
        while left:
            item = await arrived.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int, run: AsyncGenerator[T, None], arrived: asyncio.Queue[tuple[int, T] | Exception | None]
) -> None:
    try:
        async with aclosing(run) as items:
            async for item in items:
                await arrived.put((index, item))
        await arrived.put(None)
    except Exception as error:
        await arrived.put(error)
