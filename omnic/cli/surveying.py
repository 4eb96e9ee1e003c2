"""`omnic models`, `targets`, `doctor` and `cache`: what there is, here and in the catalog."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnic.cli.refusal import Refusal


def models(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A model as written in a pipeline: 'pypi(\"hibari-tts\")', 'path(\"./dir\")', 'hf(\"org/repo\")'. "
            "Left out: what omnic knows.",
            metavar="SOURCE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the models that omnic knows, or one in detail.

    In detail: the parts that stages can be, their ports and keys with types, ranges and defaults.

    \b
    Example:
      omnic models
      omnic models 'pypi("hibari-tts")'
    """
    from omnic.cli import catalog

    for line in catalog.overview() if source is None else catalog.described(source):
        print(line)


def targets(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A target to describe: a preset, gpu:h200*2, or a file. Left out: the presets.",
            metavar="TARGET",
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the device presets that a target may name.

    They serve --target and the `target =` of deploy blocks.

    \b
    Example:
      omnic targets
      omnic targets gpu:h200*2
    """
    from omnic.cli import devices

    for line in devices.presets() if target is None else devices.described(target):
        print(line)


def doctor() -> None:
    """Say what is installed, what is missing, and the fix.

    Exits with 1 if the compiler itself cannot work as installed; a missing extra is not an error.

    \b
    Example:
      omnic doctor
    """
    from omnic.cli.doctor import examine

    found = examine()
    width = max(len(finding.what) for finding in found)
    for finding in found:
        print(f"{finding.state:<8} {finding.what:<{width}}  {finding.detail}".rstrip())
        if finding.fix:
            print(f"{'':8} {'':{width}}  fix: {finding.fix}")
    raise typer.Exit(int(any(finding.state == "broken" for finding in found)))


cache = typer.Typer(
    help="What omnic keeps to save work.\n\nAll of it can be made again.\n\n"
    "\b\nExample:\n  omnic cache ls\n  omnic cache clear",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@cache.command("ls")
def cache_list() -> None:
    """List what is kept, where, and how large it is.

    \b
    Example:
      omnic cache ls
    """
    from omnic.cli.storage import root, shelves
    from omnic.target import memory_text

    print(root())
    for shelf in shelves():
        count = f"{shelf.files} file{'' if shelf.files == 1 else 's'}"
        print(f"  {shelf.name:<12} {memory_text(shelf.bytes):>10}  {count}: {shelf.doc}")


@cache.command("clear")
def cache_clear(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove what is kept, all that `omnic cache ls` lists.

    Servers that run are not disturbed; one that loads may have to be started again.

    \b
    Example:
      omnic cache clear --yes
    """
    from omnic.cli.storage import clear, root, shelves
    from omnic.target import memory_text

    kept = shelves()
    if not kept:
        print(f"{root()} is empty")
        return
    total = sum(shelf.bytes for shelf in kept)
    if not yes:
        if not sys.stdin.isatty():
            raise Refusal("not asked and not told: add --yes to clear the cache without a terminal")
        typer.confirm(f"Remove {memory_text(total)} from {root()}?", abort=True)
    clear()
    print(f"removed {memory_text(total)} from {root()}")
