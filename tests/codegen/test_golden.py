"""What codegen emits, byte for byte, and that it is code we would sign."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omnic import driver, manifest
from omnic.diagnostics import Sink, render
from tests.codegen import crowded

from .golden import GOLDEN, ROOT, SOURCES, emitted


@pytest.mark.parametrize("name", SOURCES)
def test_the_committed_build_is_what_is_emitted(name: str) -> None:
    files = emitted(name)
    committed = {
        str(p.relative_to(GOLDEN / name)): p.read_bytes()
        for p in (GOLDEN / name).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert committed.keys() == files.keys(), "python -m tests.codegen.golden"
    for path, content in files.items():
        assert committed[path].decode() == content.decode(), f"{path}: python -m tests.codegen.golden"


@pytest.mark.parametrize("name", SOURCES)
def test_the_manifest_reads_back_as_it_was_written(name: str) -> None:
    data = (GOLDEN / name / "manifest.json").read_bytes()
    assert manifest.dump(manifest.load(data)) == data


@pytest.mark.parametrize("tool", ["ruff format", "ruff check", "mypy"])
def test_generated_code_needs_no_suppressions(tool: str, tmp_path: Path) -> None:
    """As in a directory of its own, where omnic is a library; also where nothing fits on a line."""
    commands = {
        "ruff format": ["ruff", "format", "--isolated", "--check", "--line-length", "120"],
        "ruff check": [
            "ruff",
            "check",
            "--isolated",
            "--line-length",
            "120",
            "--select",
            "E,F,I,W,B,UP,SIM,RUF",
        ],
        "mypy": ["mypy", "--strict", "--follow-imports=silent", "--config-file="],
    }
    for name in SOURCES:
        shutil.copytree(GOLDEN / name, tmp_path / name)
    built(crowded.write(tmp_path / "source"), tmp_path / "crowded")
    files = [tmp_path / name / file for name in (*SOURCES, "crowded") for file in ("pipeline.py", "server.py")]
    assert not any("noqa" in f.read_text() or "type: ignore" in f.read_text() for f in files)
    batches = (
        [[str(f)] for f in files] if tool == "mypy" else [[*map(str, files)]]
    )  # modules of one name, one at a time
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    for batch in batches:
        command = [sys.executable, "-m", *commands[tool], *batch]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def built(source: Path, out: Path) -> driver.BuildResult:
    sink = Sink()
    result = driver.build(source, out, sink)
    assert result is not None, render(sink.diagnostics)
    return result


def test_python_files_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    built(crowded.write(tmp_path / "source"), tmp_path / "out")
    kept = {path.name: path.read_text() for path in (tmp_path / "out/python").iterdir()}
    assert kept == {"glue.py": crowded.FILES["one/glue.py"], "glue_2.py": crowded.FILES["two/glue.py"]}


def test_a_stage_runs_where_all_that_it_needs_is_there(tmp_path: Path) -> None:
    """`shout` hangs on `compose`, and that on inputs a request need not bring."""
    built(crowded.write(tmp_path / "source"), tmp_path / "out")
    text = (tmp_path / "out/pipeline.py").read_text()
    assert "if compose is not None:\n            c1 = compose.text.channel(" in text


def test_every_stage_names_its_line_of_source() -> None:
    text = (GOLDEN / "assistant" / "pipeline.py").read_text()
    lines = SOURCES["assistant"].read_text().splitlines()
    for stage in ("think", "speak"):
        number = next(i for i, line in enumerate(lines, 1) if line.strip().startswith(f"stage {stage} "))
        assert f"# assistant.omni:{number}  stage {stage} = " in text


def test_no_path_of_this_machine_is_in_a_build() -> None:
    for name in SOURCES:
        for path, content in emitted(name).items():
            assert str(ROOT).encode() not in content, path
            assert str(Path.home()).encode() not in content, path
