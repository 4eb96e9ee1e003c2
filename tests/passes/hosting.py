"""Loads the shipped assistant as planned, answers a few requests, and prints what that took, as JSON.

A process of its own, so that its peak is that of the stages: `python -m tests.passes.hosting`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from omnic.manifest import File, Model
from omnic.runtime.decode import Decode
from omnic.runtime.device import Device
from omnic.runtime.flow import Flow
from omnic.runtime.generate import Generate
from omnic.runtime.sampling import draw, keep_top_p, scale
from omnic.runtime.segment import Sentences
from omnic.runtime.weights import locate


def sample(logits: Any, rows: Any) -> Any:
    return draw(keep_top_p(scale(logits, rows.temperature), rows.top_p), rows.uniform, rows.temperature)


async def main(plan: dict[str, Any]) -> dict[str, Any]:
    models = {m["name"]: Model(**m | {"files": tuple(File(**f) for f in m["files"])}) for m in plan["models"]}
    device = Device("cpu", plan["think"].pop("threads"))
    think = Generate("think", locate(models["lm"], Path()), device, sample=sample, **plan["think"])
    speak = Decode("speak", locate(models["voice"], Path()), part="synthesize", **plan["speak"])
    for stage in (think, speak):
        stage.load(lambda *_: None)

    async def answer(question: str, seed: int) -> None:
        flow = Flow(seed)
        messages = [{"role": "user", "content": question}]
        said = think.start(flow, messages=messages, max_tokens=160, temperature=0.7, top_p=0.9, top_k=0)
        speech = speak.start(flow, text=said.text.channel(window=4, segmenter=Sentences()), speed=1.0, voice="heart")
        flow.output("reply", said.text)
        flow.output("speech", speech.audio)
        await flow.result()

    questions = ["Why is the sky blue?", "How do I boil an egg?", "Tell me a story about a dog.", "What is gravity?"]
    await asyncio.gather(*(answer(q, seed) for seed, q in enumerate(questions)))
    context = plan["think"]["context"]
    return {
        "weights": think.model.weight_bytes,
        "kv": think.model.kv_bytes(plan["think"]["slots"], context),
        "peak": _peak(),
    }


def _peak() -> int:
    """The most bytes that were resident. Not `ru_maxrss`, which counts the process this one was forked from, too."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))), flush=True)
    os._exit(0)  # threads of the engines may still sit in native code
