"""`omnic init`: a first pipeline to change."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from omnic.cli import files
from omnic.cli.refusal import Refusal

TEMPLATES = Path(__file__).parent / "templates"


class Template(StrEnum):
    """What a project can start from; each is a folder of omnic/cli/templates."""

    assistant = "assistant"
    chat = "chat"
    speech = "speech"
    python_stage = "python-stage"


def init(
    template: Annotated[
        Template,
        typer.Argument(
            help="assistant: answers in text and speech. chat: text alone. speech: reads text aloud. "
            "python-stage: a function of your own between two models.",
            metavar="TEMPLATE",
        ),
    ] = Template.assistant,
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="Where to put the files.")] = Path(),
) -> None:
    """Write a small pipeline that checks, builds and runs.

    Templates: assistant, chat, speech, python-stage. Files that exist are left alone.

    \b
    Example:
      omnic init
      omnic init chat --into my-bot
    """
    source = TEMPLATES / template.value.replace("-", "_")
    planned = [(file, into / file.relative_to(source)) for file in _files(source)]
    in_the_way = [str(path) for _, path in planned if path.exists() or path.is_symlink()]
    if in_the_way:
        raise Refusal(f"nothing written: {', '.join(in_the_way)} already there", 1)
    if into.exists() and not into.is_dir():
        raise Refusal(f"nothing written: {into} is a file")
    for file, path in planned:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, file.read_bytes())
        print(f"wrote {path}")
    pipeline = next(path for _, path in planned if path.suffix == ".omni")
    print(f"\nnext: omnic check {pipeline}\n      omnic run {pipeline} {_FIRST_RUN[template]}")


_FIRST_RUN = {
    Template.assistant: '--in messages="Why is the sky blue?" --out reply=- --out speech=answer.wav',
    Template.chat: '--in messages="Why is the sky blue?" --out reply=-',
    Template.speech: '--in text="Hello there." --out speech=hello.wav',
    Template.python_stage: '--in messages="Why is the sky blue?" --out speech=answer.wav',
}


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
