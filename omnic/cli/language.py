"""`omnic check` and `omnic fmt`. On the fast path: nothing here may import typer, rich or msgspec."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from omnic.cli import files
from omnic.cli.refusal import Refusal
from omnic.diagnostics import Diagnostic, Sink, render
from omnic.source import Source


def check(names: Iterable[str], form: str) -> int:
    """Prints what is wrong with each file; 0 if nothing is, 1 if there are errors, 2 if a file cannot be read."""
    from omnic.catalog.resolve import resolve
    from omnic.dsl.check import check
    from omnic.dsl.parse import parse

    found: list[Diagnostic] = []
    status = count = 0
    for name in names:
        source = _source(name)
        if source is None:
            status = 2
            continue
        sink = Sink()
        file = parse(source, sink)
        if file is not None:
            check(file, base=files.base(name), resolve=resolve, sink=sink)
        found.extend(sink.diagnostics)
        count += 1
    report(found, form, total=count)
    return status or int(any(d.severity == "error" for d in found))


def fmt(names: Iterable[str], *, check: bool) -> int:
    """Formats each file in place. 1 if a file has syntax errors or, with `check`, would change; 2 if unreadable."""
    from omnic.dsl.fmt import format

    status = changed = total = 0
    for name in names:
        source = _source(name)
        if source is None:
            status = 2
            continue
        sink = Sink()
        text = format(source, sink)
        if text is None:
            report(sink.diagnostics, "full", stream=sys.stderr)
            status = status or 1
            continue
        total += 1
        if name == files.STDIN and not check:
            sys.stdout.buffer.write(text.encode())
        elif text != source.text:
            changed += 1
            if not check:
                files.write(Path(name), text.encode())
            print(f"{'would change' if check else 'formatted'} {source.path}", file=sys.stderr)
    if check and changed:
        return status or 1
    if total and not changed and list(names) != [files.STDIN]:
        print(f"{_files(total)} already formatted", file=sys.stderr)
    return status


def report(
    diagnostics: Iterable[Diagnostic], form: str = "full", *, total: int = 0, stream: TextIO | None = None
) -> None:
    """Prints diagnostics. With `total`, the number of files looked at, a closing line says how they fared."""
    out = stream or sys.stdout
    listed = tuple(diagnostics)
    color = form == "full" and out.isatty() and not os.environ.get("NO_COLOR")
    text = render(listed, form, color=color)
    if text:
        out.write(text if text.endswith("\n") else text + "\n")
    if total and form == "full":
        out.write(("\n" if listed else "") + _closing(listed, total) + "\n")


def _closing(diagnostics: tuple[Diagnostic, ...], total: int) -> str:
    errors = sum(d.severity == "error" for d in diagnostics)
    warnings = len(diagnostics) - errors
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    return f"{_files(total)} checked: {', '.join(counts) or 'no mistakes found'}"


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _source(name: str) -> Source | None:
    try:
        return files.read_source(name)
    except Refusal as refusal:
        print(f"omnic: {refusal}", file=sys.stderr)
        return None
