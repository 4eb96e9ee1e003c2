"""What `check` and `fmt` take: one table, read by the parser before typer (`fast`) and by typer's commands (`app`)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Format(StrEnum):
    """How diagnostics are printed."""

    full = "full"
    concise = "concise"
    json = "json"
    github = "github"


class Option(NamedTuple):
    """An option that is a flag (no choices) or takes one of its choices."""

    name: str
    help: str
    choices: tuple[str, ...] = ()
    default: str | bool = False


class Command(NamedTuple):
    name: str
    files: str  # what its FILE arguments are
    options: tuple[Option, ...]

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)


CHECK = Command(
    "check",
    "Pipelines to check; `-` reads standard input.",
    (
        Option(
            "--format",
            "full shows the source, concise one line each, json for programs, github as annotations.",
            tuple(Format),
            Format.full,
        ),
    ),
)
FMT = Command(
    "fmt",
    "Pipelines to format in place; `-` formats standard input to standard output.",
    (Option("--check", "Change nothing; name the files that would change, and exit with 1 if there are any."),),
)
COMMANDS = (CHECK, FMT)
