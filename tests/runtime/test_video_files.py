"""Videos written to files, with sound and without."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from omnic.runtime.pipe import Pipe
from omnic.runtime.video_files import Film, film, known


def moving(count: int, height: int = 64, width: int = 96) -> NDArray[np.uint8]:
    """A light bar that goes from left to right over a red ground."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[..., 0] = 200
    for index in range(count):
        frames[index, :, 4 * index % width :][:, :8] = 230
    return frames


def tone(seconds: float, rate_hz: int = 24000) -> NDArray[np.float32]:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def opened(data: bytes) -> Any:
    return av.open(io.BytesIO(data))


def pictures(data: bytes) -> NDArray[np.uint8]:
    return np.stack([frame.to_ndarray(format="rgb24") for frame in opened(data).decode(video=0)])


def test_this_machine_can_encode_videos() -> None:
    known()


def test_every_frame_is_there_at_its_time_in_its_colours() -> None:
    data = film(moving(17), 16)
    [stream] = opened(data).streams
    assert (stream.width, stream.height, stream.average_rate, stream.codec_context.name) == (96, 64, 16, "h264")
    back = pictures(data)
    assert back.shape == (17, 64, 96, 3)
    assert np.abs(back.astype(int) - moving(17)).mean() < 4
    assert float(opened(data).duration) / av.time_base == pytest.approx(17 / 16, abs=0.01)


def test_frames_in_pieces_are_the_same_video() -> None:
    file = io.BytesIO()
    made = Film(file, 16)
    for first in range(0, 17, 5):
        made.show(moving(17)[first : first + 5])
    made.close()
    assert (pictures(file.getvalue()) == pictures(film(moving(17), 16))).all()
    assert (made.frames, made.size) == (17, (96, 64))


def test_a_frame_of_odd_sides_keeps_its_size() -> None:
    assert pictures(film(moving(3, 65, 33), 24)).shape == (3, 65, 33, 3)


@pytest.mark.parametrize("order", ["first", "last", "between"])
def test_sound_lies_beside_the_frames_whenever_it_came(order: str, tmp_path: Path) -> None:
    made = Film(tmp_path / "a.mp4", 16, 24000)
    if order == "first":
        made.play(tone(1))
    made.show(moving(8))
    if order == "between":
        made.play(tone(1))
    made.show(moving(8))
    if order == "last":
        made.play(tone(1))
    made.close()
    file = opened((tmp_path / "a.mp4").read_bytes())
    assert [s.codec_context.name for s in file.streams] == ["h264", "aac"]
    assert sum(f.samples for f in file.decode(audio=0)) / 48000 == pytest.approx(1, abs=0.05)


def test_a_file_with_a_name_can_be_played_before_it_is_whole(tmp_path: Path) -> None:
    made = Film(tmp_path / "a.mp4", 16)
    made.show(moving(8))
    made.close()
    data = (tmp_path / "a.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_a_streamed_file_can_be_watched_while_it_is_written() -> None:
    pipe = Pipe()
    made = Film(pipe, 16, streamed=True)
    data = b""
    for _ in range(3):
        made.show(moving(16))
        data += pipe.take()
    assert len(pictures(data)) >= 16
    made.close()
    assert len(pictures(data + pipe.take())) == 48


def test_a_video_without_a_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="without a frame"):
        Film(io.BytesIO(), 16, 24000).close()


def test_a_file_that_is_let_go_of_does_no_harm(tmp_path: Path) -> None:
    made = Film(tmp_path / "a.mp4", 16)
    made.show(moving(4))
    made.drop()
    Film(tmp_path / "b.mp4", 16).drop()
