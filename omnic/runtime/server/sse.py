"""Answers that last: given up when the client goes, whether they are being made or being sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"
_JSON = msgspec.json.Encoder()


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


class Cut(Exception):
    """Raised by a body that cannot go on and has no way to say why but to end in the middle."""


def event(data: dict[str, Any], name: str | None = None) -> bytes:
    """One server-sent event that carries JSON."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + _JSON.encode(data) + b"\n\n"


async def attended(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client goes away. Raises ClientGone then.

    The body of the request must have been read.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.wait({task, gone})
        if not task.cancelled():
            task.exception()  # seen, whichever way this ends


class Streamed(StreamingResponse):
    """A body sent as it is made. When the client goes, making it stops at once, also between two pieces; a client
    that reads nothing for `stall_seconds` has gone too."""

    body_iterator: AsyncGenerator[bytes, None]

    def __init__(
        self, body: AsyncGenerator[bytes, None], media_type: str, headers: dict[str, str], stall_seconds: float
    ) -> None:
        super().__init__(body, media_type=media_type, headers={"cache-control": "no-store", **headers})
        self._stall_seconds = stall_seconds
        self.over: list[Callable[[], None]] = []  # called when the answer is, also if none of it was sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (sending, gone):
                each.cancel()
            await asyncio.wait({sending, gone})
            await self.body_iterator.aclose()
            for call in self.over:
                call()
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(self._stall_seconds):
                await send(message)

        try:
            await self.stream_response(in_time)
        except (OSError, Cut):  # the client has gone, reads nothing, or the body broke off
            return  # unfinished, so the connection is closed


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
