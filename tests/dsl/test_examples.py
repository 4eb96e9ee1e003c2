"""The example files: each parses, is formatted once, and checks, or says what omnic cannot do yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic import driver
from omnic.diagnostics import Sink, render
from omnic.dsl.check import Checked, check
from omnic.dsl.fmt import format
from omnic.dsl.parse import parse
from omnic.source import Source

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "tests/language/examples").glob("*.omni"))
SHIPPED = sorted((ROOT / "pipelines").glob("*.omni"))


def checked(path: Path, sink: Sink) -> Checked | None:
    file = parse(Source(str(path), path.read_text()), sink)
    assert file is not None, render(sink.diagnostics)
    return check(file, base=path.parent, sink=sink)


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_an_example_lacks_comes_later(path: Path) -> None:
    sink = Sink()
    checked(path, sink)
    assert {d.id for d in sink.diagnostics} <= {"not-supported-yet"}, render(sink.diagnostics)


def test_the_assistant_checks() -> None:
    for path in (ROOT / "tests/language/examples/assistant.omni", *SHIPPED):
        sink = Sink()
        assert checked(path, sink) is not None, render(sink.diagnostics)
        assert sink.diagnostics == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_formatted_once(path: Path) -> None:
    once = format(Source(str(path), path.read_text()), Sink())
    assert once is not None
    assert format(Source(str(path), once), Sink()) == once


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_ships_is_formatted(path: Path) -> None:
    assert format(Source(str(path), path.read_text()), Sink()) == path.read_text()


def test_a_video_from_a_picture_checks_but_for_its_deploy_block(tmp_path: Path) -> None:
    text = (ROOT / "tests/language/examples/wan22_i2v.omni").read_text()
    sink = Sink()
    checked(ROOT / "tests/language/examples/wan22_i2v.omni", sink)
    lines = {line for d in sink.diagnostics if d.primary for line in [d.primary.span.line]}
    assert lines == {next(i for i, line in enumerate(text.splitlines(), 1) if "high.offload" in line)}
    (tmp_path / "plain.omni").write_text(text.partition("deploy ")[0])
    found = Sink()
    front = driver.front(tmp_path / "plain.omni", found, target="gpu:h200")
    assert front is not None
    assert driver.plan(front, found) is not None, render(found.diagnostics)
