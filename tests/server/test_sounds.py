"""Sound of diffusers' own networks, tiny and random, through the whole server: beside a video, and by itself."""

from __future__ import annotations

import importlib.util
import io
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from omnic import driver
from omnic.diagnostics import Sink, render
from tests.server.drawing import VIDEOS
from tests.server.running import Server
from tests.server.test_http import error_of
from tests.server.test_videos import frames

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(importlib.util.find_spec, ("diffusers", "torch"))), reason="needs diffusers"),
    pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning"),
]
PIPELINES = Path(__file__).parents[2] / "pipelines"
DRUM: dict[str, Any] = {"input": "a drum", "seed": 3, "steps": 2, "seconds": 0.01}


def served(name: str, place: Path, tiny: dict[str, str], *options: str) -> Server:
    """A shipped pipeline on a tiny model: patterns of its text replaced."""
    text = (PIPELINES / f"{name}.omni").read_text()
    for pattern, other in tiny.items():
        text, count = re.subn(pattern, other, text)
        assert count == 1, pattern
    (place / f"{name}.omni").write_text(text.partition("\ndeploy ")[0])
    sink = Sink()
    result = driver.build(place / f"{name}.omni", place / "build", sink)
    assert result is not None, render(sink.diagnostics)
    return Server(result.out, *options)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("ltx2")
    tiny = {
        r"hf\(.*\)": 'random("ltx2")',
        r"size = 768x512 in .*": "size = 64x96 in [64x96]",
        r"int = 121 in 9\.\.121": "int = 17 in 9..121",
    }
    with served("ltx2", place, tiny, "--jobs", str(place / "jobs")) as server:
        yield server.ready(seconds=240)


@pytest.fixture(scope="module")
def drums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tiny = {r"hf\(.*\)": 'random("stable_audio")', r"float = 30.0 in 1\.\.47": "float = 0.01 in 0.001..0.011"}
    with served("stable_audio", tmp_path_factory.mktemp("stable_audio"), tiny) as server:
        yield server.ready(seconds=240)


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def heard(data: bytes) -> NDArray[np.float32]:
    """The samples of a file's sound, its first channel."""
    opened: Any = av.open(io.BytesIO(data))
    with opened as file:
        return np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])


# --- a video with its sound -------------------------------------------------------------------------------------------


def test_a_video_has_the_sound_that_was_made_with_it(clips: Server) -> None:
    with client_of(clips) as client:
        job = client.videos.create(prompt="a red cat", extra_body={"seed": 5, "num_inference_steps": 2})
        job = client.videos.poll(job.id, poll_interval_ms=100)
        assert (job.status, job.error, job.size) == ("completed", None, "64x96")
        data = client.videos.download_content(job.id).read()
    assert frames(data).shape == (17, 96, 64, 3)
    with av.open(io.BytesIO(data)) as file:
        (sound,) = file.streams.audio
        assert (sound.codec_context.name, sound.rate) == ("aac", 48000)
    assert len(heard(data)) / 48000 == pytest.approx(17 / 24, abs=0.1)
    assert np.abs(heard(data)).max() > 1e-4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_so_has_one_that_the_client_waits_for(clips: Server, stream: bool) -> None:
    body = {"prompt": "a red cat", "seed": 5, "num_inference_steps": 2, "stream": stream}
    answer = clips.client.post(f"{clips.url}{VIDEOS}/sync", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    assert frames(answer.content).shape == (17, 96, 64, 3)
    assert len(heard(answer.content)) / 48000 == pytest.approx(17 / 24, abs=0.1)


# --- a sound ----------------------------------------------------------------------------------------------------------


def test_a_sound_is_as_long_as_was_asked_for(drums: Server) -> None:
    answer = drums.client.post(f"{drums.url}/v1/audio/speech", json=DRUM | {"response_format": "wav"}, timeout=120)
    assert answer.status_code == 200, answer.text
    with wave.open(io.BytesIO(answer.content)) as file:
        assert (file.getframerate(), file.getnframes(), file.getsampwidth()) == (44100, 441, 2)
        samples = np.frombuffer(file.readframes(441), "<i2")
    assert samples.std() > 0


def test_the_same_request_is_the_same_sound_and_another_is_not(drums: Server) -> None:
    def made(**fields: Any) -> bytes:
        body = DRUM | {"response_format": "pcm"} | fields
        return drums.client.post(f"{drums.url}/v1/audio/speech", json=body, timeout=120).content

    assert made() == made() != made(seed=4)
    assert made() != made(negative_prompt="a voice") == made(negative="a voice")


@pytest.mark.parametrize("format", ["mp3", "flac", "wav", "opus", "aac"])
def test_by_openai_s_client_in_every_format(drums: Server, format: Any) -> None:
    more = {name: value for name, value in DRUM.items() if name != "input"}
    with client_of(drums) as client:
        answer = client.audio.speech.create(
            model="stable_audio", voice="default", input="a drum", response_format=format, extra_body=more
        )
    assert len(heard(answer.content)) > 0


def test_what_a_sound_cannot_have(drums: Server) -> None:
    answer = drums.post("/v1/audio/speech", DRUM | {"seconds": 3})
    assert error_of(answer, 400)["param"] == "seconds"
    for field in ("input", "negative_prompt"):  # what is refused at work is called as the endpoint calls it, too
        assert error_of(drums.post("/v1/audio/speech", DRUM | {field: "x " * 200}), 400)["param"] == field
