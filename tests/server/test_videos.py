"""Videos over HTTP: begun, asked after, fetched, listed, deleted; across restarts and by several servers."""

from __future__ import annotations

import io
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from omnic.expr import Size
from omnic.runtime.fake_visual import drawn
from omnic.runtime.picture_files import encode
from tests.contract import visual_bodies as bodies
from tests.painter import studio
from tests.server.drawing import VIDEOS, make, steps
from tests.server.running import Server
from tests.server.test_http import encodable, error_of

pytestmark = pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning")
PHOTO = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
FILE = encode(PHOTO, "png")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("studio")
    build = make(directory / "build", studio(), step_seconds=0.005)
    with Server(build, "--jobs", str(directory / "jobs")) as running:
        yield running.ready()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def frames(data: bytes) -> NDArray[np.uint8]:
    with av.open(io.BytesIO(data)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


def alike(film: NDArray[np.uint8], seed: int, **told: Any) -> bool:
    """Whether a film is what the fake draws, as near as a lossy file comes."""
    wanted = np.stack([drawn(seed, {"prompt": "a fox", **told}, frame) for frame in range(len(film))])
    return bool(np.abs(film.astype(int) - wanted).mean() < 12)


def ended(server: Server, id: str, seconds: float = 20) -> Any:
    """A job once it has ended."""
    until = time.monotonic() + seconds
    while (job := server.get(f"{VIDEOS}/{id}").json())["status"] in ("queued", "in_progress"):
        assert time.monotonic() < until, job
        time.sleep(0.02)
    return job


# --- OpenAI's client --------------------------------------------------------------------------------------------------


def test_a_video_from_its_prompt_to_its_file(client: openai.OpenAI) -> None:
    job = client.videos.create(prompt="a fox", seconds="4", size="64x64", extra_body={"seed": 7, "steps": 6})  # type: ignore[arg-type]
    assert (job.object, job.status, job.seconds, job.size, job.model) == (
        "video",
        "queued",
        "4.0625",
        "64x64",
        "studio",
    )
    job = client.videos.poll(job.id)
    assert (job.status, job.progress, job.error) == ("completed", 100, None)
    assert job.completed_at is not None
    assert job.expires_at is not None
    assert job.expires_at > job.completed_at
    content = client.videos.download_content(job.id)
    assert content.response.headers["content-type"] == "video/mp4"
    film = frames(content.read())
    assert film.shape == (65, 64, 64, 3)
    assert alike(film, 7, frames=65, size=Size(64, 64), steps=6)


def test_a_video_from_a_picture(client: openai.OpenAI) -> None:
    job = client.videos.create(prompt="a fox", input_reference=("first.png", FILE), extra_body={"seed": 8})
    assert client.videos.poll(job.id).status == "completed"
    film = frames(client.videos.download_content(job.id).read())
    assert alike(film, 8, first=PHOTO)
    assert not alike(film, 8)


@pytest.mark.parametrize("form", ["data URL", "object", "object in a form"])
def test_a_picture_in_other_forms(server: Server, form: str) -> None:
    url, body = bodies.data_url(FILE), {"prompt": "a fox", "seed": 8}
    match form:
        case "data URL":
            answer = server.post(VIDEOS, body | {"input_reference": url})
        case "object":
            answer = server.post(VIDEOS, body | {"input_reference": {"image_url": url}})
        case _:
            said = {"prompt": "a fox", "seed": "8", "input_reference[image_url]": url}
            answer = server.client.post(f"{server.url}{VIDEOS}", data=said, files={"user": (None, "bo")})
    job = ended(server, answer.json()["id"])
    assert alike(frames(server.get(f"{VIDEOS}/{job['id']}/content").content), 8, first=PHOTO)


def test_listing_and_deleting(client: openai.OpenAI) -> None:
    made = [client.videos.create(prompt=f"fox {n}").id for n in range(3)]
    found = [job.id for job in client.videos.list(limit=2)]  # page after page
    assert found[:3] == made[::-1]
    assert [job.id for job in client.videos.list(order="asc", after=made[0])] == made[1:]
    assert client.videos.delete(made[1]).deleted is True
    assert made[1] not in [job.id for job in client.videos.list()]
    with pytest.raises(openai.NotFoundError):
        client.videos.retrieve(made[1])


def test_the_client_s_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        client.videos.create(prompt=" ")
    with pytest.raises(openai.BadRequestError):
        client.videos.create(prompt="a fox", size="100000x10000")  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError):
        client.videos.create(prompt="a fox", model="sora-2")
    for ask in (client.videos.retrieve, client.videos.delete, client.videos.download_content):
        with pytest.raises(openai.NotFoundError):
            ask("video_000000000000000000000000")


# --- the rest of the routes -------------------------------------------------------------------------------------------


def test_the_file_can_be_fetched_in_parts(server: Server) -> None:
    job = ended(server, server.post(VIDEOS, {"prompt": "a fox"}).json()["id"])
    url = f"{server.url}{VIDEOS}/{job['id']}/content"
    whole = server.client.get(url).content
    part = server.client.get(url, headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole[10:20])


def test_what_is_not_done_cannot_be_fetched(server: Server) -> None:
    job = server.post(VIDEOS, {"prompt": "a fox", "num_inference_steps": 200}).json()
    answer = server.get(f"{VIDEOS}/{job['id']}/content")
    assert error_of(answer, 400)["code"] == "video_not_ready"
    assert server.get(f"{VIDEOS}/{job['id']}").headers["openai-poll-after-ms"]
    server.client.delete(f"{server.url}{VIDEOS}/{job['id']}")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=-1", "order=up", "after=nothing", "limit=%D9%A3"]
)
def test_a_bad_list_is_400(server: Server, query: str) -> None:
    assert error_of(server.get(f"{VIDEOS}?{query}"), 400)["param"] == query.partition("=")[0]


def test_another_variant_is_refused_by_name(server: Server) -> None:
    job = ended(server, server.post(VIDEOS, {"prompt": "a fox"}).json()["id"])
    assert error_of(server.get(f"{VIDEOS}/{job['id']}/content?variant=spritesheet"), 400)["param"] == "variant"


@pytest.mark.parametrize("path", [VIDEOS, f"{VIDEOS}/sync"])
@pytest.mark.parametrize("name", [n for n, (body, _) in bodies.BAD_VIDEOS.items() if encodable(body)])
def test_a_bad_body_is_400_and_names_its_field(server: Server, path: str, name: str) -> None:
    body, field = bodies.BAD_VIDEOS[name]
    assert error_of(server.post(path, body), 400)["param"] == field


UNREADABLE = ("no picture at all", "an empty file", "a picture cut short", "a damaged picture")


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_bad_picture_is_400_and_no_job(server: Server, name: str) -> None:
    picture = bodies.BAD_PICTURES[name][0]["image"]
    before = len(server.get(f"{VIDEOS}?limit=100").json()["data"])
    error_of(server.post(VIDEOS, {"prompt": "a fox", "input_reference": picture}), 400)
    assert len(server.get(f"{VIDEOS}?limit=100").json()["data"]) == before


@pytest.mark.parametrize(
    ("word", "code"), [("!request", "context_length_exceeded"), ("!raise", "stage_failed"), ("!memory", "stage_failed")]
)
def test_a_job_that_fails_says_why(server: Server, word: str, code: str) -> None:
    job = ended(server, server.post(VIDEOS, {"prompt": word}).json()["id"])
    assert (job["status"], job["error"]["code"]) == ("failed", code)
    assert "Traceback" not in job["error"]["message"]
    assert error_of(server.get(f"{VIDEOS}/{job['id']}/content"), 400)["code"] == "video_failed"


def test_a_video_while_the_client_waits(server: Server) -> None:
    answer = server.post(f"{VIDEOS}/sync", {"prompt": "a fox", "seed": 9})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "video/mp4")
    assert answer.headers["x-omnic-seed"] == "9"
    assert alike(frames(answer.content), 9)
    with server.streaming(f"{VIDEOS}/sync", {"prompt": "a fox", "seed": 9, "stream": True}) as response:
        streamed = b"".join(response.iter_raw())
    assert alike(frames(streamed), 9)
    assert error_of(server.post(f"{VIDEOS}/sync", {"prompt": "!raise"}), 500)["code"] == "stage_failed"


def test_a_video_has_its_sound(server: Server) -> None:
    with av.open(io.BytesIO(server.post(f"{VIDEOS}/sync", {"prompt": "a fox runs"}).content)) as file:
        assert sum(f.samples for f in file.decode(audio=0)) / 48000 == pytest.approx(0.1, abs=0.06)


def test_jobs_are_counted_when_they_end(server: Server) -> None:
    before = server.metrics()
    ended(server, server.post(VIDEOS, {"prompt": "a fox", "steps": 5}).json()["id"])
    time.sleep(0.1)
    after = server.metrics()

    def more(*key: str) -> float:
        return after[key] - before.get(key, 0.0)

    assert more("omnic_requests_total", "videos", "completed") == 1
    assert more("omnic_frames_total") == 8
    assert more("omnic_steps_total", "film") == 5


# --- restarts, and several servers ------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, Path]:
    """A slow build, and a directory of jobs."""
    return make(tmp_path / "build", studio(1), step_seconds=0.05), tmp_path / "jobs"


def serving(shared: tuple[Path, Path], *options: str) -> Server:
    build, jobs = shared
    return Server(build, "--jobs", str(jobs), "--running", "1", *options)


def begin(server: Server, steps: int, **fields: Any) -> str:
    body = {"prompt": "a fox", "num_inference_steps": steps, **fields}
    return str(server.post(VIDEOS, body).json()["id"])


def test_across_a_crash_what_is_done_stays_what_ran_has_failed_and_what_waited_is_made(
    shared: tuple[Path, Path],
) -> None:
    with serving(shared) as server:
        server.ready()
        done = begin(server, 2, seed=1)
        ended(server, done)
        content = server.get(f"{VIDEOS}/{done}/content").content
        running, waiting = begin(server, 200, seed=2), begin(server, 3, seed=3)
        while steps(server, 2, "film") < 3:
            time.sleep(0.02)
        server.process.send_signal(signal.SIGKILL)
        server.ended()
    with serving(shared) as server:
        server.ready()
        assert server.get(f"{VIDEOS}/{done}/content").content == content
        failed = server.get(f"{VIDEOS}/{running}").json()
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_stopped")
        made = ended(server, waiting)
        assert (made["status"], made["seed"]) == ("completed", 3)
        assert alike(frames(server.get(f"{VIDEOS}/{waiting}/content").content), 3, steps=3)


def test_a_server_that_stops_lets_a_job_end_if_there_is_time(shared: tuple[Path, Path]) -> None:
    with serving(shared, "--drain", "20") as server:
        server.ready()
        job = begin(server, 20, seed=1)
        while steps(server, 1, "film") < 3:
            time.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
    with serving(shared) as server:
        assert server.get(f"{VIDEOS}/{job}").json()["status"] == "completed"


@pytest.mark.parametrize("signals", [1, 2])
def test_and_says_that_it_failed_if_there_is_none(shared: tuple[Path, Path], signals: int) -> None:
    with serving(shared, "--drain", "0.5" if signals == 1 else "30") as server:
        server.ready()
        job, waiting = begin(server, 200, seed=1), begin(server, 2, seed=2)
        while steps(server, 1, "film") < 3:
            time.sleep(0.02)
        began = time.monotonic()
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        server.ended(10)
        assert time.monotonic() - began < 8
    with serving(shared) as server:
        server.ready()
        failed = server.get(f"{VIDEOS}/{job}").json()
        assert failed["status"] == "failed"
        assert failed["error"]["code"] in ("unavailable", "server_stopped", "worker_lost")
        assert ended(server, waiting)["status"] == "completed"


def test_two_servers_share_the_work_and_know_of_all_of_it(shared: tuple[Path, Path]) -> None:
    with serving(shared) as one, serving(shared) as other:
        one.ready()
        other.ready()
        jobs = [begin(one, 20, seed=10 + n) for n in range(4)]
        assert {j["id"] for j in other.get(VIDEOS).json()["data"]} == set(jobs)
        for id in jobs:
            assert ended(other, id)["status"] == "completed"
            assert other.get(f"{VIDEOS}/{id}/content").content == one.get(f"{VIDEOS}/{id}/content").content
        counted = [s.metrics()[("omnic_requests_total", "videos", "completed")] for s in (one, other)]
        assert sum(counted) == 4
        assert min(counted) >= 1


def test_a_job_is_stopped_by_the_server_next_door(shared: tuple[Path, Path]) -> None:
    with serving(shared) as one, serving(shared) as other:
        one.ready()
        other.ready()
        job = begin(one, 200, seed=20)
        while steps(one, 20, "film") < 3:
            time.sleep(0.02)
        for server in (one, other):  # whichever of them runs it
            server.client.delete(f"{server.url}{VIDEOS}/{job}")
        time.sleep(1.5)
        at = steps(one, 20, "film")
        time.sleep(0.5)
        assert steps(one, 20, "film") == at < 200


def test_a_worker_that_dies_fails_its_job_and_the_next_is_made(shared: tuple[Path, Path]) -> None:
    with serving(shared) as server:
        server.ready()
        lost, made = begin(server, 5, prompt="!exit"), begin(server, 2)
        failed = ended(server, lost)
        assert (failed["status"], failed["error"]["code"]) == ("failed", "worker_lost")
        assert ended(server, made)["status"] == "completed"


def test_a_full_line_is_429(shared: tuple[Path, Path]) -> None:
    with serving(shared, "--queued", "2") as server:
        server.ready()
        begin(server, 100)
        time.sleep(0.3)
        answers = [server.post(VIDEOS, {"prompt": "a fox"}) for _ in range(3)]
        assert [a.status_code for a in answers] == [200, 200, 429]
        counted = server.metrics()
        assert counted[("omnic_requests_running", "videos")] == 1
        assert counted[("omnic_requests_waiting", "videos")] == 2
        assert int(answers[2].headers["retry-after"]) >= 1


def test_jobs_end_when_their_time_is_over(shared: tuple[Path, Path]) -> None:
    with serving(shared, "--keep-videos", "0.5") as server:
        server.ready()
        job = begin(server, 1)
        assert ended(server, job)["status"] == "completed"
        time.sleep(0.6)
        assert server.get(f"{VIDEOS}/{job}").status_code == 404
        until = time.monotonic() + 10
        while list(shared[1].glob("*.mp4")):
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_store_that_cannot_be_opened_is_one_line(shared: tuple[Path, Path]) -> None:
    build, _ = shared
    server = Server(build, "--jobs", "/proc/nowhere/jobs")
    assert server.ended() == 1
    assert server.lines[-1].startswith("omnic: jobs cannot be kept: ")
    assert not any("Traceback" in line for line in server.lines)


def test_the_store_can_be_read_by_nobody_else(shared: tuple[Path, Path]) -> None:
    with serving(shared) as server:
        server.ready()
        begin(server, 1)
        assert shared[1].stat().st_mode & 0o077 == 0


def test_no_prompt_is_in_the_log(shared: tuple[Path, Path]) -> None:
    with serving(shared) as server:
        server.ready()
        job = begin(server, 1, prompt="a very secret fox")
        ended(server, job)
        assert not any("secret" in line for line in server.lines)
        assert json.dumps(server.get(f"{VIDEOS}/{job}").json()["prompt"]) == '"a very secret fox"'
