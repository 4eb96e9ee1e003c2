"""Commands that are named already and come with a later version: each says so in one line."""

from __future__ import annotations

from typing import NoReturn

import typer

from omnic.cli.refusal import Refusal

COMMANDS = {
    "bench": "load generator for a running server",
    "calibrate": "measure this machine for the planner",
    "lsp": "language server for editors",
}


def refuse(what: str) -> NoReturn:
    """Says that `what` is not there yet. Raises Refusal."""
    raise Refusal(f"{what} comes with a later version of omnic; {_here()} does not have it")


def register(app: typer.Typer) -> None:
    """Adds the commands to `app`, listed in its help as what they are."""
    for name, doc in COMMANDS.items():
        _add(app, name, doc)


def _add(app: typer.Typer, name: str, doc: str) -> None:
    @app.command(
        name,
        help=f"Not in this version: {doc}.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def _() -> None:
        refuse(f"omnic {name}")


def _here() -> str:
    from omnic import __version__

    return f"omnic {__version__}"
