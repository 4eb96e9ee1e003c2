"""A language model, an encoder and a painter on one device: one thread, fair turns."""

from __future__ import annotations

import asyncio
import threading
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.denoise import Denoise
from omnic.runtime.device import Device
from omnic.runtime.generate import Generate
from omnic.runtime.generate_steps import Step
from omnic.runtime.weights import Checkpoint
from tests.runtime import painting, talking
from tests.runtime.painting import Sketch, begun, painted
from tests.runtime.talking import PARROT, Parrot, ask, parrot

__all__ = ["parrot"]  # a fixture

SKETCH = Checkpoint(Model("painter", "random", "sketch", "sketch", "random", {}), None)


def test_neither_waits_for_more_than_a_step_of_the_other(parrot: Parrot, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    threads: set[str] = set()

    def paints(name: str, jobs: int) -> None:
        time.sleep(0.005)
        order.append("paint")
        threads.add(threading.current_thread().name)

    def talks(step: Step) -> None:
        time.sleep(0.001)
        order.append("talk")
        threads.add(threading.current_thread().name)

    models = {"parrot": parrot, "sketch": Sketch()}
    monkeypatch.setattr(families, "load", lambda name: SimpleNamespace(load=lambda *_: models[name]))
    device = Device("cpu", threads=1)
    think = Generate("think", PARROT, device, **talking.SETTINGS, sample=talking.sample, hook=talks)
    paint = Denoise("paint", SKETCH, device, **painting.SETTINGS, hook=paints)
    for stage in (think, paint):
        stage.load(lambda name, done, total: None)

    async def both() -> str:
        pictures = [painted(begun(paint, seed=seed, steps=60, side=side)) for seed, side in ((1, 4), (2, 8), (3, 4))]
        said, *_ = await asyncio.gather(ask(think, "one two three four five six", max_tokens=99), *pictures)
        return said.text

    try:
        assert asyncio.run(both()) == "one two three four five six"
    finally:
        asyncio.run(think.close())
        asyncio.run(paint.close())
        device.close()
    assert threads == {"omnic cpu"}
    first = next(i for i in range(1, len(order)) if {"talk", "paint"} == set(order[i - 1 : i + 1]))
    last = len(order) - 1 - order[::-1].index("talk")
    together = order[first:last]
    assert together.count("talk") >= 8
    assert all(a != b for a, b in pairwise(together)), "turn by turn"
