"""Writing what the user asked for: whole, in place, and never over what is no file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from omnic.cli.files import write
from omnic.cli.refusal import Refusal


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    write(tmp_path / "link", b"new")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o640)
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"said")
    reader.join()
    assert read == [b"said"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", [".", "none/there.txt", "a.txt/x"])
def test_where_nothing_can_be_written_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(Refusal, match=r"^cannot write"):
        write(tmp_path / name, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_device_takes_what_it_can() -> None:
    device = Path("/dev/full")
    with pytest.raises(Refusal, match="no space left"):
        write(device, b"new")
    assert device.is_char_device()
