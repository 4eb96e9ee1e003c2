"""`omnic run`, `chat BUILD` and `serve` on builds whose stages are fakes: text is said back, letters become tone."""

from __future__ import annotations

import io
import re
import signal
import socket
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest

from omnic.runtime.fake import Fault, Script, write
from tests.assistant import assistant
from tests.cli.conftest import Omnic

Make = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Make:
    """Makes a fake build of the assistant that follows a script."""
    return lambda **script: write(tmp_path / "build", assistant(), Script(**script))


def test_text_is_printed_and_times_go_beside_it(build: Make, omnic: Omnic) -> None:
    done = omnic("run", build(), "--in", "messages=hello there")
    assert (done.status, done.out) == (0, "hello there\n")
    assert "loaded think: 0 MiB" in done.err
    assert re.search(
        r"^first text \(reply\) after \d+\.\d\d s, whole after \d+\.\d\d s \(seed \d+\)$", done.err, re.MULTILINE
    )


def test_sound_is_written_as_the_suffix_says(build: Make, tmp_path: Path, omnic: Omnic) -> None:
    wav, mp3 = tmp_path / "a.wav", tmp_path / "a.mp3"
    done = omnic("run", build(), "--in", "messages=hello there", "--out", "reply=-", "--out", f"speech={wav}")
    assert (done.status, done.out) == (0, "hello there\n")
    assert f"wrote {wav}: 0.1 s of sound" in done.err
    assert "first audio (speech) after" in done.err
    with wave.open(str(wav)) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (24000, 240 * len("hello there"))
    assert omnic("run", build(), "--in", "messages=hello", "--out", f"speech={mp3}").status == 0
    assert mp3.read_bytes()[:3] == b"ID3" or mp3.read_bytes()[0] == 0xFF


def test_text_is_written_to_a_file(build: Make, tmp_path: Path, omnic: Omnic) -> None:
    done = omnic("run", build(), "--in", "messages=hello there", "--out", f"reply={tmp_path / 'a.txt'}")
    assert (done.status, done.out) == (0, "")
    assert (tmp_path / "a.txt").read_text() == "hello there\n"


def test_an_answer_that_was_cut_says_so(build: Make, omnic: Omnic) -> None:
    done = omnic("run", build(), "--in", "messages=one two three", "--in", "max_tokens=2")
    assert done.out == "one two\n"
    assert "cut at its length limit" in done.err


def test_nothing_to_speak_is_said(build: Make, tmp_path: Path, omnic: Omnic) -> None:
    done = omnic("run", build(), "--in", "messages=!silent", "--out", f"speech={tmp_path / 'a.wav'}")
    assert done.status == 0
    assert "speech is empty" in done.err
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.parametrize(
    ("fault", "says"),
    [("request", "the prompt is too long"), ("raise", "stage `think` failed"), ("memory", "stage `think` failed")],
)
def test_a_request_that_fails_is_one_line(fault: str, says: str, build: Make, omnic: Omnic) -> None:
    done = omnic("run", build(faults=(Fault("think", 1, fault),)), "--in", "messages=hello there")
    assert done.status == 1
    assert says in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [["speech=-"], ["speech=a.xyz"], ["speech=nowhere/a.wav"], ["speech=a"]])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    words: list[str], build: Make, omnic: Omnic
) -> None:
    done = omnic("run", build(load_failure="exit"), "--in", "messages=hello", "--out", *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("omnic: --out speech=")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "chat"])
def test_weights_that_are_missing(command: str, build: Make, omnic: Omnic) -> None:
    given = ["--in", "messages=hello"] if command == "run" else []
    done = omnic(command, build(load_failure="missing"), *given)
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines()[-1] == "omnic: model of `think` is not here: pip install it"


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
def test_a_directory_that_is_no_build(command: str, tmp_path: Path, omnic: Omnic) -> None:
    done = omnic(command, tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"omnic: {tmp_path} is not a build directory: it has no manifest.json\n"


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
def test_a_stale_build(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    path = write(tmp_path / "build", assistant())
    monkeypatch.setattr("omnic.__version__", "9.9")
    given = ["--in", "messages=hello"] if command == "run" else []
    done = omnic(command, path, *given)
    assert (done.status, done.out) == (1, "")
    assert "is stale: built by omnic" in done.err
    assert done.err.count("\n") == 1


def test_a_conversation_with_a_build(build: Make, monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello there\nagain\n"))
    done = omnic("chat", build())
    assert (done.status, done.out) == (0, "hello there\nagain\n")


def test_a_turn_that_fails_does_not_end_the_conversation(
    build: Make, monkeypatch: pytest.MonkeyPatch, omnic: Omnic
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one two\nagain\n"))
    done = omnic("chat", build(faults=(Fault("think", 1, "request"),)))
    assert done.out.endswith("again\n")
    assert "omnic: the prompt is too long" in done.err


def test_a_build_that_nobody_can_talk_to(tmp_path: Path, omnic: Omnic) -> None:
    content = assistant()
    speech = tuple(e for e in content.endpoints if e.name == "audio.speech")
    done = omnic("chat", write(tmp_path / "build", replace(content, endpoints=speech)))
    assert (done.status, done.out) == (2, "")
    assert "serves no chat.completions" in done.err


# --- serve ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(build: Make) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`omnic serve` on a free port: its address and its process."""
    command = [sys.executable, "-m", "omnic", "serve", str(build()), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if match := re.search(r"(http://\S+), ready", line):
                    yield match[1], process
                    break
        finally:
            process.kill()


def test_it_serves_until_told_to_stop(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served
    with urlopen(f"{url}/v1/models") as reply:
        assert reply.status == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_a_port_in_use_is_one_line(build: Make, process: Omnic) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = process("serve", build(), "--port", str(port))
    assert (done.status, done.out) == (1, "")
    assert done.err == f"omnic: port {port} on 127.0.0.1 is in use\n"


def test_more_workers_than_there_can_be(build: Make, omnic: Omnic) -> None:
    done = omnic("serve", build(), "--workers", "2")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("omnic: --workers 2 cannot be honoured")


def test_a_file_is_not_a_build(tmp_path: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_text("pipeline a {\n}\n")
    assert omnic("serve", file) == (2, "", f"omnic: {file} is a file; compile it first: omnic build {file}\n")
