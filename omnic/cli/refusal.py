"""What stops a command with one line instead of a traceback."""

from __future__ import annotations


class Refusal(Exception):
    """The command cannot be done as asked. The message is one line; `status` becomes the exit status."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status
