"""What checking finds out: the AST with every name resolved, every type known and every stage bound to its part.

Named tuples, as in `ast`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from omnic.catalog.part import Key, Part
from omnic.catalog.part import Model as CatalogModel
from omnic.catalog.resolve import ModelSource
from omnic.contract.domains import Domain
from omnic.contract.types import Type
from omnic.dsl import ast
from omnic.expr import Expr
from omnic.source import Span


class Model(NamedTuple):
    """A declared model; `model` is None where it could not be resolved, which has been said."""

    name: str
    source: ModelSource | None
    model: CatalogModel | None
    span: Span


class Param(NamedTuple):
    """A knob of requests. `domain` is as declared; left out there, it is that of the keys it is bound to."""

    name: str
    type: Type
    default: Any
    domain: Domain | None
    span: Span


class Given(NamedTuple):
    """An input or an output: a name and its type where they are declared."""

    name: str
    type: Type
    span: Span


class Value(NamedTuple):
    """A key of a stage where it is set, to a literal, a tuple of them or an expression over params and inputs.

    `common` tells a key that every stage has (how it runs) from one of its part (what it computes).
    """

    key: Key
    value: Any
    common: bool
    span: Span


class Stage(NamedTuple):
    """A stage and what it is: a part of a model, a part of omnic, a Python function (`file`), or a pipeline (`inner`).

    `part` is None where that could not be found out, which has been said; it has ports and keys also where `inner`
    is what runs.
    """

    name: str
    part: Part | None
    model: str | None
    inner: Pipeline | None
    file: Path | None
    values: tuple[Value, ...]
    span: Span

    @property
    def what(self) -> str:
        """As the source calls it: `lm.generate`."""
        if self.part is None or self.model is None:
            return self.name if self.part is None else self.part.name
        return f"{self.model}.{self.part.name}"


class End(NamedTuple):
    """One end of an edge: a port of a stage, or an input or output of the pipeline (`stage` is None then)."""

    stage: str | None
    name: str
    span: Span

    def __str__(self) -> str:
        return self.name if self.stage is None else f"{self.stage}.{self.name}"


class Edge(NamedTuple):
    """A typed edge; `type` is what its source gives, `how` what its block pins."""

    source: End
    target: End
    type: Type
    how: tuple[tuple[str, Any, Span], ...]
    span: Span


class Rule(NamedTuple):
    """A `require` or `limit`."""

    expr: Expr
    span: Span


class Use(NamedTuple):
    """A served endpoint: which port it enters at, which names serve its fields, where the source says so."""

    name: str
    entry: str | None
    fields: tuple[tuple[str, str], ...]
    span: Span


class Pipeline(NamedTuple):
    name: str
    base: Path  # the directory that paths in it start from
    declared: ast.Pipeline
    models: dict[str, Model]
    inputs: dict[str, Given]
    outputs: dict[str, Given]
    params: dict[str, Param]
    requires: tuple[Rule, ...]
    stages: dict[str, Stage]
    edges: tuple[Edge, ...]
    uses: tuple[Use, ...]


class Deploy(NamedTuple):
    """A way to run a pipeline somewhere. `target` is the target's text, as written but for spaces."""

    name: str
    pipeline: str
    target: str | None
    limits: tuple[Rule, ...]
    values: dict[str, tuple[Value, ...]]  # by stage; `answer.think` for one inside a stage that is a pipeline
    span: Span


class Checked(NamedTuple):
    """A file that holds up. `sources` are all files it was made of: itself, its imports, its Python stages."""

    file: ast.File
    pipelines: dict[str, Pipeline]
    deploys: dict[str, Deploy]
    sources: tuple[Path, ...]
