"""When the worker dies or hangs under a server: those at work are told, readiness says so, and it serves again."""

from __future__ import annotations

import json
import os
import signal
import time

import httpx
import psutil
import pytest

from tests.server.conftest import Make
from tests.server.running import Server, ask, words

PATH = "/v1/chat/completions"


def test_kill_9_in_mid_stream(build: Make) -> None:
    with Server(build(step_seconds=0.02)) as server:
        server.ready()
        worker = server.worker
        with server.streaming(PATH, ask(words(1000), max_tokens=1024, stream=True)) as response:
            lines = response.iter_lines()
            for _ in range(10):
                next(lines)
            os.kill(worker.pid, signal.SIGKILL)
            began = time.monotonic()
            rest = [line for line in lines if line]
        assert time.monotonic() - began < 5
        assert rest[-2] == "event: error"
        error = json.loads(rest[-1].removeprefix("data: "))["error"]
        assert (error["type"], error["code"]) == ("server_error", "worker_lost")
        server.ready(seconds=20)
        assert server.chat("back again").status_code == 200
        assert server.metrics()[("omnic_worker_restarts_total",)] == 1
        assert not psutil.pid_exists(worker.pid)


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_a_worker_that_ends_itself_or_hangs(build: Make, how: str) -> None:
    with Server(build()) as server:
        server.ready()
        began = time.monotonic()
        response = server.chat(f"!{how} a b c d e")
        assert time.monotonic() - began < 5
        assert (response.status_code, response.json()["error"]["code"]) == (503, "worker_lost")
        assert int(response.headers["retry-after"]) >= 1
        assert server.get("/health").status_code == 200
        assert server.get("/ready").status_code == 503
        server.ready(seconds=20)
        assert server.chat("back again").status_code == 200


def test_while_it_loads_it_is_alive_and_not_ready_and_says_how_far_it_is(build: Make) -> None:
    with Server(build(load_seconds=1.0)) as server:
        assert server.get("/health").status_code == 200
        ready = server.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "loading")
        refused = server.chat("too early")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"]
        assert server.chat("too early", max_tokens=0).status_code == 400
        server.line(r"loading think: [1-9]\d %")
        server.line(r"omnic: assistant on http://\S+, ready after")
        assert server.chat("now").status_code == 200


def test_a_worker_that_never_loads_is_the_end_of_the_server(build: Make) -> None:
    server = Server(build(load_failure="raise"))
    assert server.ended() == 1
    assert server.lines[-2:] == ["ValueError: `think` does not load", "omnic: ValueError: `think` does not load"]
    assert sum("starting it again" in line for line in server.lines) == 2


def test_missing_weights_are_one_line(build: Make) -> None:
    server = Server(build(load_failure="missing"))
    assert server.ended() == 1
    assert server.lines[-1] == "omnic: model of `think` is not here: pip install it"
    assert not any("Traceback" in line or "starting it again" in line for line in server.lines), server.lines


def test_three_deaths_in_a_row_are_the_end_of_the_server(build: Make) -> None:
    with Server(build()) as server:
        for _ in range(3):
            server.ready()
            os.kill(server.worker.pid, signal.SIGKILL)
            try:
                while server.get("/ready").status_code == 200:
                    time.sleep(0.01)
            except httpx.TransportError:
                break
        assert server.ended() == 1
        assert server.lines[-1] == "omnic: the worker process was killed by signal 9"


def test_the_worker_dies_with_the_server(build: Make) -> None:
    with Server(build()) as server:
        worker = server.ready().worker
        server.process.kill()
        worker.wait(timeout=3)
