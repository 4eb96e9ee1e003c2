"""What the README shows is what there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from omnic.__main__ import run

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
ASSISTANT = ROOT / "pipelines/assistant.omni"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_the_pipeline_is_the_shipped_one() -> None:
    assert blocks("omni") == [ASSISTANT.read_text()]


def test_the_error_is_what_check_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("assistant.omni").write_text(ASSISTANT.read_text().replace("audio<24kHz>", "audio<16kHz>"))
    assert run(["check", "assistant.omni"]) == 1
    shown = next(block for block in blocks("") if block.startswith("error"))
    assert capsys.readouterr().out.startswith(shown)


def test_the_picture_is_what_graph_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "assistant.svg"
    assert run(["graph", str(ASSISTANT), "-o", str(drawn)]) == 0
    assert (ROOT / "docs/assistant.svg").read_text() == drawn.read_text(), (
        "draw it again: omnic graph pipelines/assistant.omni -o docs/assistant.svg"
    )


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("## From a symptom")[2].partition("## ")[0]
    named = re.findall(r"`([\w/.]+/[\w.]*)`", text)
    assert len(named) > 8
    assert [name for name in named if not (ROOT / "omnic" / name).exists()] == []


def test_every_route_is_in_the_page_on_serving() -> None:
    page = (ROOT / "docs/serving.md").read_text()
    routes = json.loads((ROOT / "tests/golden/assistant/openapi.json").read_text())["paths"]
    for path in (*routes, "/openapi.json", "/docs"):
        assert re.search(rf"`(GET|POST) {re.escape(path)}`", page), path


def test_every_command_is_in_the_command_reference() -> None:
    from tests.cli.test_help import COMMANDS

    text = (ROOT / "docs/cli.md").read_text()
    assert [name for name in COMMANDS if f"`omnic {name}" not in text] == []
