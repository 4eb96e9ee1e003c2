"""What step caches save on the emoji painter, and by how much its pictures drift.

The same requests without a cache and with each; drift is the mean absolute difference of
pixels in [0, 1], saved the share of forwards that left their blocks out. The catalog states these figures, and plans
quote them.

    python -m benchmarks.step_cache [--steps 20] [--prompts 4] [--threads 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from omnic.runtime.threads import wait_asleep

wait_asleep()  # as `omnic serve` does; before torch is imported

import numpy as np

from benchmarks.denoise_step import MIXED, Asked, Made, Stages

CACHES = [("first_block", 0.1), ("first_block", 0.15), ("tea", 0.1), ("tea", 0.15)]


def painted(asked: list[Asked], threads: int, **settings: Any) -> tuple[list[Made], float, float]:
    """The pictures, seconds of processor time, and the share of forwards that were short."""
    stages = Stages("float32", 1, threads, **settings)

    async def all_() -> list[Made]:
        return [await stages.make(one) for one in asked]

    asyncio.run(stages.make(Asked("warm", 1, 1.0, 0)))
    began, skipped = time.process_time(), stages.paint.stats()["skipped"]
    made = asyncio.run(all_())
    seconds, skipped = time.process_time() - began, stages.paint.stats()["skipped"] - skipped
    stages.close()
    return made, seconds, skipped / sum(a.steps * (1 + (a.guidance != 1)) for a in asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    asked = [Asked(one.prompt, options.steps, 1.5, one.seed) for one in MIXED[: options.prompts]]
    plain, base, _ = painted(asked, options.threads)
    head = ("cache", "threshold", "drift", "worst", "saved", "cpu time")
    print("{:12} {:>9} {:>7} {:>7} {:>6} {:>9}".format(*head), flush=True)
    results = []
    for kind, threshold in CACHES:
        made, seconds, saved = painted(asked, options.threads, step_cache=kind, step_cache_threshold=threshold)
        pairs = zip(made, plain, strict=True)
        drifts = [float(np.abs(a.picture.astype(float) - b.picture.astype(float)).mean() / 255) for a, b in pairs]
        results.append({
            "cache": kind, "threshold": threshold, "drift": sum(drifts) / len(drifts), "worst": max(drifts),
            "saved": saved, "cpu_time": seconds / base,
        })  # fmt: skip
        print(f"{kind:12} {threshold:9.2f} {sum(drifts) / len(drifts):7.4f} {max(drifts):7.4f} {saved:6.0%}"
              f" {seconds / base:8.2f}x", flush=True)  # fmt: skip
    if options.json:
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}, {options.threads or 'all'} threads",
            "versions": {name: metadata.version(name) for name in ("omnic", "torch", "diffusers")}
            | {"python": platform.python_version()},
            "steps": options.steps, "prompts": [one.prompt for one in asked], "caches": results,
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
