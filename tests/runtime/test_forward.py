"""Stages of one forward a request: what they are given, what they give."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask
from omnic.runtime.edges import Port
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Flow
from omnic.runtime.forward import Forward
from omnic.runtime.weights import Checkpoint


class Echo:
    """Satisfies `diffusion.Transform`: gives what it was asked."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, ask: Ask) -> Mapping[str, Any]:
        self.asks.append(ask)
        self.gate.wait()
        match ask.inputs["text"]:
            case "too long":
                raise RequestError("the text is too long", "prompt")
            case "broken":
                raise ValueError("no ink")
        return {"embeds": ask}


@contextmanager
def loaded(monkeypatch: pytest.MonkeyPatch, echo: Echo) -> Iterator[Forward]:
    monkeypatch.setattr(families, "load", lambda family: SimpleNamespace(load=lambda *_: echo))
    device = Device("cpu", threads=1)
    stage = Forward(
        "read", Checkpoint(Model("words", "random", "echo", "echo", "random", {}), None), device, part="encode",
        dtype="float32", inputs=("text", "negative"), outputs=("embeds",),
    )  # fmt: skip
    stage.load(lambda name, done, total: None)
    yield stage
    asyncio.run(stage.close())
    device.close()


def ask(stage: Forward, seed: int = 0, **given: Any) -> Ask:
    flow = Flow(seed)
    flow.output("embeds", stage.start(flow, **given).embeds)
    found: Ask = asyncio.run(flow.result())["embeds"]
    return found


def test_ports_are_inputs_and_the_rest_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded(monkeypatch, Echo()) as stage:
        found = ask(stage, seed=7, text="a", strength=0.5)
    assert (found.seed, found.inputs, found.settings) == (7, {"text": "a", "negative": None}, {"strength": 0.5})


def test_text_that_comes_in_pieces_is_joined_and_a_port_without_items_gives_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(stage: Forward) -> Ask:
        flow = Flow(0)
        words, nothing = Port(), Port()
        running = stage.start(flow, text=words.channel(8), negative=nothing.channel(8))
        flow.output("embeds", running.embeds)
        task = asyncio.create_task(flow.result())
        for word in ("one ", "two ", "three"):
            await asyncio.sleep(0)
            words.send(word)
        words.close()
        nothing.close()
        found: Ask = (await task)["embeds"]
        return found

    with loaded(monkeypatch, Echo()) as stage:
        assert asyncio.run(run(stage)).inputs == {"text": "one two three", "negative": None}


def test_a_port_that_takes_one_value_takes_no_two(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(stage: Forward) -> None:
        flow = Flow(0)
        pictures = Port()
        flow.output("embeds", stage.start(flow, text=pictures.channel(8)).embeds)
        task = asyncio.create_task(flow.result())
        await asyncio.sleep(0)
        pictures.send(1)
        pictures.send(2)
        pictures.close()
        await task

    with loaded(monkeypatch, Echo()) as stage, pytest.raises(StageFailed, match="takes one value got 2"):
        asyncio.run(run(stage))


def test_a_refusal_names_its_field_and_a_fault_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded(monkeypatch, Echo()) as stage:
        with pytest.raises(RequestError) as refused:
            ask(stage, text="too long")
        assert refused.value.field == "prompt"
        with pytest.raises(StageFailed, match="stage `read` failed: ValueError: no ink"):
            ask(stage, text="broken")
        assert ask(stage, text="fine").inputs["text"] == "fine"
        assert stage.stats()["requests"] == 1


def test_a_request_that_is_cancelled_in_line_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    echo.gate.clear()

    async def run(stage: Forward) -> None:
        first, second = Flow(1), Flow(2)
        for flow in (first, second):
            flow.output("embeds", stage.start(flow, text="a").embeds)
        tasks = [asyncio.create_task(flow.result()) for flow in (first, second)]
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(Cancelled):
            await tasks[1]
        echo.gate.set()
        await tasks[0]

    with loaded(monkeypatch, echo) as stage:
        asyncio.run(run(stage))
        assert [one.seed for one in echo.asks] == [1]
        assert ask(stage, text="b").inputs["text"] == "b"
