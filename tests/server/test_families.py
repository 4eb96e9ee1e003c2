"""Pictures edited and videos made by diffusers' own networks, tiny and random, through the whole server."""

from __future__ import annotations

import importlib.util
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from omnic import driver
from omnic.diagnostics import Sink, render
from omnic.runtime.picture_files import encode
from tests.server.drawing import VIDEOS, events, pixels
from tests.server.running import Server
from tests.server.test_http import error_of
from tests.server.test_videos import frames

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(importlib.util.find_spec, ("diffusers", "torch"))), reason="needs diffusers"),
    pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning"),
]
PIPELINES = Path(__file__).parents[2] / "pipelines"
PHOTO = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
WAN = """
pipeline clips {
  model wan = random("wan", like = "random/wan_i2v")
  input prompt: text<max_tokens = 64>
  input negative: text<max_tokens = 64>?
  input image: image<pixels = 65536>
  output clip: video
  param size: size = 48x32 in [48x32, 32x48]
  param frames: int = 5 in 5..17 step 4
  param steps: int = 2 in 1..60
  stage encode = wan.text_encoder
  stage frame0 = wan.vae_encode { size = size, frames = frames }
  stage draw   = wan.denoiser { steps = steps, size = size, frames = frames }
  stage paint  = wan.vae_decode
  prompt         -> encode.text
  negative       -> encode.negative
  image          -> frame0.image
  encode.embeds  -> draw.condition
  frame0.latents -> draw.first_frame
  draw.latents   -> paint.latents
  paint.video    -> clip
}
"""


def served(source: Path, *options: str) -> Server:
    sink = Sink()
    result = driver.build(source, source.parent / "build", sink)
    assert result is not None, render(sink.diagnostics)
    return Server(result.out, *options)


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    source = tmp_path_factory.mktemp("edits") / "flux_edit.omni"
    text = re.sub(r'hf\("black-forest-labs/FLUX.1.*"\)', 'random("flux")', (PIPELINES / "flux_edit.omni").read_text())
    source.write_text(re.sub("size = 1024x1024 in .*", "size = 32x48 in [32x48]", text))
    with served(source) as server:
        yield server.ready(seconds=240)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("clips")
    (directory / "clips.omni").write_text(WAN)
    with served(directory / "clips.omni", "--jobs", str(directory / "jobs")) as server:
        yield server.ready(seconds=240)


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


def edited(server: Server, photo: NDArray[np.uint8], **more: Any) -> NDArray[np.uint8]:
    with client_of(server) as client:
        answer = client.images.edit(
            prompt="make it red",
            image=("photo.png", encode(photo, "png")),
            extra_body={"seed": 3, "num_inference_steps": 6, **more},
        )
    assert answer.data is not None
    return pixels(answer.data[0].b64_json or "")


def test_an_edit_follows_its_own_picture_and_no_other(edits: Server) -> None:
    first, other, again = edited(edits, PHOTO), edited(edits, 255 - PHOTO), edited(edits, PHOTO)
    assert (first == again).all()
    assert (first != other).any()
    assert (first != edited(edits, PHOTO, strength=0.3)).any()


def test_partial_pictures_of_latents_are_rough_ones_of_the_picture(edits: Server) -> None:
    body = {"prompt": "red", "image": _url(PHOTO), "seed": 3, "num_inference_steps": 6, "strength": 0.5}
    with edits.client.stream(
        "POST", f"{edits.url}/v1/images/edits", json=body | {"stream": True, "partial_images": 2}, timeout=120
    ) as response:
        found = list(events(response.iter_lines()))
    assert found[-1]["type"] == "image_edit.completed"
    picture = pixels(found[-1]["b64_json"]).astype(float)
    partial = [pixels(e["b64_json"]).astype(float) for e in found if e["type"] == "image_edit.partial_image"]
    assert partial
    high, wide = partial[-1].shape[:2]
    assert high * 32 == wide * 48
    small = picture.reshape(high, 48 // high, wide, 32 // wide, 3).mean((1, 3))
    assert np.corrcoef(small.flatten(), partial[-1].flatten())[0, 1] > 0.2


def test_what_an_edit_cannot_have(edits: Server) -> None:
    form = {"prompt": "red", "num_inference_steps": "0"}
    answer = edits.client.post(f"{edits.url}/v1/images/edits", data=form, files={"image": encode(PHOTO, "png")})
    assert error_of(answer, 400)["param"] == "num_inference_steps"
    two = [("image[]", encode(PHOTO, "png"))] * 2
    answer = edits.client.post(f"{edits.url}/v1/images/edits", data={"prompt": "red"}, files=two)
    assert error_of(answer, 400)["param"] == "image"


def test_a_video_from_a_picture_by_openai_s_client(clips: Server) -> None:
    with client_of(clips) as client:
        job = client.videos.create(
            prompt="it moves",
            input_reference=("photo.png", encode(PHOTO, "png")),
            seconds="1",  # type: ignore[arg-type]
            size="32x48",  # type: ignore[arg-type]
            extra_body={"seed": 5},
        )
        job = client.videos.poll(job.id, poll_interval_ms=100)
        assert (job.status, job.error, job.size) == ("completed", None, "32x48")
        film = frames(client.videos.download_content(job.id).read())
    assert film.shape == (17, 48, 32, 3)
    assert job.seconds == "1.0625"


def test_a_video_made_again_is_the_same_and_the_fields_are_those_of_the_pipeline(clips: Server) -> None:
    body = {"prompt": "it moves", "input_reference": _url(PHOTO), "seed": 5}
    first, again = (clips.client.post(f"{clips.url}{VIDEOS}/sync", json=body, timeout=120).content for _ in range(2))
    assert (frames(first) == frames(again)).all()
    assert error_of(clips.post(VIDEOS, body | {"num_frames": 6}), 400)["param"] == "num_frames"
    assert error_of(clips.post(VIDEOS, {"prompt": "it moves"}), 400)["param"] == "input_reference"
    assert error_of(clips.post(VIDEOS, body | {"seconds": "4"}), 400)["param"] == "seconds"


def test_a_job_that_is_deleted_stops_the_engine(clips: Server) -> None:
    body = {"prompt": "it moves", "input_reference": _url(PHOTO), "num_inference_steps": 60, "num_frames": 17}
    job = clips.post(VIDEOS, body).json()
    stage = ("omnic_stage_steps_total", "draw")
    before = clips.metrics()[stage]
    while clips.metrics()[stage] < before + 2:
        time.sleep(0.05)
    clips.client.delete(f"{clips.url}{VIDEOS}/{job['id']}")
    time.sleep(0.5)
    at = clips.metrics()[stage]
    time.sleep(1)
    assert clips.metrics()[stage] <= at + 1
    assert clips.metrics()[("omnic_requests_running", "videos")] == 0


def _url(photo: NDArray[np.uint8]) -> str:
    import base64

    data = io.BytesIO(encode(photo, "png")).getvalue()
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"
