"""Diagnostics: how they are gathered, printed and what they suggest."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from omnic.diagnostics import Label, Sink, render
from omnic.source import Source, Span
from omnic.spelling import nearest

SOURCE = Source("voice.omni", "pipeline voice {\n  stage think = omni.thinker\n  think.hiden -> talk.hidden\n}\n")


def span(text: str, source: Source = SOURCE, occurrence: int = 1) -> Span:
    start = -1
    for _ in range(occurrence):
        start = source.text.index(text, start + 1)
    return Span(source, start, start + len(text))


@pytest.fixture
def unknown_port() -> Sink:
    sink = Sink()
    sink.error(
        "unknown-port",
        "stage `think` has no port `hiden`",
        span("hiden"),
        "did you mean `hidden`?",
        secondary=[Label(span("think"), "`think` produces `text`, `hidden`")],
        help=["write `think.hidden`"],
    )
    return sink


def test_full_shows_the_lines_and_marks_what_is_meant(unknown_port: Sink) -> None:
    assert render(unknown_port.diagnostics) == (
        "error[unknown-port]: stage `think` has no port `hiden`\n"
        " --> voice.omni:3:9\n"
        "  |\n"
        "2 |   stage think = omni.thinker\n"
        "  |         ----- `think` produces `text`, `hidden`\n"
        "3 |   think.hiden -> talk.hidden\n"
        "  |         ^^^^^ did you mean `hidden`?\n"
        "  = help: write `think.hidden`\n"
    )


def test_concise_is_one_line_that_stands_alone(unknown_port: Sink) -> None:
    expected = "voice.omni:3:9: error[unknown-port]: stage `think` has no port `hiden`\n"
    assert render(unknown_port.diagnostics, "concise") == expected


def test_json_holds_everything_that_full_shows(unknown_port: Sink) -> None:
    (record,) = json.loads(render(unknown_port.diagnostics, "json"))
    assert record["id"] == "unknown-port"
    assert record["severity"] == "error"
    assert record["primary"]["start"] == {"line": 3, "column": 9}
    assert record["primary"]["end"] == {"line": 3, "column": 14}
    assert record["secondary"][0]["text"] == "`think` produces `text`, `hidden`"
    assert record["help"] == ["write `think.hidden`"]
    assert render([], "json") == "[]\n"


def test_github_is_a_workflow_command_with_its_specials_escaped() -> None:
    sink = Sink()
    sink.warning("odd", "100% odd", span("think", Source("a,b:c.omni", "think")), "here", notes=["so\nit is"])
    assert render(sink.diagnostics, "github") == (
        "::warning file=a%2Cb%3Ac.omni,line=1,endLine=1,col=1,endColumn=6,title=odd"
        "::100%25 odd%0Ahere%0Anote: so%0Ait is\n"
    )


def test_diagnostics_come_out_in_order_of_source() -> None:
    sink = Sink()
    sink.error("second", "later in the file", span("think", occurrence=2))
    sink.error("first", "earlier in the file", span("voice"))
    assert [line.split()[1] for line in render(sink.diagnostics, "concise").splitlines()] == [
        "error[first]:",
        "error[second]:",
    ]


def test_the_same_complaint_about_the_same_place_is_kept_once() -> None:
    sink = Sink()
    for _ in range(2):
        sink.error("twice", "said again", span("voice"))
    assert len(sink.diagnostics) == 1


def test_only_errors_count_as_errors() -> None:
    sink = Sink()
    sink.warning("odd", "a doubt", span("voice"))
    assert not sink.has_errors
    sink.error("wrong", "a mistake", span("voice"))
    assert sink.has_errors


def test_labels_in_another_file_get_a_section_of_their_own() -> None:
    other = Source("other.omni", "pipeline other {}\n")
    sink = Sink()
    sink.error("taken", "`voice` is taken", span("voice"), secondary=[Label(span("other", other), "by this")])
    assert render(sink.diagnostics) == (
        "error[taken]: `voice` is taken\n"
        " --> voice.omni:1:10\n"
        "  |\n"
        "1 | pipeline voice {\n"
        "  |          ^^^^^\n"
        " ::: other.omni:1:10\n"
        "  |\n"
        "1 | pipeline other {}\n"
        "  |          ----- by this\n"
    )


@pytest.mark.parametrize(
    ("line", "word", "underline"),
    [
        ("\tx = y", "x", "  |     ^"),
        ("語 = wrong", "wrong", "  |      ^^^^^"),
        ("a\x1b[31m = z", "z", "  |          ^"),
    ],
)
def test_marks_stand_under_their_text_whatever_the_line_holds(line: str, word: str, underline: str) -> None:
    source = Source("odd.omni", line)
    sink = Sink()
    sink.error("here", "here", span(word, source))
    shown = render(sink.diagnostics)
    assert shown.splitlines()[4] == underline
    assert "\x1b" not in shown


def test_a_place_between_characters_gets_one_mark() -> None:
    source = Source("end.omni", "model lm =")
    sink = Sink()
    sink.error("syntax", "expected a value", Span(source, 10, 10))
    assert render(sink.diagnostics).splitlines()[4] == "  |           ^"


def test_colour_only_adds_escapes(unknown_port: Sink) -> None:
    import re

    coloured = render(unknown_port.diagnostics, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(unknown_port.diagnostics)


def test_what_is_quoted_cannot_move_the_cursor() -> None:
    sink = Sink()
    sink.error("odd", "no model `\x1b[2Jlm\nerror: no`", span("think"), "a\rb", notes=["two\nlines\x07"])
    full, concise, github = (render(sink.diagnostics, name) for name in ("full", "concise", "github"))
    for text in (full, concise, github):
        assert not {"\x1b", "\r", "\x07"} & set(text)
    assert len(concise.splitlines()) == 1
    assert "two\n          lines" in full


def test_a_diagnostic_without_a_source_is_its_headline() -> None:
    sink = Sink()
    sink.error("no-device", "the target has no device", help=["give it one"])
    assert render(sink.diagnostics) == "error[no-device]: the target has no device\n  = help: give it one\n"
    assert render(sink.diagnostics, "concise") == "error[no-device]: the target has no device\n"
    assert (
        render(sink.diagnostics, "github") == "::error title=no-device::the target has no device%0Ahelp: give it one\n"
    )


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("hiden", "hidden"),  # one letter dropped
        ("hdiden", "hidden"),  # two swapped
        ("Hidden", "hidden"),  # another case
        ("max_tokns", "max_tokens"),
        ("tenser_paralel", "tensor_parallel"),  # two of fourteen
        ("tnsr_parallel_x", "tensor_parallel"),  # a third of a long word
        ("hid", None),  # half of the word is missing
        ("x", None),  # anything would be as near
        ("zebra", None),
    ],
)
def test_suggestions_are_slips_of_a_key(word: str, found: str | None) -> None:
    assert nearest(word, ["text", "hidden", "max_tokens", "tensor_parallel"]) == found


def test_printing_needs_no_library() -> None:
    code = (
        "import sys, omnic.diagnostics; print(sorted({'rich', 'typer', 'json', 'lark', 'msgspec'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
