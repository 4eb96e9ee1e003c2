"""Any file that holds up goes through the formatter and the IR and back; no file at all makes omnic raise."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omnic.diagnostics import FORMATS, Sink, render
from omnic.dsl.check import Checked, check
from omnic.dsl.fmt import format
from omnic.dsl.lower import lower
from omnic.dsl.parse import parse
from omnic.ir.pipeline import Pipeline
from omnic.ir.text import dump
from omnic.ir.text import parse as parse_ir
from omnic.ir.verify import verify
from omnic.source import Source
from tests.dsl.strategies import damaged, files
from tests.language.cases import pages
from tests.language.catalog import resolve

EXAMPLES = [path.read_text() for path in sorted((Path(__file__).parent.parent / "language/examples").glob("*.omni"))]
CASES = [text for page in pages() for text in re.findall(r"^```omni\n(.*?)^```", page.read_text(), re.M | re.S)]
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def checked(text: str, sink: Sink) -> Checked | None:
    file = parse(Source("any.omni", text), sink)
    return file and check(file, base=Path("/nowhere"), resolve=resolve, sink=sink)


def lowered(text: str) -> list[Pipeline]:
    """Every pipeline of a file that holds up, and every way to deploy it."""
    sink = Sink()
    found = checked(text, sink)
    assert found is not None, render(sink.diagnostics)
    made = [lower(found, name, None, (), sink) for name in found.pipelines]
    made += [lower(found, deploy.pipeline, name, (), sink) for name, deploy in found.deploys.items()]
    assert not sink.has_errors
    return [one.pipeline for one in made if one is not None]


@SLOW
@given(files())
def test_formatting_keeps_the_meaning_and_is_done_once(text: str) -> None:
    formatted = format(Source("any.omni", text), Sink())
    assert formatted is not None
    assert format(Source("any.omni", formatted), Sink()) == formatted
    assert lowered(formatted) == lowered(text)


@SLOW
@given(files())
def test_formatting_keeps_every_comment(text: str) -> None:
    formatted = format(Source("any.omni", text), Sink())
    assert formatted is not None
    assert formatted.count("#") == text.count("#")


@SLOW
@given(files())
def test_what_is_lowered_is_sound_and_prints_what_parses(text: str) -> None:
    for pipeline in lowered(text):
        assert verify(pipeline) == []
        assert parse_ir(dump(pipeline)) == pipeline


@settings(SLOW, max_examples=300)
@given(damaged(st.one_of(st.sampled_from(EXAMPLES), st.sampled_from(CASES), files())))
@example("pipeline a { model m = pypi()\nrequire max() > 0 }\ndeploy d { target = cpu() }")
@example("pipeline a { require " + "(" * 400 + "1" + ")" * 400 + " > 0 }")
@example("pipeline a { require " + "not " * 400 + "true }")
@example("pipeline a { require 1" + " + 1" * 5000 + " > 0 }")
@example("pipeline a { input x: " + "video<1fps, " * 300 + "text" + ">" * 300 + " }")
@example("pipeline a { require 1" + "0" * 5000 + " > 0 }")
@example("pipeline a { require ceil(1e300 * 1e300) > 0\nparam x: float = 1e300 * 1e300 }")
@example("\x00")
def test_a_damaged_file_is_told_where_it_is_wrong(text: str) -> None:
    sink = Sink()
    found = checked(text, sink)
    assert (found is None) == sink.has_errors
    for name in found.pipelines if found else ():
        made = lower(found, name, None, (), sink)
        assert made is None or verify(made.pipeline) == []
    for diagnostic in sink.diagnostics:
        assert diagnostic.primary is not None
        for label in (diagnostic.primary, *diagnostic.secondary):
            assert 0 <= label.span.start <= label.span.end <= len(label.span.source.text)
    for name in FORMATS:
        assert all(line.isprintable() for line in render(sink.diagnostics, name).split("\n"))


@settings(SLOW, max_examples=100)
@given(damaged(st.one_of(st.sampled_from(EXAMPLES), files())))
def test_a_damaged_file_is_formatted_once_or_not_at_all(text: str) -> None:
    formatted = format(Source("any.omni", text), Sink())
    if formatted is not None:
        assert format(Source("any.omni", formatted), Sink()) == formatted


@SLOW
@given(st.sampled_from(EXAMPLES))
def test_the_examples_are_formatted_once(text: str) -> None:
    formatted = format(Source("any.omni", text), Sink())
    assert formatted is not None
    assert format(Source("any.omni", formatted), Sink()) == formatted
