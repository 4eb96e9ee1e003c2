"""What whoever runs a server can set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a server. Times are in seconds."""

    running: int | None = None  # requests of an endpoint at work at once; None: as many as its widest stage has slots
    queued: int = 64  # requests of an endpoint that wait behind them; more are refused with 429
    queue_seconds: float = 60.0  # one that has waited this long is refused with 503
    body_bytes: int = 4 << 20  # a larger request body is refused with 413
    body_seconds: float = 30.0  # one whose body takes longer to come is refused with 408
    upload_bytes: int = 64 << 20  # the same limits where a body may carry files
    upload_seconds: float = 120.0
    picture_seconds: float = 3600.0  # how long a picture can be fetched that was given as an address
    pictures_bytes: int = 1 << 30  # of those that can be fetched; the oldest go first
    video_seconds: float = 86400.0  # how long a video job is kept after it has ended
    jobs: Path | None = None  # where they are kept; None: a directory of this build among the user's state
    stall_seconds: float = 60.0  # a client that reads nothing of its stream for so long has gone
    drain_seconds: float = 30.0  # how long requests may go on after SIGTERM
