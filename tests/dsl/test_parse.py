"""The parser: what a syntax error says, and that reading goes on behind it."""

from __future__ import annotations

import re

import pytest

from omnic.diagnostics import Diagnostic, Sink, render
from omnic.dsl import ast
from omnic.dsl.parse import parse
from omnic.dsl.tables import parser
from omnic.expr import Binary, Literal, Name, Unary, evaluate
from omnic.source import Source


def read(text: str) -> ast.File:
    sink = Sink()
    file = parse(Source("a.omni", text), sink)
    assert file is not None, render(sink.diagnostics)
    return file


def mistakes(text: str) -> tuple[Diagnostic, ...]:
    sink = Sink()
    assert parse(Source("a.omni", text), sink) is None
    return sink.diagnostics


def lines(text: str) -> list[int]:
    """The lines that errors point at."""
    return [d.primary.span.line for d in mistakes(text) if d.primary]


def rule(text: str) -> ast.Require:
    (pipeline,) = read(f"pipeline p {{ require {text} }}").items
    assert isinstance(pipeline, ast.Pipeline)
    (item,) = pipeline.items
    assert isinstance(item, ast.Require)
    return item


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_file_is_its_items_in_order() -> None:
    file = read('edition 1\nimport "b.omni" as b\npipeline p {}\ndeploy d for p {}\n')
    assert [type(item).__name__ for item in file.items] == ["Edition", "Import", "Pipeline", "Deploy"]


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "\ufeff\r\n  # one\r\n\t\n# two"])
def test_a_file_may_hold_nothing(text: str) -> None:
    assert read(text).items == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n\t\n", " # why\n"])
def test_line_ends_and_blanks_have_no_meaning(end: str) -> None:
    text = end.join(("pipeline p {", "\tinput a: text", "output b: text", "  a -> b", "}"))
    (pipeline,) = read(text).items
    assert isinstance(pipeline, ast.Pipeline)
    assert [type(item).__name__ for item in pipeline.items] == ["Input", "Output", "Edge"]


def test_every_record_knows_where_it_stands() -> None:
    text = "pipeline p {\n  stage think = lm.generate { k = 1 + 2 }  # why\n}\n"
    (pipeline,) = read(text).items
    assert isinstance(pipeline, ast.Pipeline)
    (stage,) = pipeline.items
    assert isinstance(stage, ast.Stage)
    assert stage.block is not None
    assert pipeline.span.text == text.rstrip()
    assert stage.span.text == "stage think = lm.generate { k = 1 + 2 }"
    assert stage.name.span.text == "think"
    assert stage.block.span.text == "{ k = 1 + 2 }"
    assert stage.block.settings[0].value.span.text == "1 + 2"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 - 3 - 4", -5),
        ("- 2 * 3", -6),
        ("7 / 2 + 1", 4.5),
        ("not 1 == 2", True),
        ("not (1 == 2) and 3 < 2", False),
        ("1 < 2 or 1 < 2 and 2 < 1", True),
        ("-(1 - 3)", 2),
    ],
)
def test_operators_bind_as_in_expressions_everywhere(text: str, value: object) -> None:
    assert evaluate(rule(text).rule, {}) == value


def test_signs_of_numbers_belong_to_them() -> None:
    assert rule("-1").rule == Literal(-1)
    assert rule("-a").rule == Unary("-", Name(("a",)))
    assert rule("a - 1").rule == Binary("-", Name(("a",)), Literal(1))


# --- what is wrong ----------------------------------------------------------------------------------------------------

BROKEN = [
    "pipeline",
    "pipeline p",
    "pipeline p {",
    "pipeline p }",
    "pipeline 3 {}",
    "pipeline p {} pipeline q {}",
    "import file.omni",
    "edition one",
    "deploy d for {}",
    "pipeline p { model lm }",
    "pipeline p { model lm = }",
    'pipeline p { model lm = pypi("x" }',
    "pipeline p { input a }",
    "pipeline p { input a: }",
    "pipeline p { input a: chat<text }",
    "pipeline p { input a: chat<text,> > }",
    "pipeline p { param a: int = 1 in }",
    "pipeline p { param a: int = 1 in 1.. }",
    "pipeline p { param a: int = 1 in [1, }",
    "pipeline p { require a < }",
    "pipeline p { require a <> b }",
    "pipeline p { stage a = b.c { k } }",
    "pipeline p { stage a = b.c { k = 1; j = 2 } }",
    'pipeline p { stage a = python("f.py:g", fn(a) -> (b: text)) }',
    "pipeline p { a -> }",
    "pipeline p { a -> b -> c }",
    "pipeline p { a -- b }",
    "pipeline p { serve }",
    "pipeline p { serve a.b,, c.d }",
    "pipeline p { \x00 }",
    "pipeline p { input a: text @ 3 }",
]


@pytest.mark.parametrize("text", BROKEN)
def test_an_error_shows_its_place_and_what_may_stand_there(text: str) -> None:
    sink = Sink()
    assert parse(Source("a.omni", text), sink) is None
    shown = render(sink.diagnostics)
    assert re.search(r"^ +--> a\.omni:\d+:\d+$", shown, re.MULTILINE)
    assert re.search(r"^ +\| +\^", shown, re.MULTILINE)
    internal = {t.name for t in parser().terminals} | {"$END", "_NL", "__ANON"}
    words = set(re.findall(r"[A-Z_$][A-Z_0-9]+", "".join(d.headline + "".join(d.notes) for d in sink.diagnostics)))
    assert not words & internal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pipeline p { model lm pypi }", "expected `=`, found `pypi`"),
        ("pipeline p { input a text }", "expected `:`, found `text`"),
        ("pipeline p { stage a = }", "expected a value, found `}`"),
        ("pipeline p { stage a =\n}", "expected a value, found the end of the line"),
        ("pipeline {}", "expected a name, found `{`"),
        ("pipeline p", "expected `{`, found the end of the file"),
        ('import "a.omni" b', "expected `as`, the end of the file or the end of the line, found `b`"),
        ("pipeline p { serve a.b { c 3 } }", "expected `.` or `=`, found `3`"),
    ],
)
def test_what_is_expected_is_what_one_would_write(text: str, expected: str) -> None:
    assert [d.headline for d in mistakes(text)] == [expected]


def test_every_statement_with_a_mistake_is_told() -> None:
    assert lines("pipeline p {\n  input a\n  input b: text\n  a ->\n  output\n}\npipeline q {\n  stage\n}\n") == [
        2,
        4,
        5,
        8,
    ]


def test_every_setting_with_a_mistake_is_told() -> None:
    assert lines("pipeline p {\n  stage a = b.c {\n    k\n    l = 1\n    m = ,\n    n = 2 3\n  }\n  a.b -> }\n") == [
        3,
        5,
        6,
        8,
    ]


def test_an_error_inside_brackets_does_not_spill_over() -> None:
    text = "pipeline p {\n  model a = random(\n    3 4,\n    seed = 1,\n  )\n  input b text\n}\n"
    assert lines(text) == [3, 6]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pipeline p {\n  model a = pypi(\n  input b: text\n}\n", 2),
        ("pipeline p {\n  model a = random(\n    1,\n  input b: text\n}\n", 3),
        ("pipeline p {\n  stage a = b.c { k = [1, 2\n  a.b -> c\n}\n", 2),
        ("pipeline p {\n  stage a = b.c { k = 1\n  a.b -> c\n}\n", 2),
        ("pipeline p {\n  input a: text\n\npipeline q {\n}\n", 2),
        ("pipeline p {\n  input a: chat<text\n  output b: text\n}\n", 2),
        ("pipeline p {\n  stage a = b.c }\n  a.b -> c\n}\n", 2),
        ("pipeline p {\n  serve a.b,\n}\n", 2),
        ("pipeline p {\n  stage a =\n\n  a.b -> c\n}\n", 2),
        ('pipeline p {\n  model a = pypi("x)\n  a.b -> c\n}\n', 2),
    ],
)
def test_an_error_is_told_where_it_was_made(text: str, line: int) -> None:
    assert lines(text) == [line]


def test_after_so_many_errors_the_rest_waits() -> None:
    assert len(mistakes("pipeline p {\n" + "  input\n" * 100 + "}\n")) == 30
