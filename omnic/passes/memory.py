"""How many bytes a stage takes, by purpose: the catalog's formulas at the shapes the passes decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnic.catalog import lora
from omnic.catalog.part import Cost
from omnic.expr import evaluate
from omnic.ir.pipeline import Pipeline, Stage, get
from omnic.passes.away import host_bytes, saved_bytes
from omnic.passes.base import Context
from omnic.passes.denoise import adapters, step_cache
from omnic.passes.envelope import Domains
from omnic.passes.quantize import precision_of
from omnic.passes.reach import reach
from omnic.target import Device, memory_text

__all__ = [
    "PROCESS_BYTES",
    "activation_bytes",
    "free_bytes",
    "host_bytes",
    "kv_bytes",
    "memory_text",
    "process_bytes",
    "stages_on",
    "weight_bytes",
]

_WIDTHS = {"bf16": 2, "fp32": 4, "fp8": 2}  # of what is beside the matrices
PROCESS_BYTES = 40 << 20  # an interpreter with omnic's runtime, numpy and msgspec; measured


def cost(stage: Stage, context: Context) -> Cost:
    return context.part(stage).cost_as(precision_of(stage))


def weight_bytes(stage: Stage, context: Context) -> int:
    """With the adapters that lie beside the weights; of blocks that lie on the host, two buffers."""
    beside = sum(lora.elements(adapter) for adapter in adapters(stage, context))
    whole = cost(stage, context).weight_bytes + beside * _WIDTHS[precision_of(stage) or "fp32"]
    return whole - saved_bytes(stage, context)


def kv_bytes(stage: Stage, context: Context) -> int:
    """The cache of all slots at full length: it is reserved whole when the stage loads."""
    return cost(stage, context).kv_bytes_per_token * _shape(stage)["batch"] * _shape(stage)["context"]


def activation_bytes(stage: Stage, context: Context) -> int:
    """The peak of one forward at the largest shape the stage runs, and what its step cache keeps beside it."""
    formula, shape = cost(stage, context).activation_bytes, {**_shape(stage), "chunked": stage.name in context.chunked}
    shapes = [{**shape, **dict(_bounds(stage, context, corner))} for corner in context.corners or ({},)]
    cache = step_cache(stage, context)
    width = (_WIDTHS[precision_of(stage) or "fp32"] * int(_shape(stage)["slots"])) if cache else 0
    capture = context.part(stage).capture
    graphs = capture.bytes if capture is not None and get(stage.how, "sizes") is not None else None

    def held(s: dict[str, Any]) -> float:
        """At one shape."""
        beside = width * evaluate(cache.state, s) if cache else 0
        return float(evaluate(formula, s) + beside + (evaluate(graphs, s) if graphs is not None else 0))

    return int(max(map(held, shapes)))


def _shape(stage: Stage) -> dict[str, int]:
    """The names that cost formulas may use: sequences, rows in one forward, tokens of a sequence."""
    how = {name: setting.value for name, setting in stage.how}
    batch = int(how.get("batch") or how.get("slots") or how.get("lanes") or 1)
    return {
        "batch": batch,
        "slots": int(how.get("slots") or batch),
        "tokens": batch + int(how.get("prefill_chunk", 0)),
        "context": int(how.get("context", 0)),
    }


def _bounds(stage: Stage, context: Context, domains: Domains) -> Iterator[tuple[str, float]]:
    """`KEY_low` and `KEY_high` of each key that has a measure: the least and the most that a request can have of it,
    where params have `domains`.
    What a stage has no key for (the size of a picture it decodes) is that of the nearest stage that feeds it."""
    for one in (*reversed(context.feeders.get(stage.name, ())), stage):
        for key in context.part(one).keys:
            setting = get(one.keys, key.name)
            ends = reach(setting.value if setting is not None else key.default, key.domain, domains)
            if ends is not None:
                yield f"{key.name}_low", ends[0]
                yield f"{key.name}_high", ends[1]


def process_bytes(stages: list[Stage], context: Context) -> int:
    """What a process that hosts `stages` takes before it loads a weight. Parts of one kind share their libraries."""
    by_kind: dict[str, int] = {}
    for stage in stages:
        by_kind[stage.kind] = max(by_kind.get(stage.kind, 0), cost(stage, context).process_bytes)
    return PROCESS_BYTES + sum(by_kind.values())


def stages_on(pipeline: Pipeline, device: str) -> Iterator[Stage]:
    for stage in pipeline.stages:
        on = get(stage.how, "on")
        if on is not None and device in on.value:
            yield stage


def free_bytes(device: Device) -> int:
    """What a plan may use of a device: what is free of it, which is at most what it has."""
    return min(device.memory_bytes, device.free_bytes)
