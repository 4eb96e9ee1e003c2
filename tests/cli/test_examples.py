"""The clients in examples/ run as they are against a server; here its models are fakes that say back what they hear."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from omnic.manifest import Manifest
from omnic.runtime.fake import write
from omnic.runtime.fake_visual import FRAMES
from tests.assistant import assistant
from tests.painter import painter, studio

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from serving(tmp_path_factory.mktemp("served"), assistant())


def serving(directory: Path, content: Manifest) -> Iterator[str]:
    build = write(directory / "build", content)
    command = [sys.executable, "-m", "omnic", "serve", str(build), "--port", "0", "--jobs", str(directory / "jobs")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, "")
            yield next(match[1] for line in lines if (match := re.search(r"(http://\S+), ready", line)))
        finally:
            process.kill()


def run(url: str, folder: Path, *command: str | Path) -> str:
    environment = os.environ | {"OMNIC_URL": f"{url}/v1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat_streamed(url: str, tmp_path: Path) -> None:
    assert run(url, tmp_path, sys.executable, EXAMPLES / "chat_streamed.py", "hello there") == "hello there"


def test_spoken_answer(url: str, tmp_path: Path) -> None:
    assert run(url, tmp_path, sys.executable, EXAMPLES / "spoken_answer.py", "hello there") == "hello there\n"
    with wave.open(str(tmp_path / "answer.wav")) as sound:
        assert sound.getnframes() == 240 * len("hello there")


def test_read_aloud(url: str, tmp_path: Path) -> None:
    run(url, tmp_path, sys.executable, EXAMPLES / "read_aloud.py", "hello there")
    data = (tmp_path / "speech.wav").read_bytes()
    assert data[:4] == b"RIFF"
    assert len(data) == 44 + 2 * 240 * len("hello there")


def test_draw(tmp_path: Path) -> None:
    for url in serving(tmp_path, painter()):
        run(url, tmp_path, sys.executable, EXAMPLES / "draw.py", "a fox")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_film(tmp_path: Path) -> None:
    for url in serving(tmp_path, studio()):
        run(url, tmp_path, sys.executable, EXAMPLES / "film.py", "a fox")
        with av.open(str(tmp_path / "video.mp4")) as file:
            assert file.streams.video[0].frames == FRAMES


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(url: str, tmp_path: Path) -> None:
    out = run(url, tmp_path, EXAMPLES / "curl.sh")
    assert "data: [DONE]" in out
    assert "`max_tokens` must be in 1..1024, not 0" in out
    assert out.rstrip().endswith("(400)")
    assert (tmp_path / "speech.mp3").stat().st_size > 0


def test_every_example_is_named_and_tested() -> None:
    named = set(re.findall(r"^\| `([\w.]+)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert named == {p.name for p in EXAMPLES.iterdir()} - {"README.md"}
    tested = set(re.findall(r"\w+\.(?:py|sh)", Path(__file__).read_text()))
    assert named <= tested
