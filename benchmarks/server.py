"""What the server adds to a request, and whether its memory stays flat.

Our server on fake stages that answer at once, against a bare Starlette app that echoes its body, both under the
same uvicorn, each asked at a steady rate by the same client. Pairs alternate; the figure is the median over pairs of
the difference of medians. Then many requests in a row, with the memory of server and worker before and after.

    python -m benchmarks.server [--rate 200] [--seconds 5] [--pairs 5] [--requests 20000] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from omnic import manifest
from omnic.runtime import fake

GOLDEN = Path(__file__).parent.parent / "tests/golden/assistant"
PATH = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "why is the sky blue"}]}
ECHO = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def echo(request):
    return JSONResponse(await request.json())

app = Starlette(routes=[Route("/v1/chat/completions", echo, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Latencies of one run, in ms."""

    p50: float
    p99: float
    rate_hz: float  # requests completed a second

    @classmethod
    def of(cls, seconds: list[float], span: float) -> Times:
        ordered = sorted(1000 * s for s in seconds)
        return cls(statistics.median(ordered), ordered[int(0.99 * (len(ordered) - 1))], len(ordered) / span)


class Connection:
    """One HTTP/1.1 connection that is used again and again."""

    def __init__(self, port: int) -> None:
        self._port = port
        body = json.dumps(BODY).encode()
        lines = (
            f"POST {PATH} HTTP/1.1",
            "host: bench",
            "content-type: application/json",
            f"content-length: {len(body)}",
        )
        self._request = "\r\n".join((*lines, "", "")).encode() + body

    async def open(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def ask(self) -> float:
        """Seconds that one request took."""
        began = time.perf_counter()
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        await self._reader.readexactly(int(length[1]))
        return time.perf_counter() - began

    def close(self) -> None:
        self._writer.close()


async def steady(port: int, rate: float, seconds: float, connections: int = 32) -> Times:
    """Asks at `rate` a second, whether answers come or not; a request waits for a free connection within its time."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    everyone = [await Connection(port).open() for _ in range(connections)]
    for each in everyone:
        free.put_nowait(each)
    took: list[float] = []

    async def one(due: float) -> None:
        connection = await free.get()
        await connection.ask()
        took.append(time.perf_counter() - due)
        free.put_nowait(connection)

    began = time.perf_counter()
    asking = []
    for n in range(int(rate * seconds)):
        due = began + n / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        asking.append(asyncio.create_task(one(max(due, time.perf_counter() - 0.001))))
    await asyncio.gather(*asking)
    span = time.perf_counter() - began
    for each in everyone:
        each.close()
    return Times.of(took, span)


async def flood(port: int, requests: int, connections: int = 8) -> float:
    """Asks as fast as answers come; requests a second."""
    left = requests

    async def one() -> None:
        nonlocal left
        connection = await Connection(port).open()
        while left > 0:
            left -= 1
            await connection.ask()
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return requests / (time.perf_counter() - began)


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[psutil.Process, int]]:
    """A server process and its port, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = subprocess.Popen([sys.executable, *command, str(port)], stderr=subprocess.DEVNULL)
    try:
        asyncio.run(answers(port))
        yield psutil.Process(started.pid), port
    finally:
        started.terminate()
        started.wait(10)


async def answers(port: int) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
            connection = await Connection(port).open()
            await connection.ask()
            connection.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("the server does not answer")


def resident_mb(server: psutil.Process) -> float:
    """Of the server and its worker."""
    return sum(p.memory_info().rss for p in (server, *server.children(recursive=True))) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        build = fake.write(Path(directory) / "build", manifest.read(GOLDEN))
        (build / "server.py").write_bytes((GOLDEN / "server.py").read_bytes())
        ours, our_port = stack.enter_context(process(str(build / "server.py"), "--port"))
        _, echo_port = stack.enter_context(process("-c", ECHO))
        pairs = []
        for port in (our_port, echo_port):
            asyncio.run(steady(port, args.rate, 1.0))
        for _ in range(args.pairs):
            pairs.append([asyncio.run(steady(p, args.rate, args.seconds)) for p in (our_port, echo_port)])
        asyncio.run(flood(our_port, args.requests // 10))
        before = resident_mb(ours)
        rate = asyncio.run(flood(our_port, args.requests))
        after = resident_mb(ours)
    extra = statistics.median(a.p50 - b.p50 for a, b in pairs)
    print(f"{'':>6} {'p50 ms':>9} {'p99 ms':>9} {'echo p50':>9} {'echo p99':>9} {'extra p50':>9}")
    for n, (a, b) in enumerate(pairs):
        print(f"{n + 1:>6} {a.p50:>9.2f} {a.p99:>9.2f} {b.p50:>9.2f} {b.p99:>9.2f} {a.p50 - b.p50:>9.2f}")
    print(f"extra p50 at {args.rate:g} req/s: {extra:.2f} ms (target 2)")
    print(f"memory over {args.requests} requests at {rate:.0f} req/s: {before:.1f} MB to {after:.1f} MB")
    if args.json:
        versions = {n: metadata.version(n) for n in ("fastapi", "starlette", "uvicorn", "msgspec")}
        result = {
            "extra_p50_ms": extra,
            "rate_hz": args.rate,
            "pairs": [{"ours": [a.p50, a.p99], "echo": [b.p50, b.p99]} for a, b in pairs],
            "requests": args.requests,
            "flood_rate_hz": rate,
            "resident_mb": [before, after],
            "machine": {
                "python": platform.python_version(),
                "cpu": platform.processor() or platform.machine(),
                **versions,
            },
        }
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
