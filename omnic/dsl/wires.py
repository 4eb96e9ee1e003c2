"""Edges between the stages that run: those that lead into or out of a pipeline used as a stage are followed through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from omnic.contract.types import Type
from omnic.dsl.check.bound import Edge, End, Pipeline
from omnic.source import Span


class Wire(NamedTuple):
    """An edge between stages that run, inputs and outputs. `at` orders wires as the source does."""

    source: str  # "think.text", or an input
    target: str  # "speak.text", or "output reply"
    type: Type  # of what the source gives
    how: tuple[tuple[str, Any, Span], ...]
    span: Span
    at: tuple[int, ...]


class Instance(NamedTuple):
    """A pipeline where it is used: as stage `stage` of `outer`, or by itself."""

    pipeline: Pipeline
    outer: Instance | None = None
    stage: str = ""

    @property
    def prefix(self) -> str:
        """What the names of its stages begin with."""
        return f"{self.outer.prefix}{self.stage}." if self.outer else ""

    @property
    def at(self) -> tuple[int, ...]:
        return (*self.outer.at, self.outer.pipeline.stages[self.stage].span.start) if self.outer else ()

    def inside(self, stage: str) -> Instance | None:
        """The pipeline that a stage is, if it is one."""
        inner = self.pipeline.stages[stage].inner
        return None if inner is None else Instance(inner, self, stage)


def wires(one: Instance) -> Iterator[Wire]:
    """The wires into the stages of a pipeline, and at the top into its outputs; not those inside its stages."""
    for edge in one.pipeline.edges:
        stage = edge.target.stage
        if stage is None and one.outer is None:
            target = f"output {edge.target.name}"
        elif stage is not None and one.pipeline.stages[stage].inner is None:
            target = f"{one.prefix}{edge.target}"
        else:
            continue
        followed = tuple(_back(one, edge))
        if followed and (source := _origin(*followed[-1])):
            pinned = {key: (key, value, span) for _, passed in reversed(followed) for key, value, span in passed.how}
            at = (*one.at, edge.span.start)
            yield Wire(source, target, followed[-1][1].type, tuple(pinned.values()), edge.span, at)


def _back(one: Instance, edge: Edge | None) -> Iterator[tuple[Instance, Edge]]:
    """`edge` and the edges before it through which its data comes, each with the pipeline that it is in."""
    while edge is not None:
        yield one, edge
        end = edge.source
        if end.stage is None and (outer := one.outer) is not None:
            one, edge = outer, _into(outer, End(one.stage, end.name, end.span))
        elif end.stage is not None and (inner := one.inside(end.stage)) is not None:
            one, edge = inner, _into(inner, End(None, end.name, end.span))
        else:
            return


def _into(one: Instance, end: End) -> Edge | None:
    return next((edge for edge in one.pipeline.edges if str(edge.target) == str(end)), None)


def _origin(one: Instance, edge: Edge) -> str | None:
    """The input or port where an edge begins; None where that is a port or input that nothing feeds."""
    stage = edge.source.stage
    if stage is None:
        return None if one.outer else edge.source.name
    return None if one.pipeline.stages[stage].inner else f"{one.prefix}{edge.source}"


def entries(one: Instance, given: str) -> Iterator[str]:
    """The ports of stages that run which an input of a pipeline feeds."""
    for edge in one.pipeline.edges:
        if edge.source.stage is None and edge.source.name == given and edge.target.stage is not None:
            inner = one.inside(edge.target.stage)
            if inner is None:
                yield f"{one.prefix}{edge.target}"
            else:
                yield from entries(inner, edge.target.name)
