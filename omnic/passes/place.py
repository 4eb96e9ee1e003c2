"""`place`: on which devices each stage runs, and on how many cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic.ir.pipeline import Pipeline, Setting, Stage, get
from omnic.passes.base import Context, Pass, decide, require_share, settle, span_of, without
from omnic.passes.memory import activation_bytes, free_bytes, kv_bytes, weight_bytes
from omnic.target import Target

_SETTLED = (
    "replicas",
    "isolate",
    "tensor_parallel",
    "cfg_parallel",
    "vae_parallel",
    "deterministic",
)


@dataclass(frozen=True, slots=True)
class PlacePass(Pass):
    """Puts every stage on a device: where the source pins it, else the largest first, each where most room is left
    once `reserve` of the device is kept free. What cannot run on a GPU runs on the host. Decides threads too.

    After it every stage is on devices of the target that its part can run on, and no key of the language is left that
    says how a stage runs: each has become a setting of the runtime, or says what holds anyway.
    """

    name: ClassVar[str] = "place"
    reserve: float = 0.05

    def __post_init__(self) -> None:
        require_share(self.name, self.reserve)

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        if context.target.hosts > 1:
            why = f"omnic cannot run over the {context.target.hosts} hosts of `{context.target.name}` yet"
            context.sink.error("not-supported-yet", why)
        for stage in pipeline.stages:
            pipeline = pipeline.with_stage(settle(stage, context.sink, *_SETTLED))
        pinned = [s for s in pipeline.stages if get(s.how, "place") is not None or get(s.how, "on") is not None]
        free = sorted((s for s in pipeline.stages if s not in pinned), key=lambda s: -_bytes(s, context))
        room = {d.name: int(free_bytes(d) * (1 - self.reserve)) - d.context_bytes for d in context.target.devices}
        for stage in (*pinned, *free):
            placed = self._placed(stage, room, context)
            on = get(placed.how, "on")
            if on is not None and on.value[0] in room:
                room[on.value[0]] -= _bytes(stage, context)
            pipeline = pipeline.with_stage(_threads(placed, context))
        return pipeline

    def _placed(self, stage: Stage, room: dict[str, int], context: Context) -> Stage:
        target, part, asked = context.target, context.part(stage), get(stage.how, "place")
        how = without(stage.how, "place")
        if get(how, "on") is not None:
            return replace(stage, how=how)
        if asked is not None:
            devices = self._asked(stage, asked, context)
            decided = Setting(devices, asked.origin, "pinned by `place`", asked.span)
        elif target.gpus and "gpu" not in part.devices:
            decided = Setting((target.host.name,), reason=f"`{stage.part}` runs on the host's processor")
        else:
            best = max(room, key=lambda name: room[name])
            others = "the only device" if len(room) == 1 else "where most room is left"
            decided = Setting((best,), reason=others)
        return replace(stage, how=(("on", decided), *how))

    def _asked(self, stage: Stage, asked: Setting, context: Context) -> tuple[str, ...]:
        """The names of the devices that `place` asks for."""
        target, span = context.target, span_of(asked, stage)
        numbers = asked.value if isinstance(asked.value, tuple) else (asked.value,)
        last = len(target.devices) - 1
        for number in numbers:
            if type(number) is not int or not 0 <= number <= last:
                has = f"target `{target.name}` has {f'devices 0 to {last}' if last else 'device 0 alone'}"
                context.sink.error("no-such-device", f"`{stage.name}` asks for device {number}; {has}", span)
                return (target.devices[0].name,)
        if len(set(numbers)) != len(numbers) or not numbers:
            context.sink.error("no-such-device", f"`place` of `{stage.name}` must list devices, each once", span)
        elif len(numbers) > 1:
            why = "omnic cannot spread a stage over several devices yet"
            context.sink.error("not-supported-yet", f"`place` of `{stage.name}`: {why}", span)
        elif target.gpus and "gpu" not in context.part(stage).devices:
            why = f"`{stage.part}` runs on the host's processor only"
            context.sink.error("no-such-device", f"`{stage.name}` cannot be placed: {why}", span, "remove this")
        return tuple(target.devices[n].name for n in numbers) or (target.devices[0].name,)

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        known = {d.name: d.kind for d in (*context.target.devices, context.target.host)}
        for stage in pipeline.stages:
            on = get(stage.how, "on")
            if on is None or any(known.get(name) not in context.part(stage).devices for name in on.value):
                yield f"stage `{stage.name}` is on no device it can run on"
            for name in ("place", "precision", "kv_cache", *_SETTLED):
                if get(stage.how, name) is not None:
                    yield f"stage `{stage.name}` still has `{name}`"


def _bytes(stage: Stage, context: Context) -> int:
    return weight_bytes(stage, context) + kv_bytes(stage, context) + activation_bytes(stage, context)


def _threads(stage: Stage, context: Context) -> Stage:
    """What runs on torch takes every core it can get; speech keeps up on one, and shares."""
    threads, reason = _cores(stage, context.target)
    return stage if threads is None else replace(stage, how=decide(stage.how, "threads", threads, reason))


def _cores(stage: Stage, target: Target) -> tuple[int | None, str]:
    if stage.kind == "decode":
        return 1, "one core is far faster than speech"
    if stage.kind not in ("generate", "denoise", "transform") or stage.model is None:
        return None, ""
    if target.gpus:
        return 1, "the device does the work"
    if target.cores is None:
        return 0, "all cores of the machine that serves"
    return target.cores, f"all {target.cores} cores of the target"
