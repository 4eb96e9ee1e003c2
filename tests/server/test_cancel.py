"""A client that goes away: its work stops, in line or at work, streamed or not, and nobody else's does."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.server.conftest import make
from tests.server.running import Server, ask, words

STEP_SECONDS = 0.02
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose words take 20 ms, two requests at once, and its step log."""
    build = make(tmp_path_factory.mktemp("slow"), step_seconds=STEP_SECONDS)
    with Server(build, "--running", "2", "--queued", "3") as running:
        yield running.ready(), build / "log"


def steps(log: Path, seed: int, stage: str = "think") -> int:
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(line.startswith(f"{stage} {seed} ") for line in lines)


def settled(log: Path, seed: int) -> int:
    """How many steps a request made, once it makes no more."""
    before = -1
    while before != (before := steps(log, seed)):
        time.sleep(5 * STEP_SECONDS)
    return before


async def abandoned(server: Server, body: dict[str, Any], after: float) -> None:
    """Asks, and closes the connection after a while."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        asking = asyncio.create_task(client.post(PATH, json=body))
        await asyncio.sleep(after)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def outcome(server: Server, name: str) -> float:
    return server.metrics()[("omnic_requests_total", "chat.completions", name)]


def test_a_plain_request_stops_at_the_next_step(slow: tuple[Server, Path]) -> None:
    server, log = slow
    before = outcome(server, "cancelled")
    asyncio.run(abandoned(server, ask(words(200), seed=1), after=0.3))
    at_once = steps(log, 1)
    assert at_once > 3
    assert settled(log, 1) <= at_once + 2
    assert outcome(server, "cancelled") == before + 1


def test_a_streamed_request_stops_at_the_next_step(slow: tuple[Server, Path]) -> None:
    server, log = slow
    with server.streaming(PATH, ask(words(200), seed=2, stream=True)) as response:
        for count, _ in enumerate(response.iter_lines()):
            if count == 20:
                break
    at_once = steps(log, 2)
    assert settled(log, 2) <= at_once + 2


def test_a_spoken_request_stops_in_every_stage(slow: tuple[Server, Path]) -> None:
    server, log = slow
    body = ask(words(200), seed=3, stream=True, modalities=["text", "audio"])
    with server.streaming(PATH, body) as response:
        next(line for line in response.iter_lines() if '"data"' in line)
    at_once = steps(log, 3), steps(log, 3, "speak")
    settled(log, 3)
    assert steps(log, 3) <= at_once[0] + 2
    assert steps(log, 3, "speak") <= at_once[1] + 2


def test_all_of_several_answers_stop(slow: tuple[Server, Path]) -> None:
    server, log = slow
    asyncio.run(abandoned(server, ask(words(200), seed=10, n=2), after=0.3))
    at_once = [steps(log, 10), steps(log, 11)]
    assert min(at_once) > 3
    settled(log, 10)
    assert steps(log, 10) <= at_once[0] + 2
    assert steps(log, 11) <= at_once[1] + 2


def test_one_in_line_is_dropped_without_a_step(slow: tuple[Server, Path]) -> None:
    server, log = slow

    async def go() -> list[str]:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            ahead = [asyncio.create_task(client.post(PATH, json=ask(words(20), seed=20 + i))) for i in range(2)]
            await asyncio.sleep(0.1)
            await abandoned(server, ask(words(20), seed=22), after=0.1)
            behind = await client.post(PATH, json=ask("behind", seed=23))
            answers = [*await asyncio.gather(*ahead), behind]
            return [a.json()["choices"][0]["message"]["content"] for a in answers]

    assert asyncio.run(go()) == [words(20), words(20), "behind"]
    assert steps(log, 22) == 0


def test_a_full_line_is_429_with_when_to_come_back_and_drains(slow: tuple[Server, Path]) -> None:
    server, _ = slow

    async def go() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            return await asyncio.gather(*(client.post(PATH, json=ask(words(10, f"{i}-"))) for i in range(12)))

    responses = asyncio.run(go())
    statuses = [r.status_code for r in responses]
    assert (statuses.count(200), statuses.count(429)) == (5, 7)  # two at work, three in line
    for refused in (r for r in responses if r.status_code == 429):
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
    assert server.chat("afterwards").status_code == 200


def test_more_answers_than_there_is_room_for_are_429(slow: tuple[Server, Path]) -> None:
    server, _ = slow
    assert server.chat("hello", n=6).status_code == 429
    assert len(server.chat("hello", n=5).json()["choices"]) == 5


def test_a_client_that_reads_slowly_holds_its_own_request_back(server: Server) -> None:
    """400 chunks of sound of 0.8 MB each, of which the client reads the first: what is under way stays bounded."""
    log = server.build / "log"
    body = ask(" ".join(["word" * 200] * 400), seed=30, stream=True, modalities=["text", "audio"], max_tokens=400)
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    host, port = server.url.removeprefix("http://").split(":")
    before = psutil.Process(server.process.pid).memory_info().rss
    with socket.create_connection((host, int(port))) as reader:
        reader.sendall(head.encode() + data)
        reader.recv(4096)
        held = settled(log, 30)
        assert steps(log, 30, "speak") <= held < 200
        assert psutil.Process(server.process.pid).memory_info().rss - before < 80e6
        assert server.chat("someone else").status_code == 200
    assert settled(log, 30) <= held + 8


def test_two_hundred_requests_with_every_fifth_abandoned(server: Server) -> None:
    async def one(client: httpx.AsyncClient, number: int) -> str | None:
        body = ask(words(6, f"{number}-"), stream=bool(number % 2))
        if number % 5:
            return said(await client.post(PATH, json=body))
        async with client.stream("POST", PATH, json=body | {"stream": True}) as response:
            async for count, _ in aenumerate(response):
                if count >= number % 4:
                    break
        return None

    async def go() -> list[str | None]:
        limit, wanted = asyncio.Semaphore(20), []
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:

            async def limited(number: int) -> str | None:
                async with limit:
                    return await one(client, number)

            wanted = await asyncio.gather(*(limited(n) for n in range(200)))
            return [*wanted, *[await one(client, 5 * n + 1) for n in range(20)]]

    numbers = [*range(200), *(5 * n + 1 for n in range(20))]
    answers = asyncio.run(go())
    assert [a for a in answers if a is not None] == [words(6, f"{n}-") for n in numbers if n % 5]
    assert server.metrics()[("omnic_requests_running", "chat.completions")] == 0


def test_sound_is_sent_while_it_is_made(slow: tuple[Server, Path]) -> None:
    server, _ = slow
    began = time.monotonic()
    body = {"input": words(20), "response_format": "wav", "stream_format": "audio"}
    with server.streaming("/v1/audio/speech", body) as response:
        parts = [(time.monotonic() - began, part) for part in response.iter_raw()]
    assert parts[0][0] < parts[-1][0] / 2
    data = b"".join(part for _, part in parts)
    assert data.count(b"RIFF") == 1
    assert data[44:] == server.speech(words(20), response_format="pcm").content


def test_a_client_that_reads_nothing_for_too_long_has_gone(tmp_path: Path) -> None:
    build = make(tmp_path)
    with Server(build, "--stall", "0.5") as server:
        server.ready()
        body = ask(" ".join(["word" * 200] * 400), seed=31, stream=True, modalities=["text", "audio"], max_tokens=400)
        with server.streaming(PATH, body):
            until = time.monotonic() + 10
            while outcome(server, "cancelled") < 1 or server.metrics()[("omnic_requests_running", "chat.completions")]:
                assert time.monotonic() < until
                time.sleep(0.1)


async def aenumerate(response: httpx.Response) -> Any:
    count = 0
    async for line in response.aiter_lines():
        yield count, line
        count += 1


def said(response: httpx.Response) -> str:
    if not response.headers["content-type"].startswith("text/event-stream"):
        return str(response.json()["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in response.text.split("\n\n") if line and line != "data: [DONE]"]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
