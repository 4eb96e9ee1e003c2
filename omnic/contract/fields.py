"""A served endpoint of one pipeline: the fields of its requests, and what of the pipeline they bind to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from omnic.contract.domains import Domain
from omnic.contract.types import Type
from omnic.spelling import did_you_mean


@dataclass(frozen=True, slots=True)
class Knob:
    """A stage key that the source left open and the catalog offers to requests (`think.temperature`)."""

    stage: str
    key: str
    field: str  # its name in a request: "temperature"
    type: Type
    domain: Domain | None
    default: Any
    doc: str


@dataclass(frozen=True, slots=True)
class ParamSpec:
    type: Type
    domain: Domain | None
    default: Any
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """What of a pipeline an endpoint can bind to: names to types, in source order."""

    inputs: dict[str, Type]
    outputs: dict[str, Type]
    params: dict[str, ParamSpec]
    knobs: tuple[Knob, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field a request may carry, resolved for one pipeline."""

    name: str  # dotted for nested ones: "audio.format"
    type: Type
    target: str  # "input NAME" | "param NAME" | "knob STAGE.KEY" | "entry" | "seed" | "server": who takes the value
    argument: str  # keyword of the generated method that receives it; "" for what the server itself honours
    domain: Domain | None = None
    default: Any = None
    required: bool = False
    doc: str = ""
    many: int = 0  # a list of at most this many values; 0 for a single one
    rate: float = 0.0  # a length in seconds: the value is the one of `domain` nearest to this many times it


@dataclass(frozen=True, slots=True)
class Slice:
    """The stages that run for a set of requested outputs, and the generated method that runs them."""

    method: str  # "chat_completions_reply_speech"
    outputs: tuple[str, ...]
    stages: tuple[str, ...]
    arguments: tuple[str, ...] = ()  # keywords the method takes; the server passes on those and no others


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A served endpoint of one pipeline."""

    name: str  # "chat.completions"
    fields: tuple[Field, ...]
    slices: tuple[Slice, ...]
    entry: str | None = None  # "speak.text" where the request enters the graph below its inputs
    outputs: tuple[tuple[str, str], ...] = ()  # role of the answer ("text", "audio") to output name

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def blamed(self, name: str | None) -> str | None:
        """The field that a stage means by `name` when it refuses a request. A stage's own text is a `prompt` to it,
        whatever the endpoint calls it. None for what requests have no field for."""
        if name is None or self.field(name.partition("[")[0].partition(".")[0]):
            return name
        main = self.fields[0]
        return main.name if name == "prompt" and main.type.kind == "text" else None


class BindError(ValueError):
    """An endpoint that cannot be served by a pipeline. `field` is the field, role or override at fault, if one is;
    `id` says what kind of fault it is: unknown-endpoint, not-supported-yet or cannot-bind."""

    def __init__(self, message: str, field: str | None = None, *, id: str = "cannot-bind") -> None:
        super().__init__(message)
        self.message, self.field, self.id = message, field, id


def hint(name: str, names: Iterable[str]) -> str:
    """The one of `names` that was probably meant, to end a message with."""
    meant = did_you_mean(name, names)
    return f"; {meant}" if meant else ""


def either(names: list[str]) -> str:
    return " or ".join(f"`{n}`" for n in names)
