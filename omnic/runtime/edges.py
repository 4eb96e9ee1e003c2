"""Edges between stages inside one process: `Port` gives, `Channel` carries, a stage takes.

A channel is bounded by credits and ordered by sequence numbers: a producer that has run out of credit pauses,
and no item is dropped, repeated or reordered, however many arrive together. All of it lives on the event loop;
only `credit` may be read from other threads.
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
    """One edge, with one consumer: at most `window` items wait in it, unless one item was cut into several units.

    `given` says that the request itself feeds it, not a stage. `on_credit` is called when an item was taken,
    `on_arrival` when one can be taken or the channel was closed.
    """

    def __init__(
        self,
        window: int,
        segmenter: Segmenter | None = None,
        on_credit: Callable[[], None] | None = None,
        on_arrival: Callable[[], None] | None = None,
        *,
        given: bool = False,
    ) -> None:
        if window < 1:
            raise ValueError(f"a channel needs a window of at least 1, not {window}")
        self.window, self.segmenter, self.given = window, segmenter, given
        self.sent = self.taken = 0  # sequence numbers: items sent so far, items taken so far
        self._items: deque[tuple[int, T]] = deque()
        self._on_credit, self._on_arrival = on_credit, on_arrival
        self._arrived = asyncio.Event()
        self._closed = self._dropped = False
        self._error: BaseException | None = None

    # --- the producer's end ----------------------------------------------------------------------------------------

    @property
    def credit(self) -> int:
        """How many more items may be sent before the producer should pause. A consumer that has gone needs no care."""
        return 1 << 30 if self._dropped else self.window - len(self._items)

    def send(self, item: Any) -> None:
        """Takes what the producer made. One item may become several units, so credit may run below zero."""
        if self._dropped or self._error is not None:
            return  # nobody will read it
        if self._closed:
            raise RuntimeError("an item was sent on a channel that its producer had closed")
        self._append(self.segmenter.push(item) if self.segmenter else [item])

    def close(self, error: BaseException | None = None) -> None:
        """No more items. What waits is still delivered, then `error` is raised, if given."""
        if self._closed:
            return
        if self.segmenter and error is None and not self._dropped:
            self._append(self.segmenter.flush())
        self._closed, self._error = True, error
        self._wake()

    # --- the consumer's end ----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many items can be taken now."""
        return len(self._items)

    @property
    def error(self) -> BaseException | None:
        """What ended the channel, once everything before it has been taken."""
        return None if self._items else self._error

    def take(self) -> T:
        """The next item, which must be waiting; gives its credit back."""
        number, item = self._items.popleft()
        if number != self.taken:
            raise RuntimeError(f"channel out of order: item {number} where {self.taken} was due")
        self.taken += 1
        if self._on_credit:
            self._on_credit()
        return item

    async def __aiter__(self) -> AsyncIterator[T]:
        """Items in order, to the end. Leaving early drops the channel."""
        try:
            while True:
                while self._items:
                    yield self.take()
                if self._error is not None:
                    raise self._error
                if self._closed:
                    return
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self.drop()

    def drop(self) -> None:
        """The consumer wants no more: forgets what waits and gives all credit back, for good."""
        if self._dropped:
            return
        self._items.clear()
        self._dropped = self._closed = True
        self._wake()
        if self._on_credit:
            self._on_credit()

    def _append(self, units: list[T]) -> None:
        for unit in units:
            self._items.append((self.sent, unit))
            self.sent += 1
        if units:
            self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        if self._on_arrival:
            self._on_arrival()


class Port:
    """An output of a running stage. Every channel opened on it gets every item, from the first.

    `on_credit` is called on the event loop whenever a consumer took an item or went away.
    """

    def __init__(self, on_credit: Callable[[], None] | None = None) -> None:
        self._on_credit = on_credit
        self._channels: list[Channel[Any]] = []
        self._room = asyncio.Event()
        self._begun = False

    def channel(
        self, window: int, segmenter: Segmenter | None = None, on_arrival: Callable[[], None] | None = None
    ) -> Channel[Any]:
        """Opens an edge. Must happen before the stage gives its first item, which the flow's start guarantees."""
        if self._begun:
            raise RuntimeError("a channel was opened on a port that has begun to give")
        channel: Channel[Any] = Channel(window, segmenter, self._credited, on_arrival)
        self._channels.append(channel)
        return channel

    @property
    def credit(self) -> int:
        """Credit of the slowest consumer; a port without consumers never blocks. Safe to read from any thread."""
        return min((c.credit for c in self._channels), default=1 << 30)

    async def room(self) -> None:
        """Waits until every consumer has credit."""
        while self.credit < 1:
            self._room.clear()
            await self._room.wait()

    def send(self, item: Any) -> None:
        self._begun = True
        for channel in self._channels:
            channel.send(item)

    def close(self, error: BaseException | None = None) -> None:
        self._begun = True
        for channel in self._channels:
            channel.close(error)

    def feeds(self, channel: Channel[Any]) -> bool:
        """Whether `channel` was opened on this port."""
        return any(c is channel for c in self._channels)

    def _credited(self) -> None:
        self._room.set()
        if self._on_credit:
            self._on_credit()
