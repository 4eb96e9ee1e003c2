"""Around every request: an id in and out, one line in the log, and no exception that gets past."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnic.runtime.server.problems import problem_of

log = logging.getLogger("omnic.server")
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class Envelope:
    """ASGI middleware. `x-request-id` is kept if the client gave one, made up otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        id = scope["request_id"] = given if _ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"
        began, status = time.monotonic(), 0

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = id
            await send(message)

        try:
            await self._app(scope, receive, tagged)
        except ClientDisconnect:
            pass
        except Exception as error:
            log.exception("%s: a fault of the server", id)
            if not status:
                await problem_of(error).response()(scope, receive, tagged)
        finally:
            seconds = time.monotonic() - began
            # as it was sent: decoded, it may hold what a line of a log must not
            path = scope["raw_path"].decode("ascii", "backslashreplace")
            log.info("%s %s %s %.3fs %s", scope["method"], path, status or "gone", seconds, id)
