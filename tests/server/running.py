"""A server as a process of its own, on a fake build, and what tests ask of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

HELLO = [{"role": "user", "content": "hello there"}]


def words(count: int, mark: str = "word") -> str:
    return " ".join(f"{mark}{i}" for i in range(count))


def ask(text: str, **fields: Any) -> dict[str, Any]:
    """A chat body."""
    return {"messages": [{"role": "user", "content": text}], **fields}


class Server:
    """`python server.py` in a build directory. Entered, it is listening; `ready()` waits until it serves."""

    def __init__(self, build: Path, *options: str) -> None:
        self.build = build
        command = [sys.executable, "-W", "error", str(build / "server.py"), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.client = httpx.Client(timeout=30)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def __enter__(self) -> Self:
        self.url = self.line(r"omnic: \w+ on (http://\S+), loading")[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.process.kill()
        self.ended()

    def line(self, pattern: str, seconds: float = 10) -> re.Match[str]:
        """The first line of its log that matches."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for line in list(self.lines):
                if match := re.search(pattern, line):
                    return match
            time.sleep(0.01)
        raise AssertionError(f"no line {pattern!r} in {self.lines}")

    def ready(self, seconds: float = 20) -> Self:
        until = time.monotonic() + seconds
        while self.get("/ready").status_code != 200:
            assert time.monotonic() < until, "\n".join(self.lines)
            time.sleep(0.02)
        return self

    def ended(self, seconds: float = 20) -> int:
        """Waits for the process to end; its status."""
        status = self.process.wait(seconds)
        self._reading.join()
        for pipe in (self.process.stderr, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return status

    @property
    def worker(self) -> psutil.Process:
        [child] = psutil.Process(self.process.pid).children()
        return child

    def get(self, path: str) -> httpx.Response:
        return self.client.get(f"{self.url}{path}")

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
        content, kind = json.dumps(body), {"content-type": "application/json"}
        return self.client.post(f"{self.url}{path}", content=content, headers=kind | (headers or {}))

    def chat(self, text: str, **fields: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", ask(text, **fields))

    def speech(self, text: str, **fields: Any) -> httpx.Response:
        return self.post("/v1/audio/speech", {"input": text, **fields})

    @contextmanager
    def streaming(self, path: str, body: Any) -> Iterator[httpx.Response]:
        with self.client.stream("POST", f"{self.url}{path}", json=body) as response:
            yield response

    def metrics(self) -> dict[tuple[str, ...], float]:
        """`("omnic_requests_total", "chat.completions", "completed")`: value."""
        text = self.get("/metrics").text
        families = text_string_to_metric_families(text)
        return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
