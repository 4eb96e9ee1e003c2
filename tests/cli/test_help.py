"""Help texts teach: each command says what it does and shows command lines that are right."""

from __future__ import annotations

import re
import shlex

import pytest

from omnic.cli import later
from tests.cli.conftest import Omnic

COMMANDS = (
    "init",
    "check",
    "fmt",
    "plan",
    "opt",
    "build",
    "run",
    "serve",
    "graph",
    "chat",
    "models",
    "targets",
    "doctor",
)
PARTS = ("cache ls", "cache clear")


def test_the_commands_there_are(omnic: Omnic) -> None:
    listed = re.findall(r"^  (\w+) ", omnic("--help").out.partition("Commands:")[2], re.MULTILINE)
    assert set(listed) == {*COMMANDS, "cache", *later.COMMANDS}


def test_no_summary_is_cut_short(omnic: Omnic) -> None:
    assert "..." not in omnic("--help").out.partition("Commands:")[2]


@pytest.mark.parametrize("command", [*COMMANDS, *PARTS])
def test_help_has_an_example_with_options_that_exist(command: str, omnic: Omnic) -> None:
    text = omnic(*command.split(), "--help").out
    examples = re.findall(rf"^    (omnic {command}\b.*)$", text, re.MULTILINE)
    assert examples
    known = set(re.findall(r"^  (?:(-\w), )?(--[\w-]+)", text, re.MULTILINE))
    for example in examples:
        used = {word.partition("=")[0] for word in shlex.split(example) if re.match(r"--?[a-z]", word)}
        assert used <= {name for pair in known for name in pair}


@pytest.mark.parametrize(
    "argv",
    [
        ["bench", "build/x", "--rate", "5"],
        ["calibrate"],
        ["lsp"],
        ["plan", "a.omni", "--explain"],
        ["plan", "a.omni", "--explain", "think"],
        ["plan", "a.omni", "--compare", "b.omni"],
    ],
)
def test_what_comes_later_says_so_in_one_line(argv: list[str], omnic: Omnic) -> None:
    done = omnic(*argv)
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(r"omnic: .* comes with a later version of omnic; .*\n", done.err)


def test_help_says_what_comes_later(omnic: Omnic) -> None:
    text = omnic("--help").out + omnic("plan", "--help").out
    assert text.count("Not in this version") == len(later.COMMANDS) + 2


def test_two_files_to_plan_are_a_usage_error(omnic: Omnic) -> None:
    done = omnic("plan", "a.omni", "b.omni")
    assert done.status == 2
    assert "b.omni" in done.err


def test_a_slip_in_a_command_is_a_usage_error(omnic: Omnic) -> None:
    done = omnic("chekc", "a.omni")
    assert done.status == 2
    assert "chekc" in done.err
    assert "Traceback" not in done.err
