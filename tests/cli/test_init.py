"""`omnic init` writes a project that can be built on, and never over one."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.cli.starting import Template
from tests.cli.conftest import Omnic

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("template", Template)
def test_what_it_writes_checks_clean_and_is_formatted(template: Template, tmp_path: Path, omnic: Omnic) -> None:
    assert omnic("init", template, "--into", tmp_path / "new").status == 0
    files = sorted((tmp_path / "new").rglob("*.omni"))
    assert files
    assert omnic("check", "--format", "concise", *files) == (0, "", "")
    assert omnic("fmt", "--check", *files).status == 0


def test_the_assistant_is_the_shipped_pipeline(tmp_path: Path, omnic: Omnic) -> None:
    omnic("init", "--into", tmp_path)
    assert (tmp_path / "assistant.omni").read_text() == (ROOT / "pipelines/assistant.omni").read_text()


def test_files_that_exist_are_left_alone(tmp_path: Path, omnic: Omnic) -> None:
    (tmp_path / "spell.py").write_text("mine")
    done = omnic("init", "python-stage", "--into", tmp_path)
    assert (done.status, done.err) == (1, f"omnic: nothing written: {tmp_path / 'spell.py'} already there\n")
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"spell.py": "mine"}


def test_a_directory_that_is_a_file(tmp_path: Path, omnic: Omnic) -> None:
    (tmp_path / "new").write_text("mine")
    done = omnic("init", "--into", tmp_path / "new")
    assert (done.status, done.out) == (2, "")
    assert "is a file" in done.err


def test_the_run_it_suggests_is_one_the_pipeline_takes(tmp_path: Path, omnic: Omnic) -> None:
    done = omnic("init", "speech", "--into", tmp_path)
    assert f"omnic run {tmp_path}/speech.omni --in text=" in done.out
