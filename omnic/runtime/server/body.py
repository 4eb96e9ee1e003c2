"""The body of a request as JSON, within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from omnic.runtime.server.problems import Problem

T = TypeVar("T")

_LONG = 1 << 16  # bytes, beyond which a body is worked on beside the event loop, so that streams go on


async def held(request: Request, limit: int, seconds: float, hold: Callable[[Any], T]) -> T:
    """What `hold` makes of the body of a request, which is JSON. Raises what it raises, Problem (400, 408, 413, 415),
    starlette's ClientDisconnect."""
    data = await _body(request, limit, seconds)
    if len(data) > _LONG:
        return await asyncio.to_thread(lambda: hold(_decoded(data)))
    return hold(_decoded(data))


async def _body(request: Request, limit: int, seconds: float) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, f"the body must be application/json, not {kind or 'of no type'}", "unsupported_media_type")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "a compressed body cannot be read", "unsupported_media_type")
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, limit)
    except TimeoutError:
        raise Problem(408, f"the body did not come within {seconds:g} s", "body_timeout") from None


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}", "invalid_json") from None


async def _read(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise _too_large(limit)
    return bytes(data)


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body may have at most {limit} bytes", "body_too_large", headers={"connection": "close"})
