"""`budget`: the proof that everything fits, device by device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from omnic import target as targets
from omnic.diagnostics import Label, Sink
from omnic.expr import Binary, Call, Expr, Literal, Name, Quantity
from omnic.ir import pipeline as ir
from omnic.ir.pipeline import Pipeline, Setting, Stage, get, put
from omnic.passes.base import Context, Pass, require_share
from omnic.passes.fit import changes
from omnic.passes.memory import (
    PROCESS_BYTES,
    activation_bytes,
    free_bytes,
    host_bytes,
    kv_bytes,
    memory_text,
    process_bytes,
    stages_on,
    weight_bytes,
)
from omnic.source import Span


@dataclass(frozen=True, slots=True)
class BudgetPass(Pass):
    """Adds up what the plan puts on every device: weights, KV cache, activations and what processes take by
    themselves. `reserve` is the share of a device that must stay free.

    After it every device holds its sum, and the sum with the reserve is within what the device has, within what is
    free of it, and within the limits on memory that the source sets.
    """

    name: ClassVar[str] = "budget"
    reserve: float = 0.05

    def __post_init__(self) -> None:
        require_share(self.name, self.reserve)

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        limits = dict(_memory_limits(pipeline, context))
        planned = replace(pipeline, devices=devices(pipeline, context))
        within = rooms(pipeline, self.reserve, replace(context, sink=Sink()))
        for device in planned.devices:
            of, need = context.target.device(device.name), device.planned_bytes
            refusal = _Refusal(planned, device, within, self.reserve, context)
            if device.name in limits and need > limits[device.name][0]:
                rule = limits[device.name][1]
                refusal.say(f"`limit {rule}` is not met: `{device.name}` needs {memory_text(need)}", rule)
            elif need > within[device.name]:
                refusal.say(_headline(planned, device, of), None)
            elif context.target.here and need > of.free_bytes:
                context.sink.warning(
                    "not-free-now",
                    f"`{pipeline.name}` needs {memory_text(need)}; {memory_text(of.free_bytes)} is free here now",
                    notes=[table(device, of)],
                )
        return planned

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for device in pipeline.devices:
            if device.planned_bytes > _room(context.target.device(device.name), self.reserve):
                yield f"`{device.name}` holds more than it may"
        if {d.name for d in pipeline.devices} != {d.name for d in devices(pipeline, context)}:
            yield "a device is missing"


def rooms(p: Pipeline, reserve: float, context: Context) -> dict[str, int]:
    """The bytes that a plan may put on each device, less what stays in reserve and within the limits of the source."""
    every = (*context.target.devices, *([context.target.host] if context.target.gpus else []))
    found = {of.name: _room(of, reserve) for of in every}
    for name, (most, _) in _memory_limits(p, context):
        found[name] = min(found[name], most)
    return found


def _room(device: targets.Device, reserve: float) -> int:
    """Of this machine, of what it has; of any other, of what is free of it. Without end where its memory is not
    stated."""
    if not device.memory_bytes:
        return 1 << 62
    available = device.memory_bytes if device.origin == "this machine" else free_bytes(device)
    return available - int(device.memory_bytes * reserve)


def devices(p: Pipeline, context: Context) -> tuple[ir.Device, ...]:
    """Every device of the target, and the host beside GPUs, with what the plan puts there.

    The capacity of this machine is written as 0: what it has is no part of the plan.
    """
    target, found = context.target, []
    for of in target.devices:
        stages = list(stages_on(p, of.name))
        items = [item for stage in stages for item in _items(stage, context)]
        if of.kind == "cpu":
            items.append(("process", process_bytes(stages, context)))
        elif stages:
            items.append(("process", of.context_bytes))
        found.append(ir.Device(of.name, 0 if target.here else of.memory_bytes, tuple(items)))
    if target.gpus:
        beside = list(stages_on(p, target.host.name))
        items = [item for stage in beside for item in _items(stage, context)]
        gone = ((stage.name, host_bytes(stage, context)) for stage in p.stages)
        items += [(f"{name} blocks", count) for name, count in gone if count]
        processes = [list(stages_on(p, of.name)) for of in target.devices]
        processes[0] += beside
        used = [stages for stages in processes if stages]
        items.append(("processes", sum(process_bytes(s, context) for s in used) if used else PROCESS_BYTES))
        found.append(ir.Device(target.host.name, target.host.memory_bytes, tuple(items)))
    return tuple(found)


def _items(stage: Stage, context: Context) -> Iterator[tuple[str, int]]:
    for purpose, count in (("weights", weight_bytes), ("kv", kv_bytes), ("activations", activation_bytes)):
        if n := count(stage, context):
            yield f"{stage.name} {purpose}", n


def table(device: ir.Device, of: targets.Device) -> str:
    """What a device holds, a line an item, aligned."""
    rows = [*device.items, ("in all", device.planned_bytes)]
    width = max(len(name) for name, _ in rows)
    have = (
        f"{device.name} has {memory_text(of.memory_bytes)}"
        if of.memory_bytes
        else f"{device.name} (its memory is not stated)"
    )
    if of.free_bytes < of.memory_bytes:
        have += f", {memory_text(of.free_bytes)} of it free"
    return "\n".join([have, *(f"  {name:<{width}}  {memory_text(n):>9}" for name, n in rows)])


def _headline(p: Pipeline, device: ir.Device, of: targets.Device) -> str:
    names = [f"`{s.name}`" for s in stages_on(p, device.name)]
    who = " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0] if names else f"`{p.name}`"
    verb = "need" if len(names) > 1 else "needs"
    free = f", {memory_text(of.free_bytes)} free" if of.free_bytes < of.memory_bytes else ""
    have = f"{memory_text(of.memory_bytes)}{free}"
    return f"{who} {verb} {memory_text(device.planned_bytes)} on one device of {have}"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A device that would hold more than its `rooms` allow."""

    pipeline: Pipeline
    device: ir.Device
    rooms: dict[str, int]
    reserve: float
    context: Context

    def say(self, headline: str, rule: Expr | None) -> None:
        """The diagnostic: what each stage takes where it stands, the table of every device, and what would fit."""
        labels = list(self._labels())
        span = getattr(rule, "span", None)
        primary = Label(span) if isinstance(span, Span) else labels.pop(0) if labels else None
        room = self.rooms[self.device.name]
        self.context.sink.error(
            "does-not-fit",
            headline,
            primary.span if primary else None,
            primary.text if primary else "",
            secondary=labels,
            notes=[
                *(table(d, self.context.target.device(d.name)) for d in self.pipeline.devices if d.items),
                f"a plan may put {memory_text(room)} there; {memory_text(self.device.planned_bytes - room)} too much",
            ],
            help=[self._help()],
        )

    def _labels(self) -> Iterator[Label]:
        """What each stage takes, the largest first, at the setting that says how much where there is one."""
        for stage in sorted(stages_on(self.pipeline, self.device.name), key=lambda s: -self._total(s)):
            parts = " + ".join(f"{name.rpartition(' ')[2]} {memory_text(n)}" for name, n in _items(stage, self.context))
            slots = get(stage.how, "slots")
            where = slots.span if slots is not None and slots.span is not None else stage.span
            if where is not None and parts:
                yield Label(where, parts)

    def _total(self, stage: Stage) -> int:
        return sum(n for _, n in _items(stage, self.context))

    def _help(self) -> str:
        found = list(changes(self.pipeline, self.device, self.rooms, self.context))
        if found:
            return f"smallest changes that fit: {'; or '.join(found)}"
        smallest = self.pipeline
        for stage in stages_on(smallest, self.device.name):
            if get(stage.how, "slots") is not None:
                smallest = smallest.with_stage(replace(stage, how=put(stage.how, "slots", Setting(1))))
        least = next(d for d in devices(smallest, self.context) if d.name == self.device.name).planned_bytes
        larger = "".join(f"; `{name}` has as much" for name in self._larger(least)[:1])
        return f"no single change fits: with one slot in each stage it still needs {memory_text(least)}{larger}"

    def _larger(self, least: int) -> list[str]:
        """GPUs that hold `least` bytes and keep their reserve, the smallest first."""
        if self.device.name == self.context.target.host.name:
            return []
        rooms = {name: int(gpu.memory_bytes * (1 - self.reserve)) for name, gpu in targets.presets().items()}
        return sorted((name for name, room in rooms.items() if room >= least), key=lambda name: rooms[name])


# --- limits -----------------------------------------------------------------------------------------------------------


def _memory_limits(p: Pipeline, context: Context) -> Iterator[tuple[str, tuple[int, Expr]]]:
    """The device and bytes of each `limit memory(gpu) <= 24GiB`. Other limits are refused."""
    for rule in p.limits:
        match rule:
            case Binary(
                op="<=" | "<",
                left=Call(function="memory", args=(Name(path=(kind,)),)),
                right=Literal(value=Quantity() as most),
            ) if most.dimension == "B":
                names = _of_kind(kind, context.target)
                if not names:
                    why = f"`limit {rule}`: target `{context.target.name}` has no {kind}"
                    context.sink.error("no-such-device", why, getattr(rule, "span", None))
                yield from ((name, (int(most.base), rule)) for name in names)
            case _:
                context.sink.error(
                    "not-supported-yet",
                    f"`limit {rule}` cannot be held yet: omnic predicts memory, not times",
                    getattr(rule, "span", None),
                    help=["`limit memory(gpu) <= 24GiB` can be, also of cpu and host"],
                )


def _of_kind(kind: str, target: targets.Target) -> list[str]:
    everything = [*target.devices, *([target.host] if target.gpus else [])]
    return [d.name for d in everything if kind == d.kind or kind == d.name]
