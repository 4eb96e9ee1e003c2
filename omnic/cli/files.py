"""Reading what the user names and writing what the user asked for, with one line where that cannot be done."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from omnic.cli.refusal import Refusal
from omnic.source import MOST_BYTES, Source, decode, load, within

STDIN = "-"


def read_source(name: str) -> Source:
    """The `.omni` text of a file, or of standard input for `-`. Raises Refusal."""
    text = read_text(name)
    shown = os.fsencode(name).decode(errors="replace")  # file names need not be text
    return Source("<stdin>" if name == STDIN else shown, text)


def read_text(name: str) -> str:
    """The UTF-8 text of a file, or of standard input for `-`; line endings as they are. Raises Refusal."""
    try:
        data = within(sys.stdin.buffer.read(MOST_BYTES + 1), "<stdin>") if name == STDIN else load(Path(name))
    except OSError as error:
        raise Refusal(f"cannot read {name}: {_reason(error)}") from None
    try:
        return decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refusal(f"{name} is not UTF-8 text: byte {data[error.start]:#04x} on line {line}") from None


def read_bytes(name: str) -> bytes:
    """The content of a file. Raises Refusal."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Refusal(f"cannot read {name}: {_reason(error)}") from None


def base(name: str) -> Path:
    """The directory that relative paths in a source are taken from."""
    return Path() if name == STDIN else Path(name).parent


def write(path: Path, data: bytes) -> None:
    """Puts `data` in place whole, or leaves what was there. Keeps the permissions of a file it replaces; a device or
    a pipe is written to, never replaced.

    Raises Refusal.
    """
    import tempfile

    target = path.resolve()  # a link stays a link
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(partial).chmod(mode)
            Path(partial).replace(target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Refusal(f"cannot write {path}: {_reason(error)}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
