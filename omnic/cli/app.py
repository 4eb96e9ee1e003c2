"""Every command of `omnic`, each registered from the module of its group."""

from __future__ import annotations

from typing import Annotated

import typer

from omnic import __version__
from omnic.cli import compiling, language, later, serving, starting, surveying
from omnic.cli.options import CHECK, FMT, Format

app = typer.Typer(
    name="omnic",
    help="A compiler for pipelines of models: from one .omni file to a checked plan, a readable runtime and an "
    "OpenAI-compatible server.\n\nStart with: omnic init && omnic check assistant.omni",
    rich_markup_mode=None,  # plain help: no markup to escape, nothing more to import
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"omnic {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None: ...


_FORMAT = CHECK.option("--format")
_DEFAULT_FORMAT = Format(str(_FORMAT.default))
_FMT_CHECK = FMT.option("--check")


def check(
    files: Annotated[list[str], typer.Argument(help=CHECK.files, metavar="FILE", show_default=False)],
    format: Annotated[Format, typer.Option(_FORMAT.name, help=_FORMAT.help)] = _DEFAULT_FORMAT,
) -> None:
    """Find mistakes in pipelines without loading a weight.

    Exits with 0 if there are none, 1 if there are errors, 2 if a file cannot be read.

    \b
    Example:
      omnic check pipelines/assistant.omni
      omnic check --format github pipelines/*.omni
    """
    raise typer.Exit(language.check(files, format.value))


def fmt(
    files: Annotated[list[str], typer.Argument(help=FMT.files, metavar="FILE", show_default=False)],
    check: Annotated[bool, typer.Option(_FMT_CHECK.name, help=_FMT_CHECK.help)] = False,
) -> None:
    """Rewrite pipelines in the one format there is; comments stay.

    \b
    Example:
      omnic fmt pipelines/assistant.omni
      omnic fmt --check pipelines/*.omni
    """
    raise typer.Exit(language.fmt(files, check=check))


for command in (  # as a project meets them
    starting.init,
    check,
    fmt,
    surveying.models,
    surveying.targets,
    compiling.plan,
    compiling.opt,
    compiling.graph,
    compiling.build,
    serving.run,
    serving.serve,
    serving.chat,
    surveying.doctor,
):
    app.command(context_settings={"allow_extra_args": command is compiling.plan})(command)
app.add_typer(surveying.cache, name="cache")
later.register(app)
