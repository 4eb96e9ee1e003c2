"""AST to bound AST: names resolved, types known, stages bound to parts of the catalog, rules of the language held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from omnic.catalog.part import CatalogError, Model
from omnic.catalog.resolve import ModelSource
from omnic.catalog.resolve import resolve as catalog_resolve
from omnic.diagnostics import Label, Sink
from omnic.dsl import ast
from omnic.dsl.check.bound import Checked, Pipeline
from omnic.dsl.check.deploy import deploys
from omnic.dsl.check.endpoints import unserved
from omnic.dsl.check.imports import Files, Imported, imports, visible
from omnic.dsl.check.names import well_formed
from omnic.dsl.check.pipeline import check_pipeline
from omnic.dsl.check.stages import Resolve, Surroundings
from omnic.expr import Literal, format_value
from omnic.source import Span

__all__ = ["Checked", "Pipeline", "check"]

EDITION = 1


def check(file: ast.File, *, base: Path, resolve: Resolve = catalog_resolve, sink: Sink) -> Checked | None:
    """The file with everything bound; None, and every error that is no mere consequence of another, if it has any.

    `base` is the directory that paths in the file start from; `resolve` says what a model is. Weights are never read.
    """
    found = Sink()
    reading = _Reading(resolve, Files())
    path = Path(file.source.path)
    reading.files.trail.append(path)
    unit = _Unit(file, base, reading, found)
    pipelines = {name: pipeline for name in unit.names if (pipeline := unit.pipeline(name))}
    chosen = deploys(file, pipelines, found)
    unit.unused()
    for diagnostic in found.diagnostics:
        if diagnostic.severity == "error" or not found.has_errors:  # what is unused may be so for a mistake
            sink.add(diagnostic)
    if found.has_errors:
        return None
    return Checked(file, pipelines, chosen, tuple(dict.fromkeys((path, *unit.sources()))))


class _Reading:
    """What the files of one check share."""

    def __init__(self, resolve: Resolve, files: Files) -> None:
        self.resolve, self.files = resolve, files
        self.units: dict[Path, _Unit] = {}
        self.resolved: dict[tuple[ModelSource, Path], Model | CatalogError] = {}


class _Unit:
    """One file: its pipelines, each checked when it is first asked for."""

    def __init__(self, file: ast.File, base: Path, reading: _Reading, sink: Sink) -> None:
        self._file, self._base, self._reading, self._sink = file, base, reading, sink
        self._declared: dict[str, ast.Pipeline] = {}
        self._done: dict[str, tuple[Pipeline, bool]] = {}
        self._doing: list[str] = []
        self._used: set[str] = set()
        self._top()
        self._imports, failed = imports(file, base, reading.files, sink)
        for one in self._imports:
            self._read(one)
        self._visible = visible(list(self._declared), self._imports, sink)
        self._failed = {item.alias.text for item in failed if item.alias}
        self._complete = all(item.alias for item in failed)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def pipeline(self, name: str, used_at: Span | None = None) -> Pipeline | None:
        """A pipeline of this file; None where it holds itself. As a stage (`used_at`), None also if it has mistakes."""
        if name in self._doing:
            circle = " -> ".join([*self._doing[self._doing.index(name) :], name])
            self._sink.error("recursive-pipeline", f"a pipeline cannot be part of itself: {circle}", used_at)
            return None
        if name not in self._done:
            self._doing.append(name)
            found = Sink()
            made = check_pipeline(self._declared[name], self._surroundings(), found)
            self._doing.pop()
            for diagnostic in found.diagnostics:
                self._sink.add(diagnostic)
            self._done[name] = made, not found.has_errors
        made, sound = self._done[name]
        return made if sound or used_at is None else None

    def unused(self) -> None:
        """Warns of imports that no stage uses, and of pipelines that are neither a stage nor served."""
        for name, (made, sound) in self._done.items():
            if sound and name not in self._used:
                unserved(made, self._sink)
        for one in self._imports:
            names = [name for name, (other, _) in self._visible.items() if other is one]
            if names and not self._used & set(names):
                self._sink.warning("unused-import", f"no stage uses what {one.path.name} holds", one.span)

    def sources(self) -> tuple[Path, ...]:
        """Files that the pipelines of this one are made of, besides itself."""
        stages = [stage for made, _ in self._done.values() for stage in made.stages.values()]
        own = [stage.file for stage in stages if stage.file is not None]
        others = [(one.path, *self._reading.units[one.path].sources()) for one in self._imports]
        return tuple(dict.fromkeys([path for paths in others for path in paths] + own))

    def _surroundings(self) -> Surroundings:
        pipelines: dict[str, Callable[[Span], Pipeline | None] | None] = dict.fromkeys(self._failed)
        for name, (one, own) in self._visible.items():
            pipelines[name] = partial(self._use, name, one, own)
        return Surroundings(self._base, self._reading.resolve, pipelines, self._complete, self._reading.resolved)

    def _use(self, name: str, one: Imported | None, own: str, used_at: Span) -> Pipeline | None:
        self._used.add(name)
        unit = self if one is None else self._reading.units[one.path]
        return unit.pipeline(own, used_at)

    def _read(self, one: Imported) -> None:
        """Makes the unit of an imported file. Its warnings are for those who check it; its errors are told."""
        if one.path in self._reading.units:
            return
        found = Sink()
        self._reading.files.trail.append(one.path)
        unit = _Unit(one.file, one.path.parent, self._reading, found)
        self._reading.files.trail.pop()
        self._reading.units[one.path] = unit
        for name in unit.names:
            unit.pipeline(name)
        deploys(one.file, {name: made for name, (made, _) in unit._done.items()}, found)
        for diagnostic in found.diagnostics:
            if diagnostic.severity == "error":
                self._sink.add(diagnostic)

    def _top(self) -> None:
        """The edition, and the names of pipelines."""
        for index, item in enumerate(self._file.items):
            match item:
                case ast.Edition(number=Literal(value=number), span=span):
                    if index > 0:
                        self._sink.error("misplaced-edition", "`edition` stands on the first line", span)
                    elif number != EDITION:
                        shown = format_value(number)
                        message = f"this omnic reads edition {EDITION} of the language, not {shown}"
                        self._sink.error("unknown-edition", message, span)
                case ast.Pipeline(name=name):
                    well_formed(name, self._sink)
                    if name.text in self._declared:
                        first = Label(self._declared[name.text].name.span, "declared here as a pipeline")
                        message = f"`{name}` is declared twice"
                        self._sink.error("duplicate-name", message, name.span, "a pipeline", secondary=[first])
                    else:
                        self._declared[name.text] = item
