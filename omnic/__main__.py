"""The `omnic` command: chooses the way in, and turns what may go wrong on the way into one line and a status."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys

from omnic.cli import fast

_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}


def main() -> None:
    gc.disable()  # a fast command is over before there is garbage worth looking for; the others enable it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character still gets the rest
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs one command line. Status: 0 done, 1 mistakes found, 2 could not be done as asked, 130 interrupted."""
    from omnic.cli.refusal import Refusal

    try:
        call = fast.parse(argv)
        status = fast.run(call) if call else _all_commands(argv)
        sys.stdout.flush()
    except Refusal as refusal:
        return _say(str(refusal), refusal.status)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing is left to say
        return 1
    except OSError as error:
        if error.errno in _OF_THE_MACHINE or error.filename:
            return _say(f"{error.filename or 'output'}: {(error.strerror or str(error)).lower()}")
        raise
    except Exception as error:
        from omnic import installed

        try:
            installed.require()  # what looks like a bug of ours is often a dependency that is too old
        except installed.Unmet as unmet:
            return _say(str(unmet))
        if isinstance(error, installed.Unmet):
            return _say(str(error))
        raise
    return status


def _all_commands(argv: list[str]) -> int:
    from omnic import installed

    gc.enable()
    installed.require()
    from omnic.cli.app import app

    try:
        app(argv, prog_name="omnic")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return 0


def _say(message: str, status: int = 2) -> int:
    print(f"omnic: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
