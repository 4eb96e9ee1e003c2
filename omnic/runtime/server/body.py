"""The body of a request, as JSON or as a form with files, within limits of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers, UploadFile
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
    # starlette reads what is not in the form's charset as latin-1, and says nothing: here all of it is, until `_text`
    headers = Headers({"content-type": f"{request.headers['content-type']}; charset=latin-1"})
    try:
        form = await _Form(headers, _limited(request, limit)).parse()
    except MultiPartException as error:
        raise _no_form(error.message) from None
    items = form.multi_items()
    for _, value in items:
        if isinstance(value, UploadFile):
            files.callback(value.file.close)
    parts: list[tuple[str, str | Upload]] = []
    for raw, value in items:
        name = _text(raw)
        if isinstance(value, UploadFile):
            parts.append((name, Upload(_text(value.filename or raw), value.file)))
        else:
            parts.append((name, _text(value)))
    return parts


class _Form(MultiPartParser):
    """Refuses a form that breaks off: of the part that is cut short, starlette's tells nothing."""

    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers, self._whole(stream), max_files=_PARTS, max_fields=_PARTS)
        self._ended = False

    def on_end(self) -> None:
        self._ended = True

    async def _whole(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async for chunk in stream:
            yield chunk
        if not self._ended:
            raise MultiPartException("it breaks off before its last boundary")


def _text(read: str) -> str:
    """Text of a form, which was read as latin-1, in UTF-8."""
    try:
        return read.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise _no_form("its names and texts must be in UTF-8") from None


def _no_form(why: str) -> Problem:
    return Problem(400, f"the body is not a form: {why}", "invalid_form")


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
