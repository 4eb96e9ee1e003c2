"""What may go wrong around a command is one line and a status, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import omnic.__main__ as entry
from tests.cli.conftest import Omnic

FILE_COMMANDS = ("check", "fmt", "plan", "opt", "build", "graph", "run")


@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_a_file_that_is_not_there(command: str, omnic: Omnic) -> None:
    done = omnic(command, "nowhere.omni")
    assert done == (2, "", "omnic: cannot read nowhere.omni: no such file or directory\n")


@pytest.mark.parametrize("command", set(FILE_COMMANDS) - {"run"})
def test_a_directory(command: str, tmp_path: Path, omnic: Omnic) -> None:
    done = omnic(command, tmp_path)
    assert done == (2, "", f"omnic: cannot read {tmp_path}: is a directory\n")


@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_a_file_that_is_not_text(command: str, tmp_path: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_bytes(b"pipeline a {\n  # caf\xe9\n}\n")
    done = omnic(command, file)
    assert done == (2, "", f"omnic: {file} is not UTF-8 text: byte 0xe9 on line 2\n")


@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_a_file_without_end(command: str, omnic: Omnic) -> None:
    done = omnic(command, "/dev/zero")
    assert (done.status, done.out) == (2, "")
    assert done.err == "omnic: cannot read /dev/zero: file too large\n"


@pytest.mark.parametrize("command", ["plan", "opt", "build", "graph", "run"])
def test_standard_input_where_a_file_is_needed(command: str, omnic: Omnic) -> None:
    done = omnic(command, "-")
    assert done == (2, "", "omnic: only `check` and `fmt` read standard input; name a file\n")


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "import sys; from omnic.cli import fast; fast.run = lambda call: print('x' * 1000000) or 0\n" \
           "from omnic.__main__ import main; sys.argv = ['omnic', '--version']; main()"  # fmt: skip
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 1


HEEDED = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests may run where it is ignored
)


@pytest.mark.parametrize("argv", [["check", "-"], ["chat", "http://127.0.0.1:1"]])
def test_an_interrupt_is_quiet(argv: list[str], tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    code = HEEDED + (
        "import sys, time, pathlib\n"
        f"def wait(*_, **__): pathlib.Path({str(waiting)!r}).touch(); time.sleep(60)\n"
        "from omnic.cli import language, talk; language.check = talk.over_http = wait\n"
        f"sys.argv = ['omnic', *{argv!r}]\n"
        "from omnic.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not waiting.exists() and running.poll() is None:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.strip()) == (130, "", "")


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    def full(_: object) -> int:
        raise OSError(28, "No space left on device", "build/x")

    monkeypatch.setattr(entry.fast, "run", full)
    assert omnic("--version") == (2, "", "omnic: build/x: no space left on device\n")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    def broken(_: object) -> int:
        raise KeyError("ours")

    monkeypatch.setattr(entry.fast, "run", broken)
    with pytest.raises(KeyError):
        omnic("--version")


def test_an_interrupt_does_not_wait_for_weights_that_load() -> None:
    code = HEEDED + (
        "import os, threading, time\n"
        "from omnic.cli.inprocess import interrupts_at_once\n"
        "with interrupts_at_once():\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()  # as a stage that loads\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("form", ["full", "concise", "json", "github"])
def test_a_terminal_that_lacks_characters(form: str, tmp_path: Path, process: Omnic) -> None:
    file = tmp_path / "café.omni"
    file.write_text('pipeline p {\n  stage x = "😀"  # über\n}\n')
    done = process("check", file, "--format", form, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.status, done.err) == (1, "")
    assert "bad-stage" in done.out
    if form == "json":
        assert json.loads(done.out)


def test_formatted_text_is_utf_8_whatever_the_terminal(process: Omnic) -> None:
    text = "# über 😀\n"
    done = process("fmt", "-", input=text, encoding="utf-8", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done == (0, text, "")


def test_a_file_whose_name_is_not_text(tmp_path: Path, process: Omnic) -> None:
    file = os.fsencode(tmp_path) + b"/a\xff.omni"
    Path(os.fsdecode(file)).write_text("pipeline p {\n  stage x = y\n}\n")
    for form in ("full", "concise", "json", "github"):
        done = process("check", os.fsdecode(file), "--format", form)
        assert (done.status, done.err) == (1, "")
    done = process("build", os.fsdecode(file), "-o", tmp_path / "out")
    assert done.status == 2
    assert "rename the file" in done.err
    assert "Traceback" not in done.err
