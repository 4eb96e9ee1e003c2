"""What can be said of an edge: in which pieces it flows, and what carries it."""

from __future__ import annotations

from typing import Any

from omnic.expr import Call, Literal

STREAM_MODES = ("token", "word", "clause", "sentence", "chunk", "whole")  # finest first
TEXT_CUTS = ("token", "word", "clause", "sentence", "whole")  # those that text can be cut into where it comes whole
TRANSPORTS = ("local", "shm", "nccl", "nvlink", "pcie", "net", "ray")


def stream_mode(value: Any) -> tuple[str, int | None]:
    """The mode that a `stream` setting holds, one of STREAM_MODES, and the n of `chunk(n)`."""
    match value:
        case Call(function=mode, args=(Literal(value=int() as size),)):
            return mode, size
        case str():
            return value, None
    raise TypeError(f"not a stream mode: {value!r}")
