"""The files of a build directory, and putting them in place whole."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Files = dict[str, bytes]
"""Path inside the build directory to content."""

LOCKS = ("omnic.lock", "engines.lock")  # ours in every build, and in nobody's digests


class Occupied(Exception):
    """The output directory holds something that a build must not touch; the message says what."""


def digests(files: Files) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keeps other builds from writing what lies beside `out`, and it, for as long."""
    parent = out.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    held = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def put(files: Files, out: Path, generated_before: dict[str, str]) -> None:
    """Makes `out` hold `files`: written beside it, then exchanged for it in one step.

    Files of an earlier build that are no longer made disappear; every other file in `out` stays. Where `out` is a
    link, what it points at is replaced. Raises Occupied, with nothing changed, if `out` is a file or a directory that
    is no build, or holds a file that is in the way or a generated one that was edited since (`generated_before`: its
    digest then).
    """
    out = out.resolve()
    if out.exists():
        _check(files, out, generated_before)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        fresh.chmod(0o777 & ~_umask())
        if not out.exists():
            fresh.rename(out)
            return
        _exchange(fresh, out)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _keep_foreign(fresh, out, {*files, *generated_before, *LOCKS})
    shutil.rmtree(fresh, ignore_errors=True)


def _check(files: Files, out: Path, generated_before: dict[str, str]) -> None:
    if not out.is_dir():
        raise Occupied(f"{out} is a file")
    if not generated_before and any(out.iterdir()):
        raise Occupied(f"{out} exists and is not a build directory; name another with -o, or empty it")
    for name, digest in generated_before.items():
        path = out / name
        if path.is_dir() or (path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != digest):
            raise Occupied(f"{path} was edited since it was built; move it away, or build into another directory")
    for name in files.keys() - generated_before.keys() - set(LOCKS):
        folders = [out / folder for folder in Path(name).parents if (out / folder).exists()]
        for path in (out / name, *(folder for folder in folders if not folder.is_dir())):
            if path.exists():
                raise Occupied(f"{path} is in the way and is not of an earlier build; move it away")


def _keep_foreign(old: Path, new: Path, generated: set[str]) -> None:
    """Moves what is not generated from `old` to `new`. Raises OSError that says where it lies if it cannot."""
    for path in sorted(old.rglob("*")):
        name = path.relative_to(old)
        if (path.is_dir() and not path.is_symlink()) or str(name) in generated or "__pycache__" in name.parts:
            continue
        try:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            path.rename(new / name)
        except OSError as error:
            why = f"cannot be moved into the new build ({error.strerror}); it is kept in {old}"
            raise OSError(error.errno, why, str(name)) from None


_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def _exchange(a: Path, b: Path) -> None:
    """Swaps two directories in one step, so that a reader sees the old build or the new one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return
    backup = Path(tempfile.mkdtemp(prefix=f".{b.name}.old.", dir=b.parent)) / b.name  # a file system without it
    b.rename(backup)
    a.rename(b)
    backup.rename(a)
    backup.parent.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
