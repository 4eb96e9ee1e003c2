"""How a server process starts and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest

from omnic.runtime.server.main import _watch, main
from omnic.runtime.workers import State
from tests.server.conftest import Make
from tests.server.running import Server, ask, words

PATH = "/v1/chat/completions"


class Asking(threading.Thread):
    """A chat request on its way."""

    def __init__(self, server: Server, body: dict[str, object]) -> None:
        super().__init__()
        self.server, self.body = server, body
        self.response: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            self.response = client.post(f"{self.server.url}{PATH}", json=self.body)

    @property
    def answer(self) -> httpx.Response:
        self.join()
        assert self.response is not None
        return self.response


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once_and_well(build: Make, signum: signal.Signals) -> None:
    with Server(build()) as server:
        worker = server.ready().worker
        began = time.monotonic()
        server.process.send_signal(signum)
        assert server.ended() == 0
        assert time.monotonic() - began < 2
        assert not psutil.pid_exists(worker.pid)
        assert not any("Traceback" in line for line in server.lines)


def test_what_is_at_work_is_finished_and_what_comes_is_not_taken(build: Make) -> None:
    with Server(build(step_seconds=0.02)) as server:
        server.ready()
        working = Asking(server, ask(words(50)))
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")
        assert working.answer.json()["choices"][0]["message"]["content"] == words(50)
        assert server.ended() == 0


def test_clients_that_are_stuck_do_not_hold_up_the_end(build: Make) -> None:
    with Server(build(step_seconds=0.001), "--drain", "1") as server:
        server.ready()
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        body = json.dumps(ask(words(5000), stream=True, max_tokens=1024, n=16))
        with socket.socket() as half, socket.socket() as deaf, socket.socket() as idle:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            for client, said in (
                (half, f"{head}1000\r\n\r\n{{"),
                (deaf, f"{head}{len(body)}\r\n\r\n{body}"),
                (idle, "GET /"),
            ):
                client.connect(address)
                client.sendall(said.encode())
            time.sleep(0.3)
            began = time.monotonic()
            server.process.terminate()
            assert server.ended() == 0
            assert time.monotonic() - began < 3


def test_at_the_deadline_the_rest_is_told_and_let_go(build: Make) -> None:
    with Server(build(step_seconds=0.05), "--drain", "0.5", "--running", "2") as server:
        worker = server.ready().worker
        plain, _, waiting = (Asking(server, ask(words(500), max_tokens=500)) for _ in range(3))
        with server.streaming(PATH, ask("x", stream=True)) as response:
            pass
        streamed = Asking(server, ask(words(500), stream=True))
        time.sleep(0.3)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert time.monotonic() - began < 0.5 + 2
        for told in (plain, waiting):
            assert told.answer.status_code == 503
            assert told.answer.json()["error"]["message"] == "the server is shutting down"
        assert response.status_code in (200, 503)
        assert streamed.answer.status_code in (200, 503)
        assert not psutil.pid_exists(worker.pid)


def test_a_stream_at_the_deadline_ends_in_an_error_event(build: Make) -> None:
    with Server(build(step_seconds=0.05), "--drain", "0.3") as server:
        server.ready()
        with server.streaming(PATH, ask(words(500), stream=True)) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-2] == "event: error"
        assert json.loads(rest[-1][6:])["error"]["code"] == "unavailable"
        assert server.ended() == 0


def test_a_second_signal_is_fast(build: Make) -> None:
    with Server(build(step_seconds=0.05)) as server:
        worker = server.ready().worker
        working = Asking(server, ask(words(500)))
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 1
        assert time.monotonic() - began < 1
        assert not psutil.pid_exists(worker.pid)
        assert working.answer.status_code == 503


def test_a_signal_while_it_loads(build: Make) -> None:
    with Server(build(load_seconds=60)) as server:
        server.line("loading think")
        worker = server.worker
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == 0
        assert time.monotonic() - began < 2
        assert not psutil.pid_exists(worker.pid)


def test_a_slow_reader_does_not_hold_up_the_end(build: Make) -> None:
    with Server(build(), "--drain", "0.5") as server:
        server.ready()
        body = ask(" ".join(["word" * 100] * 400), modalities=["text", "audio"], stream=True, max_tokens=400)
        with server.streaming(PATH, body):
            time.sleep(0.5)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.ended() == 0
            assert time.monotonic() - began < 0.5 + 3


def refused(build: Path, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-W", "error", str(build / "server.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stderr.splitlines()


def test_a_port_in_use_is_one_line(build: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(build(), "--port", str(port)) == (1, [f"omnic: port {port} on 127.0.0.1 is in use"])


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--port", "65536", "must be a whole number in 0..65535, not 65536"),
        ("--port", "http", "must be a whole number in 0..65535, not http"),
        ("--running", "0", "must be a whole number from 1, not 0"),
        ("--queued", "-1", "must be a whole number from 0, not -1"),
        ("--drain", "nan", "must be a number of seconds from 0, not nan"),
        ("--stall", "-0.5", "must be a number of seconds from 0, not -0.5"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(
    option: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["server.py", f"{option}={value}"])
    with pytest.raises(SystemExit) as leaving:
        main(Path("/nowhere"))
    assert leaving.value.code == 2
    assert f"argument {option}: {says}" in capsys.readouterr().err


def test_an_address_that_is_not_here_is_one_line(build: Make) -> None:
    status, lines = refused(build(), "--host", "203.0.113.7", "--port", "0")
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith("omnic: cannot listen on 203.0.113.7:0")


def test_a_build_that_went_stale_is_one_line(build: Make) -> None:
    path = build()
    lock = json.loads((path / "omnic.lock").read_text())
    (path / "omnic.lock").write_text(json.dumps(lock | {"omnic": "0.0.1"}))
    status, lines = refused(path)
    assert (status, len(lines)) == (1, 1)
    assert "built by omnic 0.0.1" in lines[0]


def test_what_is_no_build_is_one_line(build: Make) -> None:
    path = build()
    (path / "manifest.json").unlink()
    status, lines = refused(path)
    assert (status, len(lines)) == (1, 1)
    assert "has no manifest.json" in lines[0]


def test_the_app_runs_in_a_plain_uvicorn_too(build: Make) -> None:
    path = build()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "server:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=path)
    try:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        response = httpx.post(f"http://127.0.0.1:{port}{PATH}", json=ask("hello"))
        assert response.json()["choices"][0]["message"]["content"] == "hello"
        [worker] = psutil.Process(process.pid).children()
    finally:
        process.terminate()
        process.wait(10)
    assert not psutil.pid_exists(worker.pid)


def test_a_server_that_stops_does_not_say_that_it_loads(capsys: pytest.CaptureFixture[str]) -> None:
    async def life() -> None:
        supervisor = SimpleNamespace(state=State.loading, loading={"think": (5, 10)})
        service = SimpleNamespace(supervisor=supervisor, model="assistant")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            watching = asyncio.create_task(_watch(service, None, listener, []))
            for state in (State.loading, State.ready, State.stopped):
                supervisor.state = state
                await asyncio.sleep(0.3)
            watching.cancel()

    asyncio.run(life())
    said = [line.partition(", ")[2] or line for line in capsys.readouterr().err.splitlines()]
    assert said[:2] == ["loading", "omnic: loading think: 50 %"]
    assert said[2].startswith("ready after")
    assert len(said) == 3
