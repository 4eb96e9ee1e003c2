"""What can go wrong while serving, and whose fault it is."""

from __future__ import annotations


class RequestError(ValueError):
    """The request cannot be served as it stands; the client can mend it.

    `field` is the request field at fault (None for the request as a whole), `status` the HTTP status,
    `code` a word for programs, such as `context_length_exceeded`.
    """

    def __init__(self, message: str, field: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.field, self.status, self.code = message, field, status, code


class Cancelled(Exception):
    """The request was cancelled; work stopped at the next token, chunk or step."""


class StageFailed(RuntimeError):
    """A stage raised: a fault of ours or of the machine, not of the request. `retryable` when the same request
    may succeed later (out of memory, a worker that died)."""

    def __init__(self, stage: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"stage `{stage}` failed: {message}")
        self.stage, self.retryable = stage, retryable

    @classmethod
    def because(cls, stage: str, error: BaseException, where: str = "") -> StageFailed:
        """The failure of `stage` that `error` is, raised at `where` (`glue.py:12`); retryable if memory ran out."""
        retryable = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
        return cls(stage, f"{type(error).__name__}: {error}{where and f' ({where})'}", retryable=retryable)


class Stale(RuntimeError):
    """A build directory does not match what it was built from, or what is installed here. One line, no traceback."""


class Elsewhere(RuntimeError):
    """A build is planned for devices that this runtime cannot run on. One line, no traceback."""
