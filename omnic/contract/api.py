"""What an endpoint of OpenAI's API is made of: fields that bind to a pipeline, fields the server honours, the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnic.contract.domains import Domain
from omnic.contract.types import Type


@dataclass(frozen=True, slots=True)
class Role:
    """A part of an answer. `kind` is the type of the output that fills it."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Extra:
    """A field that carries an input of the pipeline beside the main one, where it has such an input.

    It serves the input of its kind that has one of the names in `inputs`; with none, the only one that nothing else
    serves. With `many` it carries a list, whose values serve those inputs in the order of the source.
    """

    name: str
    kind: str
    inputs: tuple[str, ...] = ()
    required: bool = False
    many: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Standard:
    """A field that the server honours whatever the pipeline is; with `role`, where the answer can have that part."""

    name: str
    type: Type
    default: Any = None
    domain: Domain | None = None
    many: int = 0
    role: str | None = None
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Unused:
    """A field without effect here. `neutral` lists the values accepted (null always is); None accepts any."""

    name: str
    json: tuple[str, ...]  # JSON types it may have
    neutral: tuple[Any, ...] | None
    doc: str = "accepted, without effect"


@dataclass(frozen=True, slots=True)
class Api:
    """An endpoint of the API. `later` says why it cannot be served yet; all else is then left empty."""

    name: str
    path: str
    summary: str = ""
    input: str = ""  # the field that carries what the pipeline works on
    input_kind: str = ""
    input_max_chars: int | None = None
    extras: tuple[Extra, ...] = ()
    open: tuple[str, ...] = ()  # kinds of inputs that are fields under their own names where no field above serves them
    forms: tuple[str, ...] = ("application/json",)  # media types of a body
    gives: tuple[str, ...] = ()  # and of an answer
    roles: tuple[Role, ...] = ()
    answers: tuple[tuple[str, ...], ...] = ()  # sets of roles a request may ask for; the first is the default
    aliases: tuple[tuple[str, str], ...] = ()  # another name of a field, and the field; params go by either
    nested: tuple[tuple[str, str], ...] = ()  # a field that the API keeps inside another: ("voice", "audio.voice")
    timed: tuple[tuple[str, str], ...] = ()  # a length in seconds, and the field that has it in units of the answer
    standard: tuple[Standard, ...] = ()
    unused: tuple[Unused, ...] = ()
    later: str = ""

    def role(self, name: str) -> Role:
        return next(r for r in self.roles if r.name == name)

    @property
    def needed(self) -> frozenset[str]:
        """The roles that no answer is without."""
        return frozenset.intersection(*map(frozenset, self.answers))
