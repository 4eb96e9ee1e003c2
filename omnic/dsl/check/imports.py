"""Other pipelines of a file: those beside one, and those it imports."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from omnic.diagnostics import Label, Sink
from omnic.dsl import ast
from omnic.dsl.check.bound import Pipeline
from omnic.dsl.check.names import well_formed
from omnic.dsl.parse import parse
from omnic.source import Source, Span, decode, load

Check: TypeAlias = Callable[[str], "Pipeline | None"]
"""Checks a pipeline of a file, once; None where it has mistakes."""


class Files:
    """The files a check has read, and which of them it is in the middle of."""

    def __init__(self) -> None:
        self.read: dict[Path, ast.File | None] = {}
        self.trail: list[Path] = []


class Imported(NamedTuple):
    """An import that was read: the pipelines of `file`, under `alias` where it has one."""

    file: ast.File
    path: Path
    alias: str | None
    span: Span


def imports(file: ast.File, base: Path, files: Files, sink: Sink) -> tuple[list[Imported], list[ast.Import]]:
    """The imports of a file, and those that could not be read. A file with mistakes says them itself."""
    found: list[Imported] = []
    failed: list[ast.Import] = []
    for item in (i for i in file.items if isinstance(i, ast.Import)):
        if item.alias is not None:
            well_formed(item.alias, sink)
        path = Path(os.path.normpath(base / item.path))
        other = _read(item, path, files, sink)
        if other is None:
            failed.append(item)
        else:
            found.append(Imported(other, path, item.alias.text if item.alias else None, item.span))
    return found, failed


def _read(item: ast.Import, path: Path, files: Files, sink: Sink) -> ast.File | None:
    if path in files.trail:
        circle = " -> ".join(p.name for p in (*files.trail[files.trail.index(path) :], path))
        sink.error("import-cycle", f"files import each other in a circle: {circle}", item.path_span)
        return None
    if path not in files.read:
        try:
            text = decode(load(path))
        except OSError as error:
            why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error.strerror).lower()
            sink.error(
                "import-not-found", f"cannot read {item.path}: {why}", item.path_span, help=[f"looked for {path}"]
            )
            return None
        except UnicodeDecodeError:
            sink.error("import-not-found", f"cannot read {item.path}: it is not UTF-8 text", item.path_span)
            return None
        files.read[path] = parse(Source(str(path), text), sink)
    return files.read[path]


def visible(own: list[str], found: list[Imported], sink: Sink) -> dict[str, tuple[Imported | None, str]]:
    """What pipelines a file can use as stages: the name each goes by, the import it is of, its own name there."""
    names: dict[str, tuple[Imported | None, str]] = {name: (None, name) for name in own}
    for one in found:
        pipelines = [item.name for item in one.file.items if isinstance(item, ast.Pipeline)]
        if not pipelines:
            sink.error("nothing-imported", f"{one.path.name} holds no pipeline", one.span)
        for name in pipelines:
            goes_by = name.text if one.alias is None else f"{one.alias}.{name}"
            if goes_by in names:
                _taken(goes_by, one, name, sink)
            names.setdefault(goes_by, (one, name.text))
        if one.alias is not None and len(pipelines) == 1:
            if one.alias in names:
                _taken(one.alias, one, pipelines[0], sink)
            names.setdefault(one.alias, (one, pipelines[0].text))
    return names


def _taken(name: str, one: Imported, declared: ast.Name, sink: Sink) -> None:
    sink.error(
        "duplicate-name",
        f"there is another pipeline `{name}`",
        one.span,
        "imported here",
        secondary=[Label(declared.span, "declared here")],
        help=[f'give the import a name: `import "{one.path.name}" as …`'],
    )
