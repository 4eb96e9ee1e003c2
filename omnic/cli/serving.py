"""`omnic run`, `serve` and `chat`: a build at work."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnic.cli.arguments import BuildDirectory
from omnic.cli.refusal import Refusal

if TYPE_CHECKING:
    from omnic.cli.request import Request
    from omnic.manifest import Manifest


def run(
    what: Annotated[str, typer.Argument(help="A build directory, or an .omni file to build first.", metavar="BUILD")],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="NAME=VALUE",
            help="An input, param or request field; @file takes the value from a file. May be given several times.",
            show_default=False,
        ),
    ] = None,
    wanted: Annotated[
        list[str] | None,
        typer.Option(
            "--out",
            metavar="NAME=FILE",
            help="Where an output goes; `-` prints it as it is made. Left out: text is printed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run one request in this process.

    Text is printed as it is made; sound, pictures and videos are written to files, in the format of their suffix.
    Steps and times go to standard error.

    \b
    Example:
      omnic run build/assistant --in messages="Why is the sky blue?"
      omnic run assistant.omni --in messages=@question.txt --in speed=0.9 --out reply=- --out speech=answer.wav
      omnic run emoji.omni --in prompt="a red heart" --out image=heart.png
    """
    from omnic.cli import inprocess, outputs
    from omnic.cli.request import request

    build = _build_of(what)
    manifest = inprocess.contract(build)
    asked = request(manifest, given or (), wanted or ())
    outputs.check(manifest, asked.outputs)
    asyncio.run(_run(build, manifest, asked))


def serve(
    build: BuildDirectory,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where video jobs are kept; servers may share it.", show_default=False),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes; this version runs one.")] = 1,
) -> None:
    """Serve a build over HTTP, in the form of OpenAI's API.

    \b
    Example:
      omnic serve build/assistant --port 8000
      curl http://127.0.0.1:8000/v1/models
    """
    if workers > 1:
        raise Refusal(f"--workers {workers} cannot be honoured: this version of omnic serves with one worker")
    from omnic.cli import inprocess

    inprocess.contract(Path(build))
    from omnic.runtime.server.main import serve
    from omnic.runtime.server.settings import Settings

    raise typer.Exit(serve(Path(build), host=host, port=port, settings=Settings(jobs=jobs)))


def chat(
    what: Annotated[
        str, typer.Argument(help="A build directory, or the address of a running server.", metavar="BUILD|URL")
    ],
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told before you speak.", show_default=False)
    ] = None,
) -> None:
    """Talk in the terminal, to a build or to a running server.

    An empty line is skipped, /new starts over, Ctrl-C stops an answer, Ctrl-D leaves.

    \b
    Example:
      omnic chat build/assistant
      omnic chat http://127.0.0.1:8000 --system "Answer in one sentence."
    """
    from omnic.cli import talk

    if what.startswith(("http://", "https://")):
        talk.over_http(what, system)
    else:
        talk.in_process(_build_of(what), system)


def _build_of(what: str) -> Path:
    """The build directory that is named, or made from the file that is named."""
    path = Path(what)
    if path.is_dir():
        return path
    from omnic.cli.compiling import built

    made = built(what, None)
    print(f"{made.out}: {'built' if made.changed else 'up to date'}", file=sys.stderr)
    return made.out


async def _run(build: Path, manifest: Manifest, asked: Request) -> None:
    from omnic.cli import outputs
    from omnic.cli.inprocess import loaded, stepping
    from omnic.cli.request import TERMINAL
    from omnic.runtime.errors import RequestError, StageFailed
    from omnic.runtime.flow import Finished, Piece, join

    pieces: dict[str, list[Any]] = {name: [] for name in manifest.outputs}
    first: dict[str, float] = {}
    async with loaded(build, manifest) as pipeline:
        began = time.monotonic()
        try:
            with stepping(quiet=TERMINAL in asked.outputs.values()) as stepped:
                async for event in getattr(pipeline, asked.method)(**asked.arguments):
                    if isinstance(event, Piece):
                        pieces[event.output].append(event.value)
                        first.setdefault(event.output, time.monotonic() - began)
                        if asked.outputs.get(event.output) == TERMINAL:
                            print(event.value, end="", flush=True)
                    elif isinstance(event, Finished):
                        finished = event
                    else:
                        stepped(event.stage, event.done, event.total)
        except (RequestError, StageFailed) as error:
            raise Refusal(str(error), 1) from None
        whole = time.monotonic() - began
    if TERMINAL in asked.outputs.values():
        print()
    outputs.write(manifest, asked.outputs, {name: join(parts) for name, parts in pieces.items()})
    told = [f"first {manifest.outputs[name].kind} ({name}) after {s:.2f} s" for name, s in first.items()]
    print(f"{', '.join([*told, f'whole after {whole:.2f} s'])} (seed {finished.seed})", file=sys.stderr)
    for name, note in finished.notes.items():
        print(f"{name}: {note}", file=sys.stderr)
    if finished.finish_reason == "length":
        print("the answer was cut at its length limit (max_tokens)", file=sys.stderr)
