"""Edges between stages inside one process: `Port` gives, `Channel` carries, a stage takes.

A channel is bounded by credits and ordered by sequence numbers: a producer that has run out of credit pauses,
and no item is dropped, repeated or reordered, however many arrive together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Segmenter(Protocol):
    """Cuts what flows through a channel into the units its consumer takes (sentences, clauses, chunks).

    The cuts depend on the text alone, never on how it arrived: pushing it whole or letter by letter gives the
    same units.
    """

    def push(self, item: Any) -> list[Any]: ...

    def flush(self) -> list[Any]: ...


class Channel(Generic[T]):
    """One edge: at most `window` items wait in it. Used from the event loop only."""

    def __init__(self, window: int, segmenter: Segmenter | None = None, on_credit: Callable[[], None] | None = None) -> None:  # fmt: skip
        if window < 1:
            raise ValueError(f"a channel needs a window of at least 1, not {window}")
        self.window = window
        self.sent = self.taken = 0  # sequence numbers: items sent so far, items taken so far
        self._items: deque[tuple[int, T]] = deque()
        self._segmenter = segmenter
        self._on_credit = on_credit
        self._arrived = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None

    @property
    def credit(self) -> int:
        """How many more items may be sent before the producer should pause."""
        return self.window - len(self._items)

    def send(self, item: Any) -> None:
        """Takes what the producer made. One item may become several units, so credit may run below zero."""
        if self._closed:
            return  # the consumer has gone; what it will not read is not kept
        self._append(self._segmenter.push(item) if self._segmenter else [item])

    def close(self, error: BaseException | None = None) -> None:
        """No more items. What waits is still delivered, then `error` is raised, if given."""
        if self._closed:
            return
        if self._segmenter and error is None:
            self._append(self._segmenter.flush())
        self._closed, self._error = True, error
        self._arrived.set()

    def drop(self) -> None:
        """The consumer wants no more: forgets what waits and gives all credit back."""
        self._items.clear()
        self._closed = True
        self._arrived.set()
        if self._on_credit:
            self._on_credit()

    def _append(self, units: list[T]) -> None:
        for unit in units:
            self._items.append((self.sent, unit))
            self.sent += 1
        if units:
            self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            while self._items:
                number, item = self._items.popleft()
                if number != self.taken:
                    raise RuntimeError(f"channel out of order: item {number} where {self.taken} was due")
                self.taken += 1
                if self._on_credit:
                    self._on_credit()
                yield item
            if self._closed:
                if self._error is not None:
                    raise self._error
                return
            self._arrived.clear()
            await self._arrived.wait()


class Port:
    """An output of a running stage. Every channel opened on it gets every item, from the first."""

    def __init__(self, on_credit: Callable[[], None] | None = None) -> None:
        self._on_credit = on_credit
        self._channels: list[Channel[Any]] = []
        self._closed = False

    def channel(self, window: int, segmenter: Segmenter | None = None) -> Channel[Any]:
        """Opens an edge. Must happen before the stage gives its first item, which the flow's start guarantees."""
        channel: Channel[Any] = Channel(window, segmenter, self._on_credit)
        self._channels.append(channel)
        return channel

    @property
    def credit(self) -> int:
        """Credit of the slowest consumer; a port without consumers never blocks. Safe to read from any thread."""
        return min((c.credit for c in self._channels if not c._closed), default=1 << 30)

    def send(self, item: Any) -> None:
        for channel in self._channels:
            channel.send(item)

    def close(self, error: BaseException | None = None) -> None:
        self._closed = True
        for channel in self._channels:
            channel.close(error)
