"""`offload`: which blocks of a transformer leave the device between their uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.diagnostics import Label, Sink
from omnic.expr import Call
from omnic.ir.pipeline import Pipeline, Setting, Stage, get, put
from omnic.passes import away
from omnic.passes.base import Context, Pass, require_share, span_of, without
from omnic.passes.budget import devices, rooms
from omnic.passes.memory import memory_text


@dataclass(frozen=True, slots=True)
class OffloadPass(Pass):
    """Decides for every stage with `offload` how many blocks of each of its transformers stay on the device: those that
    the source says, else the most that fit there beside two buffers and all else that lies there, with `reserve` of it
    free. Where all fit, none leave.

    After it no stage has `offload`, and one with `resident` is on a GPU, has blocks that leave, and gains by it.
    """

    name: ClassVar[str] = "offload"
    reserve: float = 0.05

    def __post_init__(self) -> None:
        require_share(self.name, self.reserve)

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        for stage in pipeline.stages:
            if (asked := get(stage.how, "offload")) is not None:
                pipeline = pipeline.with_stage(self._decided(pipeline, stage, asked, context))
        return pipeline

    def _decided(self, p: Pipeline, stage: Stage, asked: Setting, context: Context) -> Stage:
        bare = replace(stage, how=without(stage.how, "offload"))
        if asked.value is None:
            return bare
        if (found := away.obstacle(stage, context)) is not None:
            why, instead = found
            cache = get(stage.how, "step_cache")
            beside = [Label(cache.span, "the step cache")] if cache is not None and cache.span is not None else []
            context.sink.error(
                "illegal-offload", f"blocks of `{stage.name}` cannot leave its device: {why}", span_of(asked, stage),
                secondary=beside if "step cache" in why else [], help=instead,
            )  # fmt: skip
            return bare
        if isinstance(asked.value, Call):
            return _with_residents(bare, replace(asked, value=away.resident(stage)), "", context)
        most = self._most(p, bare, context)
        if most is None:
            context.sink.warning(
                "nothing-to-offload",
                f"`{stage.name}` fits its device whole: no block leaves it",
                span_of(asked, stage),
                help=["remove `offload`, or say how many blocks stay, such as `layers(resident = 0)`"],
            )
            return bare
        return _with_residents(bare, Setting(most), "the most that fit; ", context)

    def _most(self, p: Pipeline, stage: Stage, context: Context) -> int | None:
        """The most blocks of each transformer that can stay; 0 where even that is too much, None where all can."""
        on = get(stage.how, "on")
        assert on is not None, "`place` puts every stage on a device"
        quiet, name = replace(context, sink=Sink()), on.value[0]
        room = rooms(p, self.reserve, quiet)[name]

        def fits(changed: Stage) -> bool:
            held = next(d for d in devices(p.with_stage(changed), quiet) if d.name == name)
            return held.planned_bytes <= room

        if fits(stage):
            return None
        counts = range(away.most_resident(stage, context), 0, -1)
        return next((n for n in counts if fits(replace(stage, how=put(stage.how, "resident", Setting(n))))), 0)

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for stage in pipeline.stages:
            if get(stage.how, "offload") is not None:
                yield f"stage `{stage.name}` still has `offload`"
            if away.resident(stage) is None:
                continue
            if away.obstacle(stage, context) is not None:
                yield f"stage `{stage.name}` has no block that can leave its device"
            elif away.saved_bytes(stage, context) <= 0:
                yield f"stage `{stage.name}` gains nothing by the blocks that leave"


def _with_residents(stage: Stage, resident: Setting, why: str, context: Context) -> Stage:
    """The stage with its residents, and what leaves and how long that is waited for as the reason."""
    made = replace(stage, how=put(stage.how, "resident", resident))
    counts = [len(sizes) for sizes in away.blocks_of(made, context)]
    each = " each of two transformers" if len(counts) > 1 else ""
    gone = counts[0] - int(resident.value)
    said = f"{why}{gone} of {counts[0]} blocks{each} lie on the host, {memory_text(away.host_bytes(made, context))}"
    said += _waited(made, context)
    return replace(made, how=put(made.how, "resident", replace(resident, reason=said)))


def _waited(stage: Stage, context: Context) -> str:
    seconds = away.forward_seconds(stage, context)
    if seconds is None:
        return ""
    link, work = seconds
    said = f"; a forward fetches for {1000 * link:.0f} ms"
    if work is None:
        return f"{said}, hidden where its work takes longer"
    verdict = "hidden behind" if link <= work else "more than"
    return f"{said}, {verdict} the {1000 * work:.0f} ms of work of one request of {away.size_of(stage, context)}"
