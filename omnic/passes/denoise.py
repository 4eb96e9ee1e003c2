"""What `batch` decides of a denoise stage: who steps with whom, and what a step may leave out."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog.part import Model, StepCache
from omnic.diagnostics import Label
from omnic.expr import Call
from omnic.ir.pipeline import Stage, get, put
from omnic.passes.base import Context, decide, span_of, without, word

_CACHE, _THRESHOLD = "step_cache", "step_cache_threshold"
_SLOTS = 4  # at least: those that cannot step together take turns


def denoised(stage: Stage, fits: int, context: Context) -> Stage:
    """A stage with its step cache, batch, slots and mode. `fits` is how many requests there is room for in a
    forward."""
    stage = _adapted(_cached(stage, context), context)
    how, most, why = stage.how, 4 if context.target.gpus else 2, "more at once gain little: one forward fills a device"
    dtype = get(how, "dtype")
    if get(how, _CACHE) is not None:
        _refuse_batch(stage, context)
        most, why = 1, "a step cache leaves out blocks for one request that another needs"
    elif dtype is not None and dtype.value == "float32":
        most, why = 1, "in fp32 each request has forwards of its own: the same bytes whoever runs beside it"
    if fits < most:
        most, why = max(1, fits), "what fits"
    how = decide(how, "batch", most, why)
    batch, slots = get(how, "batch"), get(how, "slots")
    assert batch is not None
    if slots is not None and slots.value < batch.value:
        context.sink.error(
            "batch-over-slots",
            f"`{stage.name}` has {slots.value} slots; {batch.value} requests cannot step together",
            span_of(slots, stage),
            help=[f"slots = {batch.value}"],
        )
    how = decide(how, "slots", max(_SLOTS, 2 * batch.value), "those that cannot step together take turns")
    return replace(stage, how=decide(how, "mode", "step", "requests join and leave at any step"))


def step_cache(stage: Stage, context: Context) -> StepCache | None:
    """The step cache that was decided on."""
    chosen = get(stage.how, _CACHE)
    return None if chosen is None else _offered(stage, context).get(chosen.value)


def _offered(stage: Stage, context: Context) -> dict[str, StepCache]:
    return {cache.kind: cache for cache in context.part(stage).step_caches}


def _cached(stage: Stage, context: Context) -> Stage:
    """`cache = tea(0.2)` as what the runtime is told."""
    asked = get(stage.how, "cache")
    how = without(stage.how, "cache")
    if asked is None or asked.value is None:
        return replace(stage, how=how)
    given = isinstance(asked.value, Call)
    cache = _offered(stage, context)[asked.value.function if given else word(asked.value)]
    threshold = float(asked.value.args[0].value) if given else cache.threshold
    how = put(how, _CACHE, replace(asked, value=cache.kind, reason=_drift(cache, threshold)))
    why = "" if given else "catalog default"
    return replace(stage, how=put(how, _THRESHOLD, replace(asked, value=threshold, reason=why)))


def adapters(stage: Stage, context: Context) -> tuple[Model, ...]:
    """Those that lie beside the weights of a stage."""
    loras = get(stage.how, "loras")
    names = [] if loras is None else [item.partition("=")[2] or item for item in loras.value]
    return tuple(context.models[name] for name in names)


def _adapted(stage: Stage, context: Context) -> Stage:
    loras, fuse, scale = (get(stage.how, key) for key in ("loras", "fuse", "fuse_scale"))
    how = stage.how
    if loras is not None and loras.value:
        how = put(how, "loras", replace(loras, reason="a request picks one by `lora`; different ones never mix"))
    else:
        how = without(how, "loras")
    if fuse is not None and fuse.value:
        how = put(how, "fuse", replace(fuse, reason="added to the weights when they load"))
    else:
        how = without(how, "fuse", "fuse_scale")
        if scale is not None:
            context.sink.error(
                "misplaced-key", f"`fuse_scale` of `{stage.name}` counts only beside `fuse`", span_of(scale, stage)
            )
    return replace(stage, how=how)


def _drift(cache: StepCache, threshold: float) -> str:
    if not cache.drift:
        return "drift not measured for this model"
    if threshold != cache.threshold:
        return f"drift not measured at this threshold; at {cache.threshold:g}: {cache.drift}"
    return f"measured: {cache.drift}"


def _refuse_batch(stage: Stage, context: Context) -> None:
    batch, cache = get(stage.how, "batch"), get(stage.how, _CACHE)
    assert cache is not None
    if batch is None or batch.value == 1:
        return
    beside = [Label(cache.span, "the step cache")] if cache.span is not None else []
    context.sink.error(
        "illegal-combination",
        f"`{stage.name}` cannot step {batch.value} requests together beside a step cache",
        span_of(batch, stage),
        secondary=beside,
        notes=["it leaves out blocks for one request that another needs"],
        help=["batch = 1", "or cache = none"],
    )
