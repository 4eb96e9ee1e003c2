"""What `batch` decides of a denoise stage: who steps with whom, and what a step may leave out."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog.part import StepCache
from omnic.diagnostics import Label, listing
from omnic.ir.pipeline import Setting, Settings, Stage, get, put
from omnic.passes.base import Context, decide, span_of, without

_CACHE, _THRESHOLD = "step_cache", "step_cache_threshold"
_SLOTS = 4  # at least: those that cannot step together take turns


def denoised(stage: Stage, fits: int, context: Context) -> Stage:
    """A stage with its step cache, batch, slots and mode. `fits` is how many requests there is room for in a
    forward."""
    stage = _cached(stage, context)
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
    asked, threshold = get(stage.how, _CACHE), get(stage.how, _THRESHOLD)
    if asked is None or asked.value == "none":
        if threshold is not None:
            context.sink.error(
                "misplaced-key",
                f"`{_THRESHOLD}` of `{stage.name}` counts only beside a `{_CACHE}`",
                span_of(threshold, stage),
            )
        return replace(stage, how=without(stage.how, _CACHE, _THRESHOLD))
    offered = _offered(stage, context)
    if asked.value not in offered:
        has = f"it can have {listing(offered)}" if offered else "its family offers none"
        context.sink.error(
            "no-such-choice", f"`{stage.name}` cannot have the step cache `{asked.value}`", span_of(asked, stage), has
        )
        return replace(stage, how=without(stage.how, _CACHE, _THRESHOLD))
    cache = offered[asked.value]
    how: Settings = put(stage.how, _CACHE, replace(asked, reason=_drift(cache, threshold)))
    return replace(
        stage, how=decide(how, _THRESHOLD, cache.threshold, f"where {cache.kind} was tried", "catalog default")
    )


def _drift(cache: StepCache, threshold: Setting | None) -> str:
    if not cache.drift:
        return "drift not measured for this model"
    if threshold is not None and threshold.value != cache.threshold:
        return f"drift not measured at this threshold; at {cache.threshold:g}: {cache.drift}"
    return f"measured: {cache.drift}"


def _refuse_batch(stage: Stage, context: Context) -> None:
    batch, cache = get(stage.how, "batch"), get(stage.how, _CACHE)
    assert cache is not None
    if batch is None or batch.value == 1:
        return
    beside = [Label(cache.span, f"`{_CACHE}`")] if cache.span is not None else []
    context.sink.error(
        "illegal-combination",
        f"`{stage.name}` cannot step {batch.value} requests together beside a step cache",
        span_of(batch, stage),
        secondary=beside,
        notes=["it leaves out blocks for one request that another needs"],
        help=["batch = 1", f"or {_CACHE} = none"],
    )
