"""`omnic cache` shows what is kept, and removes only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Omnic


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory with something of omnic's and something of somebody else's in it."""
    (tmp_path / "digests").mkdir()
    (tmp_path / "digests/a").write_bytes(b"x" * 3000)
    (tmp_path / "thesis.txt").write_text("mine")
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path))
    return tmp_path


def test_ls(kept: Path, omnic: Omnic) -> None:
    done = omnic("cache", "ls")
    assert done.out.splitlines() == [str(kept), "  digests         2.9 KiB  1 file: hashes of weight files"]


def test_clear_removes_what_is_omnics(kept: Path, omnic: Omnic) -> None:
    assert omnic("cache", "clear", "--yes") == (0, f"removed 2.9 KiB from {kept}\n", "")
    assert [p.name for p in kept.iterdir()] == ["thesis.txt"]
    assert omnic("cache", "clear", "--yes").out == f"{kept} is empty\n"


def test_clear_removes_all_that_ls_lists(kept: Path, omnic: Omnic) -> None:
    """Also what takes no bytes, such as the lock of a conversion."""
    (kept / "digests/a").unlink()
    (kept / "checkpoints").mkdir()
    (kept / "checkpoints/.tiny.lock").touch()
    assert [line.split()[0] for line in omnic("cache", "ls").out.splitlines()[1:]] == ["checkpoints", "digests"]
    assert omnic("cache", "clear", "--yes") == (0, f"removed 0 B from {kept}\n", "")
    assert omnic("cache", "ls").out.splitlines() == [str(kept)]
    assert [p.name for p in kept.iterdir()] == ["thesis.txt"]


def test_clear_does_not_guess_a_yes(kept: Path, omnic: Omnic) -> None:
    done = omnic("cache", "clear")
    assert (done.status, done.out) == (2, "")
    assert "--yes" in done.err
    assert (kept / "digests/a").exists()
