"""The way past typer and typer itself must read every command line alike."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnic.cli import app as commands
from omnic.cli import fast, language
from omnic.cli.fast import Call
from omnic.cli.options import COMMANDS, Command, Format
from omnic.diagnostics import FORMATS
from tests.cli.conftest import Omnic

WORDS = [
    "check", "fmt", "plan", "a.omni", "b.omni", "-", "--", "--check", "--format", "--format=json", "--format=yaml",
    "json", "concise", "--check=1", "--help", "-h", "--version", "", "--nope", "-x", "--format=", "=",
]  # fmt: skip


def by_typer(argv: list[str]) -> Call | None:
    """What typer makes of a command line: the functions are caught where both ways meet."""
    seen: list[Call] = []

    def check(files: list[str], form: str) -> int:
        seen.append(Call("check", tuple(files), (("--format", form),)))
        return 0

    def fmt(files: list[str], *, check: bool) -> int:
        seen.append(Call("fmt", tuple(files), (("--check", check),)))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language, "check", check)
        patch.setattr(language, "fmt", fmt)
        patch.setattr(commands.compiling, "planned_of", lambda *_, **__: pytest.fail("not a command of the fast path"))
        with contextlib.suppress(SystemExit):
            commands.app(argv, prog_name="omnic")
    return seen[0] if seen else None


def test_a_file_to_check() -> None:
    assert fast.parse(["check", "a.omni"]) == Call("check", ("a.omni",), (("--format", "full"),))


def test_options_stand_anywhere() -> None:
    expected = Call("check", ("a.omni", "b.omni"), (("--format", "json"),))
    assert fast.parse(["check", "a.omni", "--format", "json", "b.omni"]) == expected
    assert fast.parse(["check", "--format=json", "a.omni", "b.omni"]) == expected


def test_what_follows_two_dashes_is_a_file() -> None:
    assert fast.parse(["fmt", "--", "--check"]) == Call("fmt", ("--check",), (("--check", False),))


@pytest.mark.parametrize(
    "argv",
    [[], ["plan", "a.omni"], ["check"], ["check", "--help"], ["check", "--format", "yaml", "a.omni"], ["fmt", "-x"]],
)
def test_anything_else_is_left_to_typer(argv: list[str]) -> None:
    assert fast.parse(argv) is None


@given(st.lists(st.sampled_from(WORDS), max_size=5))
def test_both_ways_read_the_same(rest: list[str]) -> None:
    for command in ("check", "fmt"):
        argv = [command, *rest]
        if (call := fast.parse(argv)) is not None:
            assert by_typer(argv) == call


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_typer_shows_the_options_of_the_table(command: Command, omnic: Omnic) -> None:
    text = omnic(command.name, "--help").out
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
    assert shown == [*(o.name for o in command.options), "--help"]
    words = " ".join(text.split())
    for option in command.options:
        default = f" [default: {option.default}]" if option.default else ""
        assert f"{option.help}{default}" in words
        assert "|".join(option.choices) in text


def test_the_table_has_every_format_there_is() -> None:
    assert tuple(Format) == FORMATS


def test_every_command_of_the_table_is_fast() -> None:
    assert all(fast.parse([command.name, "a.omni"]) for command in COMMANDS)


def test_version(omnic: Omnic) -> None:
    from omnic import __version__

    assert omnic("--version") == (0, f"omnic {__version__}\n", "")
    assert omnic("--version", "--version").out == f"omnic {__version__}\n"  # typer's way
