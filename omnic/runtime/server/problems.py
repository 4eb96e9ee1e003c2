"""What clients are told when something goes wrong: a status and OpenAI's error object, never a stack trace."""

from __future__ import annotations

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from omnic.contract.values import Violation
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.process import WorkerLost
from omnic.runtime.server.admission import Full

log = logging.getLogger("omnic.server")


class Problem(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, _cut(message, 1000), code, param and _cut(param, 100)
        self.headers = headers or {}

    @property
    def outcome(self) -> str:
        """How metrics count a request that ends so."""
        if self.code in ("queue_full", "queue_timeout", "unavailable"):
            return "rejected"
        return "invalid" if self.status < 500 else "failed"

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": _type(self.status), "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def _cut(text: str, most: int) -> str:
    """`text`, which may quote the request, within what a client should get back of it."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _type(status: int) -> str:
    if status >= 500:
        return "server_error"
    return "rate_limit_error" if status == 429 else "invalid_request_error"


def problem_of(error: Exception) -> Problem:
    """What to tell the client of an exception. One that is not known here is a fault of ours and says no more."""
    match error:
        case Problem():
            return error
        case Violation():
            return Problem(400, error.message, error.code, error.field)
        case RequestError():
            return Problem(error.status, error.message, error.code or "invalid_value", error.field)
        case Full():
            code = "queue_full" if error.status == 429 else "queue_timeout"
            return Problem(error.status, error.message, code, headers=_after(error.retry_seconds))
        case WorkerLost():
            return Problem(503, str(error), "worker_lost", headers=_after(error.retry_seconds))
        case StageFailed(retryable=True):
            return Problem(503, str(error), "stage_failed", headers=_after(1))
        case StageFailed():
            return Problem(500, str(error), "stage_failed")
    return Problem(500, "the server failed on this request", "internal_error")


def reported(request: Request, error: Exception) -> Problem:
    """What to tell the client; what it is not told goes to the log."""
    problem = problem_of(error)
    if problem.code == "internal_error":
        log.error("%s: a fault of the server", request.scope["request_id"], exc_info=error)
        problem.message += f"; its log has more under {request.scope['request_id']}"
    return problem


def no_model(asked: str, served: str) -> Problem:
    return Problem(404, f"there is no model `{asked}`; this server has `{served}`", "model_not_found", "model")


def unavailable(message: str, retry_seconds: int = 5) -> Problem:
    return Problem(503, message, "unavailable", headers=_after(retry_seconds))


def _after(seconds: int) -> dict[str, str]:
    return {"retry-after": str(seconds)}
