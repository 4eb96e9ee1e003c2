"""Generated equals interpreted: random pipelines, run through the emitted method and through the reference."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnic.codegen.render import render
from omnic.codegen.views import module_view
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Binary, Literal, Name
from omnic.ir.pipeline import Channel, Endpoint, Input, Open, Output, Param, Pipeline, Setting, Slice, Stage
from omnic.runtime.edges import Channel as Edge
from omnic.runtime.edges import Port
from omnic.runtime.flow import Flow
from omnic.runtime.stage import Running

from .interpreter import interpret

TEXT = Type("text")
MODES = ("token", "word", "clause", "sentence", "whole")
WORDS = ("One", "two.", "Three,", "four!", "five\n", "Dr.", "3.14", "`six`", "seven;", "eight?")


def compute(stage: str, inputs: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, str]:
    """A stage whose output depends on every unit of every input and on every key."""
    seen = " ".join(f"{port}[{'|'.join(v) if isinstance(v, tuple) else v}]" for port, v in inputs.items())
    return {"out": f"{stage} says {seen} with {dict(keys)}. Then more, and more!"}


class Scripted:
    """A stage that reads its inputs to the end and gives what `compute` says, a few letters at a time."""

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        self.name = name

    def start(self, flow: Flow, **given: Any) -> Running:
        port = Port()

        async def work() -> None:
            inputs = {k: await self._units(v) if isinstance(v, Edge) else v for k, v in given.items() if k in PORTS}
            keys = {k: v for k, v in given.items() if k not in PORTS}
            text = compute(self.name, inputs, keys)["out"]
            for at in range(0, len(text), 5):
                port.send(text[at : at + 5])
                await asyncio.sleep(0)
            port.close()

        flow.run(work, lambda: None)
        return Running({"out": port})

    async def _units(self, channel: Edge[str]) -> tuple[str, ...]:
        units = [unit async for unit in channel]
        return tuple(units) if channel.segmenter else (("".join(units),) if units else ())


NAMES = (
    "think",
    "add",
    "build",
    "class",
    "seed",
    "in0",
    "flow",
    "answer.think",
    "stages",
    "draw",
    "max",
    "Flow",
    "VOLUME",
    "LOUD",
    "class_",
)
PORTS = tuple(f"in{i}" for i in range(3))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    inputs = tuple(
        Input(f"given{i}", Type("text", optional=draw(st.booleans()))) for i in range(draw(st.integers(1, 3)))
    )
    params = (Param("loud", Type("int"), 3, Range(1, 9)),)
    stages: list[Stage] = []
    channels: list[Channel] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)):
        wired: list[tuple[str, str]] = []
        for port in PORTS[: draw(st.integers(1, 3))]:
            source = draw(st.sampled_from([i.name for i in inputs] + [f"{s.name}.out" for s in stages]))
            if "." not in source and draw(st.booleans()):
                wired.append((port, source))
                continue
            how = (("stream", Setting(draw(st.sampled_from(MODES)))), ("window", Setting(draw(st.integers(1, 4)))))
            channels.append(Channel(f"c{len(channels)}", source, f"{name}.{port}", TEXT, how))
            wired.append((port, channels[-1].name))
        values = (
            5,
            Name(("loud",)),
            Binary("+", Name(("loud",)), Literal(1)),
            Open(f"pitch{len(stages)}", Type("int"), 2, Range(1, 9)),
        )
        keys = (("volume", Setting(draw(st.sampled_from(values)))),)
        optional = tuple(port for port, _ in wired if draw(st.booleans()))
        stages.append(Stage(name, "decode", "m", "speak", tuple(wired), (("out", TEXT),), optional, keys))
    outputs = tuple(
        Output(f"answer{i}", TEXT, f"{draw(st.sampled_from(stages)).name}.out") for i in range(draw(st.integers(1, 2)))
    )
    entry = draw(st.sampled_from([None, *(c.target for c in channels)]))
    kept = _reaching(stages, channels, [o.source.rpartition(".")[0] for o in outputs], entry)
    endpoint = Endpoint("chat.completions", entry, slices=(Slice(tuple(o.name for o in outputs), tuple(kept)),))
    return Pipeline("p", "cpu", (), inputs, params, (), tuple(stages), tuple(channels), outputs, (endpoint,))


def _reaching(stages: list[Stage], channels: list[Channel], wanted: list[str], entry: str | None) -> list[str]:
    source_of = {c.name: c.source for c in channels}
    todo, found = list(wanted), set[str]()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for port, source in next(s for s in stages if s.name == name).inputs:
            origin = source_of.get(source, source)
            if "." in origin and f"{name}.{port}" != entry:
                todo.append(origin.rpartition(".")[0])
    return [s.name for s in stages if s.name in found]


def load(text: str) -> types.ModuleType:
    module = types.ModuleType("generated_under_test")
    sys.modules[module.__name__] = module
    exec(compile(text, "pipeline.py", "exec"), module.__dict__)
    module.Decode = Scripted  # type: ignore[attr-defined]
    return module


class NoBuild:
    path = Path()

    def checkpoint(self, model: str) -> None: ...


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(), st.data())
def test_generated_equals_interpreted(pipeline: Pipeline, data: st.DataObject) -> None:
    view = module_view(pipeline, "p.omni", "0" * 64, "0")
    module = load(render("pipeline.py", view))
    (method,) = view.slices
    arguments: dict[str, Any] = {}
    for argument in method.arguments:
        if argument.annotation.startswith("str"):
            text = " ".join(data.draw(st.lists(st.sampled_from(WORDS), max_size=12)))
            arguments[argument.name] = None if "None" in argument.annotation and data.draw(st.booleans()) else text
        elif argument.name != "seed":
            arguments[argument.name] = data.draw(st.integers(1, 9))
    expected = interpret(pipeline, pipeline.endpoints[0], pipeline.endpoints[0].slices[0], arguments, compute)

    flow = getattr(module.P(NoBuild()), method.method)(**arguments)
    result = asyncio.run(flow.result())

    result.pop("finished")
    assert {k: v for k, v in result.items() if v is not None} == expected
