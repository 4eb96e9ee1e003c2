"""What a file says, as written: frozen records with spans, in source order. Nothing here has been checked.

Values are expressions of omnic.expr; the records `Call`, `List` and `Signature` extend them with what only a
setting can hold. The others are named tuples: a dataclass takes half a millisecond to make, and `check` pays for
each of them whenever it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from omnic.contract.types import Type
from omnic.expr import Expr
from omnic.source import Source, Span


class Name(NamedTuple):
    """A name where it is declared, or one step of a path."""

    text: str
    span: Span

    def __str__(self) -> str:
        return self.text


class Path(NamedTuple):
    """`think.text`"""

    names: tuple[Name, ...]

    @property
    def span(self) -> Span:
        return self.names[0].span.to(self.names[-1].span)

    @property
    def head(self) -> Name:
        return self.names[0]

    @property
    def tail(self) -> Path | None:
        """What follows the first dot."""
        return Path(self.names[1:]) if len(self.names) > 1 else None

    def __str__(self) -> str:
        return ".".join(name.text for name in self.names)


# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """`ceil(x)`, `chunk(25)`, `layers(resident = 20)`, `gpu("h200", count = 2)`"""

    path: Path
    args: tuple[Expr, ...]
    named: tuple[tuple[Name, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class List(Expr):
    """`[1, 4, 12]`"""

    items: tuple[Expr, ...]


class PortType(NamedTuple):
    """`video: video<16fps>`"""

    name: Name
    type: TypeRef


@dataclass(frozen=True, slots=True)
class Signature(Expr):
    """`fn(a: text) -> (b: text)`"""

    inputs: tuple[PortType, ...]
    outputs: tuple[PortType, ...]


class TypeRef(NamedTuple):
    """A type where it is written. `parts` are the spans of its arguments and bounds, in source order."""

    type: Type
    span: Span
    parts: tuple[Span, ...] = ()


class RangeRef(NamedTuple):
    """`0..20 step 0.5`"""

    low: Expr
    high: Expr
    step: Expr | None
    span: Span


DomainRef: TypeAlias = "RangeRef | List"


class Setting(NamedTuple):
    """`max_tokens = 256`"""

    path: Path
    value: Expr
    span: Span


class Block(NamedTuple):
    """`{ … }`, braces included."""

    settings: tuple[Setting, ...]
    span: Span


# --- items of a pipeline ----------------------------------------------------------------------------------------------


class Model(NamedTuple):
    name: Name
    value: Expr
    span: Span


class Input(NamedTuple):
    name: Name
    type: TypeRef
    span: Span


class Output(NamedTuple):
    name: Name
    type: TypeRef
    span: Span


class Param(NamedTuple):
    name: Name
    type: TypeRef
    default: Expr | None
    domain: DomainRef | None
    span: Span


class Require(NamedTuple):
    rule: Expr
    span: Span


class Stage(NamedTuple):
    name: Name
    value: Expr
    block: Block | None
    span: Span


class Edge(NamedTuple):
    source: Path
    target: Path
    block: Block | None
    span: Span


class Use(NamedTuple):
    """`audio.speech { input = speak.text }`"""

    endpoint: Path
    block: Block | None
    span: Span


class Serve(NamedTuple):
    uses: tuple[Use, ...]
    span: Span


Item: TypeAlias = Model | Input | Output | Param | Require | Stage | Edge | Serve


# --- a file -----------------------------------------------------------------------------------------------------------


class Edition(NamedTuple):
    number: Expr
    span: Span


class Import(NamedTuple):
    """`import "file.omni" as NAME`; `path` is the string's text, `path_span` the literal."""

    path: str
    path_span: Span
    alias: Name | None
    span: Span


class Pipeline(NamedTuple):
    """`brace` is the opening one."""

    name: Name
    items: tuple[Item, ...]
    brace: Span
    span: Span


class Override(NamedTuple):
    """`stage think { … }` in a deploy block."""

    stage: Path
    block: Block
    span: Span


class Limit(NamedTuple):
    rule: Expr
    span: Span


class Deploy(NamedTuple):
    name: Name
    pipeline: Name | None
    items: tuple[Setting | Override | Limit, ...]
    brace: Span
    span: Span


Top: TypeAlias = Edition | Import | Pipeline | Deploy


class File(NamedTuple):
    source: Source
    items: tuple[Top, ...]
