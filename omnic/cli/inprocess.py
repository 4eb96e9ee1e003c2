"""A build loaded into this process, as `run` and `chat` use it: no server, no worker."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from omnic.cli.refusal import Refusal

if TYPE_CHECKING:
    from omnic.manifest import Manifest
    from omnic.runtime.pipeline import Pipeline

Show = Callable[[str, int, int], None]
"""Called while a stage loads: its name, bytes loaded, bytes to load."""


def contract(build: Path) -> Manifest:
    """The manifest of a build directory, where this installation can run it. Raises Refusal."""
    from omnic import installed, manifest

    if build.is_file():
        raise Refusal(f"{build} is a file; compile it first: omnic build {build}")
    try:
        content = manifest.read(build)
        installed.require("serve")
    except (manifest.ManifestError, installed.Unmet) as error:
        raise Refusal(str(error)) from None
    return content


@asynccontextmanager
async def loaded(build: Path, manifest: Manifest) -> AsyncIterator[Pipeline]:
    """The generated pipeline with its stages loaded; progress goes to standard error.

    Raises Refusal if the build no longer matches what it was made from, or weights are missing or damaged.
    """
    from omnic.runtime import lock
    from omnic.runtime.errors import Elsewhere, Stale
    from omnic.runtime.pipeline import Build, generated
    from omnic.runtime.weights import Damaged, Missing

    began = time.monotonic()
    async with AsyncExitStack() as stack:
        try:
            Build.open(build)
            lock.verify(build)
            with progress() as show, interrupts_at_once():
                found = generated(build, manifest.class_name)
                pipeline = await stack.enter_async_context(found.load(progress=show))
        except (Elsewhere, Stale, Missing, Damaged) as error:
            raise Refusal(str(error), 1) from None
        print(f"loaded in {time.monotonic() - began:.1f} s", file=sys.stderr)
        yield pipeline


@contextmanager
def interrupts_at_once() -> Iterator[None]:
    """While weights load in threads that cannot be stopped, Ctrl-C ends the process on the spot.

    A process that ignores interrupts (`nohup`, a background job) goes on ignoring them.
    """

    def leave(*_: object) -> None:
        sys.stderr.write("\x1b[?25h\n" if sys.stderr.isatty() else "")  # bars hide the cursor
        sys.stderr.flush()
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stepping(*, quiet: bool) -> Iterator[Show]:
    """Shows the steps that stages take on standard error: bars on a terminal, else a line for each stage that is done.
    `quiet`, the bars are left out: what is printed at the same time would run into them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    tasks: dict[str, TaskID] = {}

    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)
            if bars.disable and done == total:
                print(f"{stage}: {done}/{total} steps", file=sys.stderr)

        yield show


@contextmanager
def progress() -> Iterator[Show]:
    """Shows loading on standard error: bars on a terminal, else one line for each stage that is done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    tasks: dict[str, TaskID] = {}

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            finished = bars.tasks[tasks[stage]].finished
            bars.update(tasks[stage], completed=done, total=total)
            if bars.disable and done >= total and not finished:
                print(f"loaded {stage}: {total / (1 << 20):.0f} MiB", file=sys.stderr)

        yield show
