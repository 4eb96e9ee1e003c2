"""The way past typer: a well-formed `check`, `fmt` or `--version` is read here, anything else is left to `app`.

typer costs more to import than a file takes to check. Both ways call the same functions with the same values.
"""

from __future__ import annotations

from typing import NamedTuple

from omnic.cli.options import COMMANDS


class Call(NamedTuple):
    """A command with its files and the value of each of its options."""

    command: str
    files: tuple[str, ...]
    options: tuple[tuple[str, str | bool], ...]


def parse(argv: list[str]) -> Call | None:
    """The call that `argv` asks for; None if it asks for help, another command, or is not well formed."""
    if argv == ["--version"]:
        return Call("--version", (), ())
    command = next((c for c in COMMANDS if argv and c.name == argv[0]), None)
    if command is None:
        return None
    values = {option.name: option.default for option in command.options}
    files: list[str] = []
    rest = iter(argv[1:])
    for word in rest:
        name, given, value = word.partition("=")
        if word == "--":
            files.extend(rest)
        elif word == "-" or not word.startswith("-"):
            files.append(word)
        elif name not in values:
            return None
        elif choices := command.option(name).choices:
            chosen = value if given else next(rest, "")
            if chosen not in choices:
                return None
            values[name] = chosen
        elif given:
            return None
        else:
            values[name] = True
    return Call(command.name, tuple(files), tuple(values.items())) if files else None


def run(call: Call) -> int:
    """Carries out a call; returns the exit status."""
    if call.command == "--version":
        from omnic import __version__

        print(f"omnic {__version__}")
        return 0
    from omnic.cli import language

    options = dict(call.options)
    if call.command == "check":
        return language.check(call.files, str(options["--format"]))
    return language.fmt(call.files, check=bool(options["--check"]))
