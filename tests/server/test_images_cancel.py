"""Pictures and videos whose client goes away, or whose worker does: work stops at the next step, and nobody else's."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract import visual_bodies as bodies
from tests.painter import painter, studio
from tests.server.drawing import EDITS, GENERATIONS, VIDEOS, events, make, steps
from tests.server.running import Server

STEP_SECONDS = 0.05
LONG = {"prompt": "a fox", "num_inference_steps": 100}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A painter whose steps take 50 ms, two requests at once, three in line."""
    build = make(tmp_path_factory.mktemp("slow"), painter(), step_seconds=STEP_SECONDS)
    with Server(build, "--running", "2", "--queued", "3") as running:
        yield running.ready()


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("film")
    build = make(directory / "build", studio(), step_seconds=STEP_SECONDS)
    with Server(build, "--running", "2", "--jobs", str(directory / "jobs")) as running:
        yield running.ready()


def settled(server: Server, seed: int, stage: str = "paint") -> int:
    """How many steps a request made, once it makes no more."""
    before = -1
    while before != (before := steps(server, seed, stage)):
        time.sleep(5 * STEP_SECONDS)
    return before


async def reached(server: Server, count: int, *seeds: int, stage: str = "paint") -> None:
    """Waits until each of these requests has made so many steps."""
    async with asyncio.timeout(20):
        while min(steps(server, seed, stage) for seed in seeds) < count:
            await asyncio.sleep(0.01)


async def abandoned(server: Server, path: str, body: dict[str, Any], when: Coroutine[Any, Any, None]) -> None:
    """Asks, and closes the connection then."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        asking = asyncio.create_task(client.post(path, json=body))
        await when
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def waiting(server: Server, count: int) -> None:
    """Waits until so many requests stand in line."""
    async with httpx.AsyncClient(base_url=server.url) as client, asyncio.timeout(20):
        while sum(f"{float(count)}" in line for line in (await client.get("/metrics")).text.splitlines()
                  if line.startswith("omnic_requests_waiting{")) < 1:  # fmt: skip
            await asyncio.sleep(0.01)


BODIES = {
    "generations": (GENERATIONS, LONG),
    "edits": (EDITS, LONG | {"image": bodies.PICTURE}),
    "a stream": (GENERATIONS, LONG | {"stream": True}),
    "previews": (EDITS, LONG | {"image": bodies.PICTURE, "stream": True, "partial_images": 3}),
}


@pytest.mark.parametrize(("name", "seed"), [(name, 100 + i) for i, name in enumerate(BODIES)])
def test_a_client_that_goes_stops_its_request_at_the_next_step(slow: Server, name: str, seed: int) -> None:
    path, body = BODIES[name]
    asyncio.run(abandoned(slow, path, body | {"seed": seed}, reached(slow, 4, seed)))
    at_once = steps(slow, seed)
    assert settled(slow, seed) <= at_once + 2
    assert slow.post(GENERATIONS, {"prompt": "a fox", "seed": seed}).status_code == 200


def test_all_of_several_pictures_stop(slow: Server) -> None:
    asyncio.run(abandoned(slow, GENERATIONS, LONG | {"seed": 200, "n": 2}, reached(slow, 4, 200, 201)))
    at_once = [steps(slow, 200), steps(slow, 201)]
    settled(slow, 200)
    assert [steps(slow, 200) <= at_once[0] + 2, steps(slow, 201) <= at_once[1] + 2] == [True, True]


def test_one_in_line_is_dropped_without_a_step(slow: Server) -> None:
    async def go() -> list[int]:
        async with httpx.AsyncClient(base_url=slow.url, timeout=30) as client:
            body = LONG | {"num_inference_steps": 20}
            ahead = [asyncio.create_task(client.post(GENERATIONS, json=body | {"seed": 300 + i})) for i in range(2)]
            await reached(slow, 1, 300, 301)
            await abandoned(slow, GENERATIONS, body | {"seed": 302}, waiting(slow, 1))
            behind = await client.post(GENERATIONS, json={"prompt": "a fox", "seed": 303})
            return [a.status_code for a in (*await asyncio.gather(*ahead), behind)]

    assert asyncio.run(go()) == [200, 200, 200]
    assert [steps(slow, 300 + i) for i in range(4)] == [20, 20, 0, 4]


def test_more_than_there_is_room_for_is_429(slow: Server) -> None:
    answer = slow.post(GENERATIONS, {"prompt": "a fox", "n": 6})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
    assert int(answer.headers["retry-after"]) >= 1
    assert len(slow.post(GENERATIONS, {"prompt": "a fox", "n": 5}).json()["data"]) == 5


def test_a_hundred_requests_with_every_fifth_abandoned(tmp_path: Path) -> None:
    with Server(make(tmp_path, painter(8), step_seconds=0.002)) as server:
        server.ready()

        async def one(client: httpx.AsyncClient, number: int) -> Any:
            body = {"prompt": f"fox {number}", "seed": number, "num_inference_steps": 1 + number % 9}
            if number % 5:
                return (await client.post(GENERATIONS, json=body)).json()["data"][0]["b64_json"]
            async with client.stream(
                "POST", GENERATIONS, json=body | {"stream": True, "num_inference_steps": 100}
            ) as r:
                async for _ in r.aiter_lines():
                    break
            return None

        async def go() -> list[Any]:
            limit = asyncio.Semaphore(20)
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:

                async def limited(number: int) -> Any:
                    async with limit:
                        return await one(client, number)

                together = await asyncio.gather(*(limited(n) for n in range(100)))
                alone = [await one(client, n) for n in range(100) if n % 5]
                return [[a for a in together if a], alone]

        together, alone = asyncio.run(go())
        assert together == alone
        assert server.metrics()[("omnic_requests_running", "images.generations")] == 0


def test_a_worker_that_dies_under_a_picture(tmp_path: Path) -> None:
    with Server(make(tmp_path, painter(), step_seconds=0.02)) as server:
        server.ready()
        began = time.monotonic()
        answer = server.post(GENERATIONS, {"prompt": "!exit"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "worker_lost")
        assert time.monotonic() - began < 5
        server.ready()
        with server.streaming(GENERATIONS, LONG | {"stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.worker.send_signal(signal.SIGKILL)
            rest = [line for line in lines if line]
        assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "worker_lost"
        server.ready()
        assert server.post(GENERATIONS, {"prompt": "a fox"}).status_code == 200


def test_pictures_by_address_go_when_their_time_is_over_and_with_the_server(tmp_path: Path) -> None:
    with Server(make(tmp_path, painter()), "--keep-pictures", "0.5") as server:
        server.ready()
        url = server.post(GENERATIONS, {"prompt": "a fox", "response_format": "url"}).json()["data"][0]["url"]
        [kept] = {Path(p) for p in kept_directories(server)}
        assert server.client.get(url).status_code == 200
        assert len(list(kept.iterdir())) == 1
        time.sleep(0.7)
        assert server.client.get(url).status_code == 404
        assert list(kept.iterdir()) == []
        server.post(GENERATIONS, {"prompt": "a fox", "response_format": "url"})
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert not kept.exists()


def kept_directories(server: Server) -> list[str]:
    """Where a server keeps pictures: it is the only one that made a directory of that name since it began."""
    import tempfile

    began = server.build.stat().st_mtime
    found = Path(tempfile.gettempdir()).glob("omnic-pictures-*")
    return [str(p) for p in found if p.stat().st_mtime >= began]


# --- videos -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_video_that_is_waited_for_stops_with_its_client(film: Server, stream: bool) -> None:
    seed = 400 + stream
    body = {"prompt": "a fox", "num_inference_steps": 200, "seed": seed, "stream": stream}
    asyncio.run(abandoned(film, f"{VIDEOS}/sync", body, reached(film, 4, seed, stage="film")))
    at_once = steps(film, seed, "film")
    assert settled(film, seed, "film") <= at_once + 2


def test_a_job_goes_on_without_its_client_and_stops_when_it_is_deleted(film: Server) -> None:
    job = film.post(VIDEOS, {"prompt": "a fox", "num_inference_steps": 200, "seed": 410}).json()
    asyncio.run(reached(film, 4, 410, stage="film"))
    assert film.get(f"{VIDEOS}/{job['id']}").json()["status"] == "in_progress"
    assert film.client.delete(f"{film.url}{VIDEOS}/{job['id']}").json()["deleted"] is True
    at_once = steps(film, 410, "film")
    assert settled(film, 410, "film") <= at_once + 2
    assert film.get(f"{VIDEOS}/{job['id']}").status_code == 404
    assert film.metrics()[("omnic_requests_running", "videos")] == 0


def test_a_job_in_line_is_deleted_without_a_step(film: Server) -> None:
    busy = [film.post(VIDEOS, {"prompt": "a fox", "num_inference_steps": 40, "seed": 420 + i}).json() for i in range(3)]
    asyncio.run(reached(film, 1, 420, 421, stage="film"))
    assert [film.get(f"{VIDEOS}/{b['id']}").json()["status"] for b in busy] == ["in_progress", "in_progress", "queued"]
    assert film.client.delete(f"{film.url}{VIDEOS}/{busy[2]['id']}").status_code == 200
    for job in busy[:2]:
        while film.get(f"{VIDEOS}/{job['id']}").json()["status"] != "completed":
            time.sleep(0.05)
    assert [steps(film, 420 + i, "film") for i in range(3)] == [40, 40, 0]


def test_progress_rises_with_the_steps(film: Server) -> None:
    job = film.post(VIDEOS, {"prompt": "a fox", "num_inference_steps": 30}).json()
    seen = [job["progress"]]
    while (now := film.get(f"{VIDEOS}/{job['id']}").json())["status"] != "completed":
        seen.append(now["progress"])
        time.sleep(0.1)
    assert seen == sorted(seen)
    assert len(set(seen)) >= 4
    assert now["progress"] == 100


def test_events_end_with_the_picture_and_no_progress_after_it(slow: Server) -> None:
    with slow.streaming(GENERATIONS, {"prompt": "a fox", "stream": True}) as response:
        types = [e["type"] for e in events(response.iter_lines())]
    assert types == ["image_generation.progress"] * 4 + ["image_generation.completed"]
