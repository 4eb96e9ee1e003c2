"""Pictures and videos on the command line: read from files, written to files, their steps told."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from omnic.expr import Size
from omnic.runtime.fake import Script, write
from omnic.runtime.fake_visual import drawn
from omnic.runtime.picture_files import encode, read
from tests.cli.conftest import Omnic
from tests.painter import painter, studio

PHOTO = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "painter", painter(), Script())


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "studio", studio(), Script())


def picture(file: str) -> Any:
    return read(io.BytesIO(Path(file).read_bytes()), "file", 1 << 20)


def test_a_picture_is_written_and_its_steps_are_told(omnic: Omnic, build: Path) -> None:
    done = omnic("run", build, "--in", "prompt=a fox", "--in", "seed=7", "--in", "steps=9", "--out", "picture=fox.png")
    assert (done.status, done.out) == (0, "")
    assert (picture("fox.png") == drawn(7, {"prompt": "a fox", "steps": 9})).all()
    assert "paint: 9/9 steps" in done.err
    assert "wrote fox.png: 64x64" in done.err


@pytest.mark.parametrize(("file", "mark"), [("a.jpg", b"\xff\xd8"), ("a.jpeg", b"\xff\xd8"), ("a.webp", b"RIFF")])
def test_the_suffix_says_the_format(omnic: Omnic, build: Path, file: str, mark: bytes) -> None:
    assert omnic("run", build, "--in", "prompt=a fox", "--out", f"picture={file}").status == 0
    assert Path(file).read_bytes().startswith(mark)


@pytest.mark.parametrize("name", ["photo", "image"])
def test_a_picture_is_read_from_its_file(omnic: Omnic, build: Path, name: str) -> None:
    Path("photo.png").write_bytes(encode(PHOTO, "png"))
    done = omnic(
        *("run", build, "--in", "prompt=a fox", "--in", f"{name}=@photo.png", "--in", "size=96x64", "--in", "seed=7"),
        *("--out", "picture=fox.png"),
    )
    assert done.status == 0, done.err
    assert (picture("fox.png") == drawn(7, {"prompt": "a fox", "photo": PHOTO, "size": Size(96, 64)})).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--in", "photo=photo.png"], "takes a picture: name its file"),
        (["--in", "photo=@nowhere.png"], "cannot read nowhere.png"),
        (["--in", "photo=@text.png"], "`photo` is no picture (png, jpeg, webp)"),
        (["--in", "image=@text.png"], "`image` is no picture (png, jpeg, webp)"),
        (
            ["--in", "photo=@cat.png", "--in", "image=@cat.png"],
            "--in photo and --in image mean the same: give one of them",
        ),
        (["--in", "photo=cat.png"], "name its file, photo=@picture.png"),
        (["--in", "size=513x512"], "`size` must be in 64x64..512x512 step 16, not 513x512"),
        (["--in", "steps=0"], "`steps` must be in 1..100, not 0"),
        (["--out", "picture=fox.gif"], "`.gif` is no suffix of a picture"),
        (["--out", "picture=-"], "image is not for a terminal"),
        (["--out", "picture=nowhere/fox.png"], "there is no directory nowhere"),
        ([], "say where the image goes: --out picture=picture.png"),
    ],
)
def test_a_mistake_is_one_line_before_any_work(omnic: Omnic, build: Path, words: list[str], said: str) -> None:
    Path("text.png").write_text("hello")
    out = [] if "--out" in words or not words else ["--out", "picture=fox.png"]
    done = omnic("run", build, "--in", "prompt=a fox", *words, *out)
    assert done.status == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not Path("fox.png").exists()


def test_a_video_and_its_sound_in_one_file(omnic: Omnic, film: Path) -> None:
    done = omnic(
        "run", film, "--in", "prompt=a fox", "--in", "seconds=1", "--out", "clip=a.mp4", "--out", "sound=a.mp4"
    )
    assert done.status == 0, done.err
    assert "wrote a.mp4: 64x64, 1.1 s at 16 frames a second" in done.err
    with av.open("a.mp4") as file:
        assert (file.streams.video[0].frames, len(file.streams.audio)) == (17, 1)


def test_a_video_alone_does_not_make_the_sound(omnic: Omnic, film: Path) -> None:
    done = omnic("run", film, "--in", "prompt=a fox", "--out", "clip=a.mp4")
    assert done.status == 0, done.err
    with av.open("a.mp4") as file:
        assert [stream.type for stream in file.streams] == ["video"]
    assert "audio" not in done.err


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (["clip=a.avi"], "`.avi` is no suffix of a video; there is .mp4"),
        (["clip=a.mp4", "sound=a.wav"], ""),
        (["sound=a.mp4"], "not an audio format"),
    ],
)
def test_files_of_videos(omnic: Omnic, film: Path, out: list[str], said: str) -> None:
    done = omnic("run", film, "--in", "prompt=a fox", *(word for each in out for word in ("--out", each)))
    assert said in done.err
    assert (done.status == 0) == (not said)
