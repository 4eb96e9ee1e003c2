"""`batch`: how many requests a stage runs at once, and how long each may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.ir.pipeline import Open, Pipeline, Setting, Settings, Stage, get, put
from omnic.ir.shared import alike
from omnic.passes.base import Context, Pass, decide, span_of, without
from omnic.passes.denoise import denoised
from omnic.passes.fit import quantity
from omnic.passes.memory import activation_bytes, free_bytes, kv_bytes, memory_text, weight_bytes
from omnic.passes.reach import reach
from omnic.passes.slice import origin
from omnic.target import Target

_PROMPT, _ANSWER = 2048, 1024  # tokens, where neither the source nor the model says less


@dataclass(frozen=True, slots=True)
class BatchPass(Pass):
    """Decides for every generate stage the longest prompt and context it serves, its slots and the size of a prefill
    chunk; for every decode stage its lanes; for every denoise stage its slots, how many share a forward, and its step
    cache. `slots` caps what is decided, not what is pinned.

    After it a context holds the longest prompt and the longest answer a request may ask for, the model can go that
    far, and there is at least one slot or lane: capacity for any one request of the contract.
    """

    name: ClassVar[str] = "batch"
    slots: int = 0  # most that is decided; 0: 8 on a CPU, 64 on a GPU
    chunk: int = 0  # prefill chunk; 0: 64 on a CPU, 512 on a GPU

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        for stage in pipeline.stages:
            if stage.kind == "generate":
                pipeline = pipeline.with_stage(self._lengths(pipeline, stage, context))
            elif stage.kind == "decode":
                reason = "one synthesis at a time: it is far faster than speech"
                pipeline = pipeline.with_stage(replace(stage, how=decide(stage.how, "lanes", 1, reason)))
            elif stage.kind == "denoise":
                pipeline = pipeline.with_stage(denoised(stage, _in_a_forward(pipeline, stage, context), context))
        if context.sink.has_errors:
            return pipeline
        pipeline = replace(pipeline, stages=tuple(alike(pipeline.stages, context.sink)))
        generates = [s for s in pipeline.stages if s.kind == "generate"]
        for stage in generates:
            pipeline = pipeline.with_stage(self._slots(pipeline, stage, context, len(generates)))
        return pipeline

    def _lengths(self, pipeline: Pipeline, stage: Stage, context: Context) -> Stage:
        limit = context.part(stage).max_context or _PROMPT + _ANSWER
        bound, where = _prompt_bound(pipeline, stage)
        prompt = bound or max(1, min(_PROMPT, limit // 2))
        reason = f"`{where}` says so" if bound else f"`{where}` has no bound on tokens; catalog default"
        answer, stage = _answer_bound(stage, limit - prompt, context)
        if prompt + answer > limit:
            asked = get(stage.keys, "max_tokens")
            context.sink.error(
                "context-too-long",
                f"`{stage.name}` needs a context of {prompt + answer} tokens; its model goes to {limit}",
                span_of(asked, stage),
                notes=[f"prompt {prompt} (`{where}`) + answer {answer} (`max_tokens`)"],
                help=list(_shorter(prompt, answer, limit, where)),
            )
        chunk = self.chunk or (512 if context.target.gpus else 64)
        how = put(stage.how, "context", Setting(prompt + answer, reason=f"prompt {prompt} + answer {answer}"))
        how = put(how, "prompt", Setting(prompt, "planner" if bound else "catalog default", reason))
        how = put(how, "prefill_chunk", Setting(min(chunk, prompt), reason="short enough that running answers go on"))
        return replace(stage, how=_first(how, "dtype", "slots", "kv_cache"))

    def _slots(self, pipeline: Pipeline, stage: Stage, context: Context, sharing: int) -> Stage:
        target, pinned, cache = context.target, get(stage.how, "slots"), get(stage.how, "kv_cache")
        per_slot = kv_bytes(replace(stage, how=put(stage.how, "slots", Setting(1))), context)
        how = without(stage.how, "kv_cache")
        if cache is not None:
            room = int(getattr(cache.value, "base", cache.value))
            fits = room // per_slot
            why = f"`kv_cache = {cache.value}` holds {fits} of {memory_text(per_slot)}"
            if fits < 1 or (pinned is not None and pinned.value > fits):
                context.sink.error(
                    "kv-cache-too-small",
                    f"`{stage.name}`: `kv_cache = {cache.value}` holds {fits} slots of {memory_text(per_slot)}"
                    + (f", not {pinned.value}" if pinned else ""),
                    span_of(cache, stage),
                    help=[f"kv_cache = {quantity(per_slot * (pinned.value if pinned else 1), up=True)}"],
                )
            elif pinned is None:
                how = put(how, "slots", Setting(fits, cache.origin, why, cache.span))
        elif pinned is None:
            most = self.slots or (64 if target.gpus else 8)
            fits = most if target.here else _share(pipeline, target, context, sharing) // per_slot
            why = f"{memory_text(per_slot)} each" if fits >= most else f"what fits, {memory_text(per_slot)} each"
            how = put(how, "slots", Setting(max(1, min(most, fits)), reason=why))
        return replace(stage, how=_first(how, "dtype", "slots"))

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for stage in pipeline.stages:
            how = {name: s.value for name, s in stage.how}
            if stage.kind == "generate":
                if how.get("slots", 0) < 1 or not 0 < how.get("prompt", 0) < how.get("context", 0):
                    yield f"stage `{stage.name}` has no room for a request"
                if how["context"] > (context.part(stage).max_context or how["context"]):
                    yield f"stage `{stage.name}` goes further than its model"
            if stage.kind == "decode" and how.get("lanes", 0) < 1:
                yield f"stage `{stage.name}` has no lanes"
            if stage.kind == "denoise" and not 1 <= how.get("batch", 0) <= how.get("slots", 0):
                yield f"stage `{stage.name}` has no room for a batch"


def _prompt_bound(pipeline: Pipeline, stage: Stage) -> tuple[int | None, str]:
    """The bound on tokens of what feeds a stage, and the name of what has it or should have it."""
    types: dict[str, Type] = {i.name: i.type for i in pipeline.inputs}
    types |= {f"{s.name}.{port}": type_ for s in pipeline.stages for port, type_ in s.outputs}
    for port, source in stage.inputs:
        name = origin(pipeline, source)
        bound = types[name].bound("tokens") or types[name].bound("max_tokens")
        return (None if bound is None else int(bound)), name if "." not in name else f"{stage.name}.{port}"
    return None, stage.name


def _shorter(prompt: int, answer: int, limit: int, where: str) -> Iterator[str]:
    """How to ask for less: a shorter prompt or a shorter answer."""
    if answer < limit:
        yield f"bound `{where}` with `tokens = {limit - answer}`"
    if prompt < limit:
        yield f"let `max_tokens` be {limit - prompt} at most: a number, or a param in 1..{limit - prompt}"


def _answer_bound(stage: Stage, room: int, context: Context) -> tuple[int, Stage]:
    """The most tokens a request may ask for. Where the source leaves it open, the request field is bounded here."""
    setting, key = get(stage.keys, "max_tokens"), context.part(stage).key("max_tokens")
    most = min(_ANSWER, max(1, room))
    if setting is not None and isinstance(setting.value, Open):
        knob = setting.value
        default = min(knob.default, most) if isinstance(knob.default, int) else most
        bounded = replace(setting, value=replace(knob, domain=Range(1, most), default=default))
        return most, replace(stage, keys=put(stage.keys, "max_tokens", bounded))
    ends = reach(setting.value, key.domain if key else None, context.domains) if setting is not None else None
    return (most if ends is None else ceil(ends[1])), stage


def _in_a_forward(pipeline: Pipeline, stage: Stage, context: Context) -> int:
    """How many requests a forward of a denoise stage has room for, as if all that stages take lay on the smallest
    device. Plans for this machine do not depend on what is free here now."""
    most = 64
    if not context.target.here:
        sharing = sum(s.kind == "denoise" for s in pipeline.stages)
        others = sum(activation_bytes(s, context) for s in pipeline.stages if s.kind not in ("denoise", "generate"))
        room = _share(pipeline, context.target, context, sharing) - others // sharing
        while most > 1 and activation_bytes(replace(stage, how=put(stage.how, "batch", Setting(most))), context) > room:
            most -= 1
    return most


def _share(pipeline: Pipeline, target: Target, context: Context, sharing: int) -> int:
    """Bytes for the KV cache of one of `sharing` stages, as if all weights lay on the smallest device."""
    smallest = min(free_bytes(d) - d.context_bytes for d in target.devices)
    weights = sum(
        weight_bytes(s, context) for s in pipeline.stages if not target.gpus or "gpu" in context.part(s).devices
    )
    return max(0, int(smallest * 0.85) - weights) // sharing


def _first(settings: Settings, *names: str) -> Settings:
    """`settings` with those of `names` in front, in that order."""
    front = tuple((n, s) for name in names if (s := get(settings, n := name)) is not None)
    return (*front, *without(settings, *names))
