"""The passes by example: each `*.md` beside this file gives a pipeline, the passes to run, and what comes out.

Regenerate what comes out with `python -m tests.passes.test_literate`, then read the difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnic import target
from omnic.catalog.part import Model, Part
from omnic.catalog.resolve import ModelSource, python_part, resolve, standard_part
from omnic.diagnostics import Sink, render
from omnic.ir.pipeline import Pipeline, Stage
from omnic.ir.text import dump, parse
from omnic.ir.verify import verify
from omnic.passes import Context, parse_spec, run

HERE = Path(__file__).parent
_CASE = re.compile(
    r"^## (?P<title>.+?)\n(?P<prose>.*?)^```ir (?P<passes>\S+)(?: on (?P<target>[^\n]+))?\n(?P<source>.*?)^```\n+"
    r"^```(?P<kind>ir|text)\n(?P<result>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    passes: str
    target: str
    source: str
    kind: str
    result: str


def cases(file: Path) -> list[Case]:
    text = file.read_text()
    found = [_case(file.name, m) for m in _CASE.finditer(text)]
    assert len(found) == len(re.findall(r"^##+ ", text, re.MULTILINE)), f"{file.name}: a heading without a case"
    return found


def _case(file: str, m: re.Match[str]) -> Case:
    return Case(file, m["title"], m["passes"], m["target"] or "cpu", m["source"], m["kind"], m["result"])


def parts_of(pipeline: Pipeline) -> tuple[dict[str, Model], dict[str, Part]]:
    """Models and parts of a pipeline read from text, by what it says they are."""
    models = {m.name: resolve(ModelSource.parse(m.source), HERE) for m in pipeline.models}
    return models, {s.name: _part(s, models) for s in pipeline.stages}


def _part(stage: Stage, models: dict[str, Model]) -> Part:
    if stage.model is not None:
        return models[stage.model].parts[stage.part]
    if (found := standard_part(stage.part)) is not None:
        return found
    file, _, function = stage.part.partition(":")
    types = {port: next(iter(dict(stage.outputs).values())) for port, _ in stage.inputs}
    return python_part(file, function, types.items(), stage.outputs, base=HERE)


def outcome(case: Case) -> tuple[str, str]:
    """`ir` and the pipeline after the passes, or `text` and what the user is told."""
    pipeline, sink = parse(case.source), Sink()
    assert verify(pipeline) == []
    models, parts = parts_of(pipeline)
    made = target.load(case.target if case.target.count(".json") == 0 else str(HERE / "targets" / case.target))
    result = run(parse_spec(case.passes), pipeline, Context(made, models, parts, sink))
    if sink.diagnostics:
        return "text", render(sink.diagnostics, "full")
    assert parse(dump(result)) == result
    return "ir", dump(result)


ALL = [case for file in sorted(HERE.glob("*.md")) for case in cases(file)]


@pytest.mark.parametrize("case", ALL, ids=lambda c: f"{c.file.removesuffix('.md')}: {c.title}")
def test_case(case):
    assert outcome(case) == (case.kind, case.result)


def regenerate() -> None:
    for file in sorted(HERE.glob("*.md")):

        def renewed(m: re.Match[str], name: str = file.name) -> str:
            kind, result = outcome(_case(name, m))
            return f"{m[0][: m.start('kind') - m.start()]}{kind}\n{result}```"

        file.write_text(_CASE.sub(renewed, file.read_text()))


if __name__ == "__main__":
    regenerate()
