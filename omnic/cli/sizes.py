"""Numbers of bytes, for people."""

from __future__ import annotations


def size(count: float) -> str:
    """`269.0 MiB`; whole below a KiB."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"
