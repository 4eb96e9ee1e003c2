"""`slice`: which stages run for which endpoint and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.contract.endpoints import BindError, answers
from omnic.ir.pipeline import Endpoint, Output, Pipeline, Slice
from omnic.ir.verify import open_ends
from omnic.passes.base import Context, Pass


@dataclass(frozen=True, slots=True)
class SlicePass(Pass):
    """Gives every endpoint a slice for each set of outputs that a request may ask for: the stages that must run for
    them and no others, in data-flow order. What feeds the port where an endpoint enters is left out.

    After it every endpoint has a slice, and every slice is closed.
    """

    name: ClassVar[str] = "slice"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        endpoints = []
        for endpoint in pipeline.endpoints:
            try:
                sets = answers(endpoint.name, {o.name: o.type for o in pipeline.outputs}, endpoint.fields)
            except BindError as error:
                context.sink.error(error.id, f"cannot serve `{endpoint.name}`: {error.message}", endpoint.span)
                continue
            reached = [names for names in sets if self._reached(pipeline, endpoint, names)]
            for names in () if reached else sets[:1]:
                context.sink.error(
                    "cannot-bind",
                    f"`{endpoint.name}` enters at `{endpoint.entry}`, from where `{names[0]}` cannot be made",
                    endpoint.span,
                    help=[f"enter upstream of it, or give `{names[0]}` another source"],
                )
            slices = tuple(Slice(names, needed(pipeline, names, endpoint.entry)) for names in reached)
            endpoints.append(replace(endpoint, slices=slices))
        return replace(pipeline, endpoints=tuple(endpoints))

    @staticmethod
    def _reached(pipeline: Pipeline, endpoint: Endpoint, outputs: tuple[str, ...]) -> bool:
        """Whether every one of `outputs` is made from what the endpoint takes alone, and from its entry if it has one.

        A request that enters below the inputs carries none of them, so nothing that needs one may run.
        """
        if endpoint.entry is None:
            return True
        inputs = {i.name for i in pipeline.inputs if not i.type.optional}
        for name in outputs:
            stages = needed(pipeline, (name,), endpoint.entry)
            if endpoint.entry.rpartition(".")[0] not in stages:
                return False
            for stage in map(pipeline.stage, stages):
                for port, source in stage.inputs:
                    if f"{stage.name}.{port}" != endpoint.entry and origin(pipeline, source) in inputs:
                        return False
        return True

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for endpoint in pipeline.endpoints:
            if not endpoint.slices:
                yield f"endpoint `{endpoint.name}` has no slice"
            for slice_ in endpoint.slices:
                yield from open_ends(pipeline, slice_, endpoint.entry)


def origin(pipeline: Pipeline, source: str) -> str:
    """What a port is fed by, through the channel if there is one: an input, or `stage.port`."""
    return next((c.source for c in pipeline.channels if c.name == source), source)


def needed(pipeline: Pipeline, outputs: tuple[str, ...], entry: str | None) -> tuple[str, ...]:
    """The stages that `outputs` are made by, back to the inputs or to `entry`, in data-flow order."""
    wanted: set[str] = set()
    sources: dict[str, Output] = {o.name: o for o in pipeline.outputs}
    open_ = [sources[name].source for name in outputs]
    while open_:
        stage, dot, _ = open_.pop().rpartition(".")
        if not dot or stage in wanted:
            continue
        wanted.add(stage)
        open_ += [origin(pipeline, s) for port, s in pipeline.stage(stage).inputs if f"{stage}.{port}" != entry]
    return tuple(s.name for s in pipeline.stages if s.name in wanted)
