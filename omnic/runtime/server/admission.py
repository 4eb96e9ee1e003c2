"""The front door of an endpoint: so many requests at work, so many in line, the rest sent away."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable


class Full(Exception):
    """No place, or none in time. `status` is 429 (the line is full) or 503 (the wait was too long)."""

    def __init__(self, message: str, status: int, retry_seconds: int) -> None:
        super().__init__(message)
        self.message, self.status, self.retry_seconds = message, status, retry_seconds


class Door:
    """First come, first served. Used from one event loop."""

    def __init__(self, places: int, line: int, patience: float) -> None:
        self.places, self.line = places, line
        self.inside = 0
        self._patience = patience
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._typical = 1.0  # seconds a request has stayed lately

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def require(self, requests: int) -> None:
        """Raises Full unless `requests` more can come in or stand in line."""
        if self.waiting + requests > self.line + max(0, self.places - self.inside):
            raise Full(f"{self.waiting} requests wait already: try again later", 429, self.retry_seconds)

    @property
    def retry_seconds(self) -> int:
        """About when there will be room."""
        return min(60, max(1, math.ceil(self._typical * (self.waiting + 1) / self.places)))

    async def enter(self, *, patient: bool = False) -> Callable[[], None]:
        """Waits for a place; returns how to leave it, to be called once. Raises Full; one that is `patient` stands in
        line however long that is, and as long as it takes."""
        if self.inside >= self.places or self._waiting:
            await self._wait(patient)
        else:
            self.inside += 1
        came = time.monotonic()

        def leave() -> None:
            self._typical += 0.2 * (time.monotonic() - came - self._typical)
            self.inside -= 1
            self._admit()

        return leave

    def turn_away(self, error: Exception) -> None:
        """Sends away everyone in line."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    async def _wait(self, patient: bool) -> None:
        if not patient:
            self.require(1)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(None if patient else self._patience):
                await place
        except (TimeoutError, asyncio.CancelledError) as error:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.inside -= 1  # the place came at the same moment
                self._admit()
            elif place in self._waiting:
                self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                message = f"no place came free in {self._patience:g} s"
                raise Full(message, 503, self.retry_seconds) from None
            raise

    def _admit(self) -> None:
        while self._waiting and self.inside < self.places:
            future = self._waiting.popleft()
            if not future.done():
                self.inside += 1
                future.set_result(None)
