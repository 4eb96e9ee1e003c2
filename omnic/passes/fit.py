"""The smallest changes that would make a plan fit a device: `changes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from omnic.ir import pipeline as ir
from omnic.ir.pipeline import Pipeline, Setting, Stage, get, put
from omnic.passes.away import most_resident, obstacle
from omnic.passes.base import Context
from omnic.passes.memory import activation_bytes, host_bytes, kv_bytes, stages_on, weight_bytes
from omnic.passes.quantize import DTYPES, precision_of

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def changes(p: Pipeline, device: ir.Device, rooms: Mapping[str, int], context: Context) -> Iterator[str]:
    """Single changes to the source after which `device` holds at most its `rooms`, each as it would be written.

    Those that only lower how many run at once come first, then precision, then other devices, then shorter requests.
    """
    stages = list(stages_on(p, device.name))
    surplus = device.planned_bytes - rooms[device.name]

    def saves(stage: Stage, name: str, value: object) -> bool:
        return _bytes(stage, context) - _bytes(_with(stage, name, value), context) >= surplus

    for stage in sorted(stages, key=lambda s: -kv_bytes(s, context)):
        slots = get(stage.how, "slots")
        if slots is not None and (fitting := _largest(int(slots.value) - 1, partial(saves, stage, "slots"))):
            yield _written(stage, slots, fitting, context)
    for stage in stages:
        if precision_of(stage) == "fp32" and saves(stage, "dtype", DTYPES["bf16"]):
            yield f"`precision = bf16` on `{stage.name}`"
        if _narrows(stage, context) and saves(stage, "dtype", DTYPES["fp8"]):
            yield f"`precision = fp8` on `{stage.name}`"
    if context.target.gpus:
        yield from _offloaded(stages, rooms, saves, context)
        yield from _elsewhere(p, device, rooms, context)
    for stage in stages:
        prompt, whole = get(stage.how, "prompt"), get(stage.how, "context")
        if prompt is None or whole is None:
            continue
        answer = int(whole.value) - int(prompt.value)
        fitting = _largest(int(whole.value) - 1, partial(saves, stage, "context")) - answer
        if fitting >= 256:
            yield f"`tokens = {fitting // 256 * 256}` on what feeds `{stage.name}`"


def _narrows(stage: Stage, context: Context) -> bool:
    """Whether a stage could be held in fp8 where it is."""
    engine = get(stage.how, "engine")
    captured = engine is not None and engine.value == "cuda_graph"
    return captured and precision_of(stage) == "bf16" and "fp8" in context.part(stage).precisions


def _offloaded(
    stages: list[Stage], rooms: Mapping[str, int], saves: Callable[[Stage, str, object], bool], context: Context
) -> Iterator[str]:
    """Blocks that leave for the host's memory, as few as do."""
    for stage in stages:
        staying, asked = partial(saves, stage, "resident"), get(stage.how, "resident")
        most = most_resident(stage, context) if asked is None else int(asked.value) - 1
        if most < 0 or not staying(0) or obstacle(_with(stage, "resident", 0), context) is not None:
            continue
        count = _largest(most, staying)
        if host_bytes(_with(stage, "resident", count), context) <= rooms[context.target.host.name]:
            yield f"`offload = layers(resident = {count})` on `{stage.name}`"


def _written(stage: Stage, slots: Setting, fitting: int, context: Context) -> str:
    """The change in the words the source used: slots, or the memory for them."""
    if not slots.reason.startswith("`kv_cache"):
        return f"`slots = {fitting}` on `{stage.name}`"
    return f"`kv_cache = {quantity(kv_bytes(_with(stage, 'slots', fitting), context))}` on `{stage.name}`"


def _elsewhere(p: Pipeline, device: ir.Device, rooms: Mapping[str, int], context: Context) -> Iterator[str]:
    """A move to a device with room, or the number of such devices that would do."""
    target, stages = context.target, list(stages_on(p, device.name))
    surplus = device.planned_bytes - rooms[device.name]
    held = {d.name: d.planned_bytes for d in p.devices}
    if len(stages) < 2:
        return
    for stage in sorted(stages, key=lambda s: _bytes(s, context)):
        for index, other in enumerate(target.devices):
            left = rooms[other.name] - (held[other.name] or other.context_bytes)
            if other.name != device.name and surplus <= _bytes(stage, context) <= left:
                yield f"`place = [{index}]` on `{stage.name}`"
                return
    of = target.device(device.name)
    sizes = sorted((_bytes(s, context) for s in stages), reverse=True)
    needed = _bins(sizes, rooms[device.name] - of.context_bytes)
    if needed is not None and of.model:
        yield f'`target = gpu("{of.model}", count = {needed})`'


def _bins(sizes: list[int], each: int) -> int | None:
    """Devices of `each` bytes that hold `sizes`, first fit; None if one is too large for any."""
    rooms: list[int] = []
    for size in sizes:
        if size > each:
            return None
        index = next((i for i, room in enumerate(rooms) if room >= size), None)
        if index is None:
            rooms.append(each - size)
        else:
            rooms[index] -= size
    return len(rooms)


def _bytes(stage: Stage, context: Context) -> int:
    return weight_bytes(stage, context) + kv_bytes(stage, context) + activation_bytes(stage, context)


def _with(stage: Stage, name: str, value: object) -> Stage:
    return replace(stage, how=put(stage.how, name, Setting(value)))


def _largest(most: int, holds: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` for which `holds`, which is true of all smaller ones; 0 if there is none."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def quantity(n: int, *, up: bool = False) -> str:
    """Bytes as the source writes them, rounded down (or `up`) to a unit small against them."""
    unit, size = next(((u, s) for u, s in _UNITS if n >= 8 * s), _UNITS[-1])
    return f"{-(-n // size) if up else n // size}{unit}"
