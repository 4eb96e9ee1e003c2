"""`omnic run`, `serve` and `chat`: a build at work."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnic.cli import files
from omnic.cli.arguments import BuildDirectory
from omnic.cli.refusal import Refusal

if TYPE_CHECKING:
    from omnic.cli.request import Request
    from omnic.manifest import Manifest
    from omnic.runtime.flow import Finished


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

    Text is printed as it is made, sound is written to a file; times go to standard error.

    \b
    Example:
      omnic run build/assistant --in messages="Why is the sky blue?"
      omnic run assistant.omni --in messages=@question.txt --in speed=0.9 --out reply=- --out speech=answer.wav
    """
    from omnic.cli import inprocess
    from omnic.cli.request import request

    build = _build_of(what)
    manifest = inprocess.contract(build)
    asked = request(manifest, given or (), wanted or ())
    _writable(manifest, asked)
    asyncio.run(_run(build, manifest, asked))


def serve(
    build: BuildDirectory,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
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

    raise typer.Exit(serve(Path(build), host=host, port=port))


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


def _writable(manifest: Manifest, asked: Request) -> None:
    """Raises Refusal for an output file that cannot be written, before any work is done."""
    from omnic.cli.request import TERMINAL

    for name, file in asked.outputs.items():
        kind = manifest.outputs[name].kind
        if file == TERMINAL:
            if kind != "text":
                raise Refusal(f"--out {name}=-: {kind} is not for a terminal; name a file")
        elif not Path(file).parent.is_dir():
            raise Refusal(f"--out {name}={file}: there is no directory {Path(file).parent}")
        elif kind == "audio":
            _format(name, file)


def _format(name: str, file: str) -> str:
    """The format that a sound file's suffix asks for. Raises Refusal if sound cannot be encoded so."""
    from omnic.runtime.audio import known
    from omnic.runtime.errors import RequestError

    try:
        return known(Path(file).suffix.removeprefix(".")).name
    except RequestError as error:
        raise Refusal(f"--out {name}={file}: {error}") from None


async def _run(build: Path, manifest: Manifest, asked: Request) -> None:
    from omnic.cli.inprocess import loaded
    from omnic.cli.request import TERMINAL
    from omnic.runtime.errors import RequestError, StageFailed
    from omnic.runtime.flow import Piece, join

    pieces: dict[str, list[Any]] = {name: [] for name in manifest.outputs}
    first: dict[str, float] = {}
    async with loaded(build, manifest) as pipeline:
        began = time.monotonic()
        try:
            async for event in getattr(pipeline, asked.method)(**asked.arguments):
                if isinstance(event, Piece):
                    pieces[event.output].append(event.value)
                    first.setdefault(event.output, time.monotonic() - began)
                    if asked.outputs.get(event.output) == TERMINAL:
                        print(event.value, end="", flush=True)
                else:
                    finished: Finished = event
        except (RequestError, StageFailed) as error:
            raise Refusal(str(error), 1) from None
        whole = time.monotonic() - began
    for name, file in asked.outputs.items():
        if file == TERMINAL:
            print()
        else:
            _write(manifest, name, file, join(pieces[name]))
    told = [f"first {manifest.outputs[name].kind} ({name}) after {s:.2f} s" for name, s in first.items()]
    print(f"{', '.join([*told, f'whole after {whole:.2f} s'])} (seed {finished.seed})", file=sys.stderr)
    for name, note in finished.notes.items():
        print(f"{name}: {note}", file=sys.stderr)
    if finished.finish_reason == "length":
        print("the answer was cut at its length limit (max_tokens)", file=sys.stderr)


def _write(manifest: Manifest, name: str, file: str, value: Any) -> None:
    from omnic.runtime.audio import encode

    kind = manifest.outputs[name]
    if value is None:
        print(f"{name} is empty: {file} was not written", file=sys.stderr)
    elif kind.kind == "audio":
        rate = int(kind.rate_hz or 0)
        files.write(Path(file), encode(value, rate, _format(name, file)))
        print(f"wrote {file}: {len(value) / rate:.1f} s of sound", file=sys.stderr)
    else:
        files.write(Path(file), f"{value}\n".encode())
        print(f"wrote {file}", file=sys.stderr)
