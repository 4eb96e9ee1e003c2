"""What a file says, as written: frozen records with spans, in source order. Nothing here has been checked.

Values are expressions of omnic.expr; the records `Call`, `List` and `Signature` extend them with what only a
setting can hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from omnic.contract.types import Type
from omnic.expr import Expr
from omnic.source import Source, Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name where it is declared, or one step of a path."""

    text: str
    span: Span

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Path:
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


@dataclass(frozen=True, slots=True)
class PortType:
    """`video: video<16fps>`"""

    name: Name
    type: TypeRef


@dataclass(frozen=True, slots=True)
class Signature(Expr):
    """`fn(a: text) -> (b: text)`"""

    inputs: tuple[PortType, ...]
    outputs: tuple[PortType, ...]


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A type where it is written. `parts` are the spans of its arguments and bounds, in source order."""

    type: Type
    span: Span
    parts: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeRef:
    """`0..20 step 0.5`"""

    low: Expr
    high: Expr
    step: Expr | None
    span: Span


DomainRef: TypeAlias = "RangeRef | List"


@dataclass(frozen=True, slots=True)
class Setting:
    """`max_tokens = 256`"""

    path: Path
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    """`{ … }`, braces included."""

    settings: tuple[Setting, ...]
    span: Span


# --- items of a pipeline ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    name: Name
    value: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Input:
    name: Name
    type: TypeRef
    span: Span


@dataclass(frozen=True, slots=True)
class Output:
    name: Name
    type: TypeRef
    span: Span


@dataclass(frozen=True, slots=True)
class Param:
    name: Name
    type: TypeRef
    default: Expr | None
    domain: DomainRef | None
    span: Span


@dataclass(frozen=True, slots=True)
class Require:
    rule: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Stage:
    name: Name
    value: Expr
    block: Block | None
    span: Span


@dataclass(frozen=True, slots=True)
class Edge:
    source: Path
    target: Path
    block: Block | None
    span: Span


@dataclass(frozen=True, slots=True)
class Use:
    """`audio.speech { input = speak.text }`"""

    endpoint: Path
    block: Block | None
    span: Span


@dataclass(frozen=True, slots=True)
class Serve:
    uses: tuple[Use, ...]
    span: Span


Item: TypeAlias = Model | Input | Output | Param | Require | Stage | Edge | Serve


# --- a file -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edition:
    number: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Import:
    """`import "file.omni" as NAME`; `path` is the string's text, `path_span` the literal."""

    path: str
    path_span: Span
    alias: Name | None
    span: Span


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`brace` is the opening one."""

    name: Name
    items: tuple[Item, ...]
    brace: Span
    span: Span


@dataclass(frozen=True, slots=True)
class Override:
    """`stage think { … }` in a deploy block."""

    stage: Path
    block: Block
    span: Span


@dataclass(frozen=True, slots=True)
class Limit:
    rule: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Deploy:
    name: Name
    pipeline: Name | None
    items: tuple[Setting | Override | Limit, ...]
    brace: Span
    span: Span


Top: TypeAlias = Edition | Import | Pipeline | Deploy


@dataclass(frozen=True, slots=True)
class File:
    source: Source
    items: tuple[Top, ...]
