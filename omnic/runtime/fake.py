"""Stand-ins for models: a build whose stages answer in microseconds, slow down or fail when told to.

`write` makes a build directory from a manifest; the server, the worker and the flow are the real ones. A fake
generate stage says the last message back, word by word; a fake decode stage makes 240 samples of tone a letter.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omnic import __version__, manifest
from omnic.contract.endpoints import Slice
from omnic.runtime.edges import Channel, Port
from omnic.runtime.errors import RequestError
from omnic.runtime.flow import Flow
from omnic.runtime.lock import FILE, Lock
from omnic.runtime.pipeline import Build, Pipeline
from omnic.runtime.stage import Progress, Running
from omnic.runtime.weights import Missing

RATE_HZ = 24000
SAMPLES_PER_LETTER = 240
ARGUMENTS = "!arguments"  # a message of just this is answered with the arguments of the stage, as JSON
SILENT = "!silent"  # text that contains this is not spoken


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong at an item (a word, a chunk of sound; counted from 0) of a stage, before it is given.

    `action`: raise, memory (MemoryError), request (RequestError), exit (of the process), hang (of the whole
    process) or stall (of this request). `when`: only in requests whose text contains it.
    """

    stage: str
    item: int
    action: str
    when: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """How the stages of a fake build behave. `log` is a file that gets a line `stage seed item` for each item."""

    step_seconds: float = 0.0
    load_seconds: float = 0.0
    load_failure: str = ""  # missing, raise or exit
    log: str | None = None
    faults: tuple[Fault, ...] = ()


def write(build: Path, content: manifest.Manifest, script: Script | None = None) -> Path:
    """Makes a build directory that fakes the pipeline of a manifest; returns it. Fakes need no models."""
    build.mkdir(parents=True, exist_ok=True)
    lock = Lock(__version__, content.target, None, (), {}, {}, {})
    (build / FILE).write_bytes(lock.dump())
    (build / "manifest.json").write_bytes(manifest.dump(replace(content, models=())))
    (build / "pipeline.py").write_text(
        "from omnic.runtime.fake import FakePipeline, Fault, Script\n\n\n"
        f"class {content.class_name}(FakePipeline):\n    script = {script or Script()!r}\n"
    )
    return build


class FakePipeline(Pipeline):
    """Offers every slice of its manifest: generate stages feed decode stages; denoise stages take it all."""

    script = Script()

    def __init__(self, build: Build) -> None:
        super().__init__(build)
        self.by_name = {s.name: self.add(_kind(s)(s.name, self.script)) for s in build.manifest.stages}

    def __getattr__(self, name: str) -> Callable[..., Flow]:
        for endpoint in self.build.manifest.endpoints:
            for slice_ in endpoint.slices:
                if slice_.method == name:
                    return lambda **arguments: self._run(slice_, arguments)
        raise AttributeError(name)

    def _run(self, slice_: Slice, arguments: dict[str, Any]) -> Flow:
        flow = Flow(arguments.pop("seed", None))
        kinds = {name: self.build.manifest.outputs[name].kind for name in slice_.outputs}
        spoken = arguments.get("text", arguments.get("prompt", ""))
        text: Channel[str] = flow.given(spoken, segmenter=_Words())
        for stage in (self.by_name[name] for name in slice_.stages):
            given = {"text": text} if isinstance(stage, FakeDecode) else {}
            running = stage.start(flow, **arguments | given)
            if isinstance(stage, FakeGenerate) and "audio" in kinds.values():
                text = running.out.channel(window=4)
            for name, kind in kinds.items():
                if kind == stage.makes:
                    flow.output(name, running.out)
        return flow


def _kind(stage: manifest.Stage) -> type[FakeStage]:
    from omnic.runtime.fake_visual import FakeFilm, FakePainter

    given = {type_.kind for type_ in stage.outputs.values()}
    if stage.kind == "denoise":
        return FakeFilm if "video" in given else FakePainter
    return FakeGenerate if stage.kind == "generate" else FakeDecode


class _Words:
    """Cuts a text that comes whole into words, each with the space before it."""

    def push(self, item: str) -> list[str]:
        return re.findall(r"\s*\S+", item)

    def flush(self) -> list[str]:
        return []


class FakeStage(ABC):
    """What both kinds share: loading, counting, and the time and faults of an item. The output port is `out`."""

    makes = ""  # the type of what it gives

    def __init__(self, name: str, script: Script) -> None:
        self.name, self.script = name, script
        self._requests = self._items = self._running = 0
        self._busy_seconds = 0.0

    def load(self, progress: Progress) -> None:
        for step in range(5):
            progress(self.name, 20 * step, 100)
            time.sleep(self.script.load_seconds / 5)
        match self.script.load_failure:
            case "missing":
                raise Missing(f"model of `{self.name}` is not here: pip install it")
            case "raise":
                raise ValueError(f"`{self.name}` does not load")
            case "exit":
                os._exit(3)
        progress(self.name, 100, 100)

    async def close(self) -> None:
        return

    def stats(self) -> dict[str, float]:
        return {
            "requests": self._requests,
            "items": self._items,
            "busy_seconds": self._busy_seconds,
            "running": self._running,
        }

    def start(self, flow: Flow, **inputs: Any) -> Running:
        port = Port()
        self._requests += 1
        self._running += 1
        flow.run(lambda: self.work(flow, port, inputs), self._let_go, self.name)
        return Running({"out": port})

    @abstractmethod
    async def work(self, flow: Flow, port: Port, inputs: dict[str, Any]) -> None: ...

    async def step(self, flow: Flow, port: Port, index: int, text: str) -> None:
        """Comes before each item: waits for credit and for the script's time, then fails if the script says so."""
        await port.room()
        await asyncio.sleep(self.script.step_seconds)
        self._busy_seconds += self.script.step_seconds
        for fault in self.script.faults:
            if (fault.stage, fault.item) == (self.name, index) and fault.when in text:
                await _strike(fault)
        self._items += 1
        if self.script.log:
            with Path(self.script.log).open("a") as file:
                file.write(f"{self.name} {flow.seed} {index}\n")

    def _let_go(self) -> None:
        self._running -= 1


class FakeGenerate(FakeStage):
    """Says the last message back, a word at a time."""

    makes = "text"

    async def work(self, flow: Flow, port: Port, inputs: dict[str, Any]) -> None:
        messages, max_tokens = inputs["messages"], inputs.get("max_tokens", 256)
        said = messages[-1]["content"]
        if said == ARGUMENTS:
            said = json.dumps({"seed": flow.seed, **{k: v for k, v in inputs.items() if k != "messages"}})
        words = [f"{' ' if i else ''}{word}" for i, word in enumerate(said.split(" "))]
        for index, word in enumerate(words[:max_tokens]):
            await self.step(flow, port, index, said)
            port.send(word)
        flow.report.finish_reason = "length" if len(words) > max_tokens else "stop"
        flow.report.prompt_tokens = sum(len(m["content"].split(" ")) for m in messages)
        flow.report.completion_tokens = min(len(words), max_tokens)
        port.close()


class FakeDecode(FakeStage):
    """Turns each unit of text that comes into a chunk of a steady tone, as long as the text is."""

    makes = "audio"

    async def work(self, flow: Flow, port: Port, inputs: dict[str, Any]) -> None:
        import numpy as np

        at = index = 0
        speed: float = inputs.get("speed", 1.0)
        async for unit in inputs["text"]:
            await self.step(flow, port, index, unit)
            samples = 0 if SILENT in unit else round(len(unit) * SAMPLES_PER_LETTER / speed)
            if samples:
                times = np.arange(at, at + samples) / RATE_HZ
                port.send((0.5 * np.sin(2 * np.pi * 220 * times)).astype(np.float32))
            at, index = at + samples, index + 1
        if not at:
            flow.note(port, "nothing in the text can be spoken")
        port.close()


async def _strike(fault: Fault) -> None:
    match fault.action:
        case "raise":
            raise ValueError(f"fault at item {fault.item} of `{fault.stage}`")
        case "memory":
            raise MemoryError
        case "request":
            raise RequestError("the prompt is too long", "messages", code="context_length_exceeded")
        case "exit":
            os._exit(1)
        case "hang":
            time.sleep(3600)
        case "stall":
            await asyncio.sleep(3600)
        case action:
            raise AssertionError(f"no fault `{action}`")
