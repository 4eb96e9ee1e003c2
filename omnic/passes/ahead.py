"""What `capture` decides of a stage with `engine = tensorrt`: whether its modules can be engines made ahead."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog.exports import exportable
from omnic.diagnostics import Label
from omnic.ir.pipeline import Setting, Stage, get, put
from omnic.passes.base import Context, span_of, without
from omnic.passes.quantize import precision_of

TENSORRT = "tensorrt"
_PRECISIONS = ("bf16", "fp32")
_BESIDE = {
    "step_cache": ("a step cache takes a step apart, and an engine is one piece", "cache = none"),
    "loras": ("adapters lie beside weights, and an engine has its weights inside", "remove `loras`"),
    "resident": ("an engine has all its weights inside, and blocks that lie on the host do not", "offload = none"),
    "fuse": ("an engine is made of the weights as they are in the checkpoint", "remove `fuse`"),
}


def ahead(stage: Stage, asked: Setting, context: Context) -> Stage:
    """The stage with its engine decided; with an error in the sink, without one."""
    bare = replace(stage, how=without(stage.how, "engine", "buckets"))
    if (listed := get(stage.how, "buckets")) is not None:
        context.sink.error(
            "misplaced-key", f"`buckets` of `{stage.name}` are shapes of captured graphs; engines take their ranges"
            " from the params", span_of(listed, stage), "remove this",
        )  # fmt: skip
        return bare
    for key, (why, instead) in _BESIDE.items():
        if (found := get(stage.how, key)) is not None:
            context.sink.error(
                "illegal-combination", f"`{stage.name}` cannot run by TensorRT: {why}", span_of(asked, stage),
                secondary=[Label(found.span, f"`{key}`")] if found.span is not None else [],
                help=[instead, f"or engine = {_instead(stage, context)}"],
            )  # fmt: skip
            return bare
    if (why_not := _obstacle(stage, context)) is not None:
        context.sink.error(
            "illegal-engine", f"`{stage.name}` cannot run by TensorRT: {why_not}", span_of(asked, stage),
            help=[f"engine = {_instead(stage, context)}"],
        )  # fmt: skip
        return bare
    on = get(stage.how, "on")
    assert on is not None, "`place` puts every stage on a device"
    why = f"built ahead for {context.target.device(on.value[0]).arch}, for all shapes that requests can have"
    return replace(bare, how=put(bare.how, "engine", replace(asked, value=TENSORRT, reason=why)))


def _obstacle(stage: Stage, context: Context) -> str | None:
    """Why its modules cannot be engines; None where they can."""
    on, family = get(stage.how, "on"), context.models[stage.model].family if stage.model else ""
    if not exportable(family, stage.part):
        what = f"`{family}`'s `{stage.part}`" if family else f"`{stage.part}`"
        return f"{what} cannot be exported"
    device = context.target.device(on.value[0]) if on is not None else context.target.host
    if device.kind != "gpu":
        return "it is for GPUs"
    if not device.arch:
        return f"an engine is for one architecture, and that of {device.name} is not stated"
    precision = precision_of(stage)
    if precision not in _PRECISIONS:
        return f"its engines hold {' or '.join(_PRECISIONS)}, not {precision}"
    return None


def _instead(stage: Stage, context: Context) -> str:
    """The engine that is nearest."""
    on, capture = get(stage.how, "on"), context.part(stage).capture
    captured = capture is not None and precision_of(stage) in capture.precisions
    gpu = on is not None and context.target.device(on.value[0]).kind == "gpu"
    beside = any(get(stage.how, key) is not None for key in _BESIDE)
    return "cuda_graph" if captured and gpu and not beside else "eager"
