"""`omnic plan`, `opt`, `build` and `graph`: the phases of the compiler, one command for each way to look at them."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from omnic.cli import files, language, later
from omnic.cli.arguments import Deploy, File, Sets, Target
from omnic.cli.refusal import Refusal

if TYPE_CHECKING:
    from omnic.diagnostics import Sink
    from omnic.driver import BuildResult, Planned
    from omnic.passes import Pass


class Picture(StrEnum):
    """What a picture is written as."""

    svg = "svg"
    html = "html"
    mermaid = "mermaid"


def plan(
    context: typer.Context,
    file: File,
    deploy: Deploy = None,
    target: Target = None,
    set: Sets = None,
    json: Annotated[bool, typer.Option("--json", help="The plan as JSON.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Not in this version: what was rejected, and at what cost.")
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="OTHER", help="Not in this version: hold two plans side by side."),
    ] = None,
    running: Annotated[
        str | None,
        typer.Option("--running", metavar="URL", help="Beside it, which engine runs each stage at a server."),
    ] = None,
) -> None:
    """Show what would run where, how many bytes, and why.

    Nothing is loaded, and the target need not be there.

    \b
    Example:
      omnic plan pipelines/assistant.omni
      omnic plan pipelines/assistant.omni --target gpu:h200 --set think.slots=32 --json
      omnic plan pipelines/qwen_image.omni --running http://127.0.0.1:8000
    """
    if explain:
        later.refuse("omnic plan --explain")
    if compare is not None:
        later.refuse("omnic plan --compare")
    if context.args:  # taken at all because of `--explain STAGE`
        raise typer.BadParameter(f"one file at a time; what is `{context.args[0]}`?")
    from omnic.passes.report import plan_json, plan_text

    if json and running is not None:
        raise typer.BadParameter("--running is a table; it does not go with --json")
    planned = planned_of(file, deploy, target, tuple(set or ()))
    print((plan_json if json else plan_text)(planned.pipeline, planned.context).rstrip("\n"))
    if running is not None:
        from omnic.cli.running import running as at

        print(f"\n{at(running, planned.pipeline)}")


def opt(
    file: File,
    passes: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--passes",
            metavar="SPECS",
            help="The passes to run, in order: 'slice,place{reserve=0.1}'. Left out: all of them. "
            "An empty one: none, which shows the pipeline as lowered.",
            show_default=False,
        ),
    ] = None,
    print_after: Annotated[
        str | None,
        typer.Option(
            "--print-after", metavar="all|NAME", help="Print the IR after each pass, or after one.", show_default=False
        ),
    ] = None,
    deploy: Deploy = None,
    target: Target = None,
    set: Sets = None,
) -> None:
    """Show the IR after given passes.

    \b
    Example:
      omnic opt pipelines/assistant.omni -p slice,stream
      omnic opt pipelines/assistant.omni -p 'place{reserve=0.1}' --print-after all
    """
    from omnic.ir.text import dump
    from omnic.passes import DEFAULT, PassBroken, parse_spec

    try:
        chosen = DEFAULT if passes is None else parse_spec(passes)
    except ValueError as error:
        raise Refusal(str(error)) from None
    names = [step.name for step in chosen]
    if print_after is not None and print_after not in ("all", *names):
        raise Refusal(f"--print-after {print_after}: the passes that run are {', '.join(names) or 'none'}")
    try:
        planned = planned_of(file, deploy, target, tuple(set or ()), passes=chosen, print_after=print_after)
    except PassBroken as error:
        if passes is None:
            raise
        order = ", ".join(step.name for step in DEFAULT)
        raise Refusal(f"{error}; the passes it stands on have not run: all of them, in order, are {order}", 1) from None
    print(dump(planned.pipeline).rstrip("\n"))


def build(
    file: File,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="Where to put it. Left out: build/NAME.", show_default=False),
    ] = None,
    deploy: Deploy = None,
    target: Target = None,
    set: Sets = None,
    locked: Annotated[
        bool, typer.Option("--locked", help="Refuse if anything differs from what omnic.lock in DIR records.")
    ] = False,
    no_engines: Annotated[
        bool, typer.Option("--no-engines", help="Make no engines of TensorRT: what stages run by them cannot run.")
    ] = False,
) -> None:
    """Compile a pipeline into a directory that serves.

    What is in it is code to read; serving it needs omnic[serve] and none of the compiler.

    \b
    Example:
      omnic build pipelines/assistant.omni -o build/assistant
      omnic serve build/assistant
    """
    from omnic.engines import wanted

    made = built(file, out, deploy, target, tuple(set or ()), locked=locked, ahead=not no_engines)
    pipeline = made.planned.pipeline
    if no_engines:
        stages = ", ".join(f"`{name}`" for name in wanted(pipeline))
        what = f"{stages} cannot run until it is built without" if stages else "changes nothing: this plan has none"
        print(f"omnic: --no-engines: {what}" if stages else f"omnic: --no-engines {what}", file=sys.stderr)
    for line in made.engines:
        print(f"omnic: {line}", file=sys.stderr)
    endpoints = ", ".join(endpoint.name for endpoint in pipeline.endpoints) or "no endpoints"
    print(f"{made.out}: {'built' if made.changed else 'up to date'}, {pipeline.name} on {pipeline.target}: {endpoints}")


def graph(
    file: File,
    format: Annotated[Picture, typer.Option("--format", help="What to write.")] = Picture.svg,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PATH", help="Write to a file, not to the terminal.", show_default=False),
    ] = None,
    deploy: Deploy = None,
    target: Target = None,
    set: Sets = None,
) -> None:
    """Draw the planned graph as svg, html or mermaid.

    Stages show where and how they run, edges what flows along them and in which pieces.

    \b
    Example:
      omnic graph pipelines/assistant.omni -o assistant.svg
      omnic graph pipelines/assistant.omni --format mermaid
    """
    from omnic.cli.picture import html, mermaid, svg
    from omnic.cli.picture.graph import of

    drawing = of(planned_of(file, deploy, target, tuple(set or ())).pipeline)
    text = {Picture.svg: svg.draw, Picture.html: html.draw, Picture.mermaid: mermaid.draw}[format](drawing)
    if out is None:
        sys.stdout.write(text)
    else:
        files.write(out, text.encode())


def planned_of(
    file: str,
    deploy: str | None,
    target: str | None,
    sets: tuple[str, ...],
    *,
    passes: tuple[Pass, ...] | None = None,
    print_after: str | None = None,
) -> Planned:
    """The pipeline of a file after `passes` (all if None), its warnings printed. Leaves with 1 if it has errors."""
    from omnic import driver
    from omnic.diagnostics import Sink

    sink = Sink()
    path = _readable(file)
    front = driver.front(path, sink, deploy=deploy, target=target, sets=sets)
    planned = driver.plan(front, sink, passes=passes, print_after=print_after) if front else None
    return _or_leave(planned, sink)


def built(
    file: str,
    out: Path | None,
    deploy: str | None = None,
    target: str | None = None,
    sets: tuple[str, ...] = (),
    *,
    locked: bool = False,
    ahead: bool = True,
) -> BuildResult:
    """The file compiled into `out` (`build/NAME` if None), its warnings printed. Leaves with 1 if it has errors."""
    from omnic import driver
    from omnic.codegen.files import Occupied
    from omnic.diagnostics import Sink
    from omnic.engines import EnginesFailed
    from omnic.runtime.errors import Stale

    sink = Sink()
    path = _readable(file)
    out = Path(os.path.normpath(out or Path("build") / path.stem))  # `gone/../there` is `there`
    try:
        result = driver.build(path, out, sink, deploy=deploy, target=target, sets=sets, locked=locked, ahead=ahead)
    except EnginesFailed as error:
        raise Refusal(f"{error}; `--no-engines` builds the rest", 1) from None
    except (Stale, Occupied) as error:
        raise Refusal(str(error), 1) from None
    return _or_leave(result, sink)


def _readable(file: str) -> Path:
    if file == files.STDIN:
        raise Refusal("only `check` and `fmt` read standard input; name a file")
    files.read_text(file)  # says in one line why a file cannot be read
    if file != (shown := os.fsencode(file).decode(errors="replace")):
        raise Refusal(f"the name of {shown} is not text, and what is made of it has to name it: rename the file")
    return Path(file)


T = TypeVar("T")


def _or_leave(result: T | None, sink: Sink) -> T:
    language.report(sink.diagnostics, stream=sys.stderr)
    if result is None:
        raise typer.Exit(1)
    return result
