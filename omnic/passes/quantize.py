"""`quantize`: what each stage's weights are held in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.ir.pipeline import Pipeline, Setting, Stage, get, put
from omnic.passes.base import Context, Pass, settle, span_of, without, word

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp8": "float8"}  # precision as written: dtype as the runtime names it


@dataclass(frozen=True, slots=True)
class QuantizePass(Pass):
    """Turns `precision` into the dtype of every stage that has a choice; the part's first one where nothing is pinned.

    After it no stage has a `precision`, and each that has a choice has a `dtype` its part can be held in.
    """

    name: ClassVar[str] = "quantize"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        for stage in pipeline.stages:
            pipeline = pipeline.with_stage(self._decided(stage, context))
        return pipeline

    def _decided(self, stage: Stage, context: Context) -> Stage:
        can, pinned = context.part(stage).precisions, get(stage.how, "precision")
        if pinned is None:
            if not can or get(stage.how, "dtype") is not None:
                return stage
            decided = Setting(
                DTYPES[can[0]], "catalog default", f"what `{stage.part}` is held in unless told otherwise"
            )
            return replace(stage, how=put(stage.how, "dtype", decided))
        wanted = word(pinned.value)
        if wanted in can:
            decided = Setting(DTYPES[wanted], pinned.origin, f"`precision = {wanted}`", pinned.span)
            return replace(stage, how=put(without(stage.how, "precision"), "dtype", decided))
        if not can:
            context.sink.error(
                "no-such-choice", f"`{stage.name}` has no choice of precision", span_of(pinned, stage), "remove this"
            )
        elif settle(stage, context.sink, "precision") and not context.sink.has_errors:
            context.sink.error(
                "no-such-choice", f"`{stage.name}` can be held in {' or '.join(can)}", span_of(pinned, stage)
            )
        return replace(stage, how=without(stage.how, "precision"))

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for stage in pipeline.stages:
            dtype = get(stage.how, "dtype")
            can = {DTYPES[p] for p in context.part(stage).precisions}
            if get(stage.how, "precision") is not None or (can and (dtype is None or dtype.value not in can)):
                yield f"stage `{stage.name}` has no dtype"


def precision_of(stage: Stage) -> str | None:
    """The precision of a stage by its `dtype`; None where it has no choice."""
    dtype = get(stage.how, "dtype")
    return None if dtype is None else next(name for name, held in DTYPES.items() if held == dtype.value)
