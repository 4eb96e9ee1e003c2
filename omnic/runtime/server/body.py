"""The body of a request, as JSON or as a form with files, within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from omnic.contract.endpoints import ENDPOINTS, Endpoint
from omnic.contract.forms import body_of
from omnic.contract.values import Upload
from omnic.runtime.server.problems import Problem
from omnic.runtime.server.settings import Settings

JSON, FORM = "application/json", "multipart/form-data"
_PARTS = 64  # fields, and files, that a form may have

T = TypeVar("T")

_LONG = 1 << 16  # bytes, beyond which a body is worked on beside the event loop, so that streams go on


async def held(
    request: Request, endpoint: Endpoint, settings: Settings, files: ExitStack, hold: Callable[[Any], T]
) -> T:
    """What `hold` makes of the body, in the form that the contract takes. Files of a form have no name on disk; `files`
    closes them.

    Raises what `hold` raises, Problem (400, 408, 413, 415), Violation, starlette's ClientDisconnect.
    """
    body = await _body(request, endpoint, settings, files)
    if not isinstance(body, bytes):
        return hold(body_of(endpoint, body))
    if len(body) > _LONG:
        return await asyncio.to_thread(lambda: hold(_decoded(body)))
    return hold(_decoded(body))


async def _body(
    request: Request, endpoint: Endpoint, settings: Settings, files: ExitStack
) -> bytes | list[tuple[str, str | Upload]]:
    """JSON as it came, or the parts of a form."""
    forms = ENDPOINTS[endpoint.name].forms
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in forms:
        message = f"the body must be {' or '.join(forms)}, not {kind or 'of no type'}"
        raise Problem(415, message, "unsupported_media_type")
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "a compressed body cannot be read", "unsupported_media_type")
    carries = FORM in forms
    limit = settings.upload_bytes if carries else settings.body_bytes
    seconds = settings.upload_seconds if carries else settings.body_seconds
    try:
        async with asyncio.timeout(seconds):
            if kind == FORM:
                return await _parts(request, limit, files)
            return b"".join([chunk async for chunk in _limited(request, limit)])
    except TimeoutError:
        raise Problem(408, f"the body did not come within {seconds:g} s", "body_timeout") from None


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}", "invalid_json") from None


async def _parts(request: Request, limit: int, files: ExitStack) -> list[tuple[str, str | Upload]]:
    """The parts of a form. Whatever goes wrong, no file stays open."""
    parser = MultiPartParser(request.headers, _limited(request, limit), max_files=_PARTS, max_fields=_PARTS)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem(400, f"the body is not a form: {error.message}", "invalid_form") from None
    parts: list[tuple[str, str | Upload]] = []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files.callback(value.file.close)
            parts.append((name, Upload(value.filename or name, value.file)))
        else:
            parts.append((name, value))
    return parts


async def _limited(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    come = 0
    async for chunk in request.stream():
        come += len(chunk)
        if come > limit:
            raise _too_large(limit)
        yield chunk


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body may have at most {limit} bytes", "body_too_large", headers={"connection": "close"})
