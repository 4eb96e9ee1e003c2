"""What layer offload takes and saves: which blocks leave, their bytes, how long they are fetched for."""

from __future__ import annotations

from omnic.contract.blocks import FEWEST, leaving
from omnic.expr import Call, Size, evaluate
from omnic.ir.pipeline import Open, Stage, get
from omnic.passes.base import Context
from omnic.passes.quantize import precision_of

_BRANCHES = 2  # of guidance, for the forward that a plan speaks of
_REACHED = 0.52  # of a device's rate of matrix products, by an eager forward: Qwen-Image, 1024x1024, on an H200


def resident(stage: Stage) -> int | None:
    """How many blocks of each transformer stay on the device: as decided, else as asked for, 0 where that is open. None
    where all do."""
    decided, asked = get(stage.how, "resident"), get(stage.how, "offload")
    if decided is not None:
        return int(decided.value)
    if asked is None or asked.value is None:
        return None
    return int(getattr(asked.value.args[0], "value", 0)) if isinstance(asked.value, Call) else 0


def blocks_of(stage: Stage, context: Context) -> tuple[tuple[int, ...], ...]:
    """Bytes of the blocks of each transformer."""
    return tuple(sizes for sizes in context.part(stage).blocks_as(precision_of(stage)) if sizes)


def most_resident(stage: Stage, context: Context) -> int:
    """The most blocks that can stay where anything is to be gained; below 0 where nothing is."""
    return min(map(len, blocks_of(stage, context)), default=0) - FEWEST


def host_bytes(stage: Stage, context: Context) -> int:
    """The blocks that lie on the host."""
    return sum(map(sum, _gone(stage, context)))


def saved_bytes(stage: Stage, context: Context) -> int:
    """What the device holds less: the blocks that leave, but for two buffers of the largest."""
    gone = _gone(stage, context)
    return sum(map(sum, gone)) - 2 * max((max(sizes) for sizes in gone if sizes), default=0)


def obstacle(stage: Stage, context: Context) -> tuple[str, list[str]] | None:
    """Why no block of a stage can leave its device, and what to write instead; None where some can."""
    on, cache, most = get(stage.how, "on"), get(stage.how, "step_cache"), most_resident(stage, context)
    if on is not None and context.target.device(on.value[0]).kind != "gpu":
        return "they run where they lie, in the host's memory", ["remove `offload`"]
    if precision_of(stage) == "fp8":
        return "in fp8 it runs as captured graphs, which read weights where they are", ["precision = bf16"]
    if most < 0:
        return f"`{stage.part}` has no list of {FEWEST} blocks or more", ["remove `offload`"]
    if (resident(stage) or 0) > most:
        why = f"two buffers take the places of two, so that {FEWEST} must leave for anything to be gained"
        return why, [f"offload = layers(resident = {most})", "or offload = none"]
    if cache is not None and cache.value == "tea":
        why = "a step cache `tea` reads the first block also where it does not run"
        return why, ["cache = first_block", "or offload = none"]
    return None


def forward_seconds(stage: Stage, context: Context) -> tuple[float, float | None] | None:
    """How long one forward fetches over the link, and how long the work takes of one request with two branches, where
    the part says how much that is: a forward takes the longer of the two. None where the link is not known. Of several
    transformers a step runs one: the largest counts."""
    on = get(stage.how, "on")
    device = context.target.device(on.value[0]) if on is not None else context.target.host
    if not device.link:
        return None
    link = max(map(sum, _gone(stage, context)), default=0) / device.link
    size, rate = size_of(stage, context), dict(device.rates).get(precision_of(stage) or "", 0.0)
    if size is None or not rate:
        return link, None
    area = {"size_low": float(size.area), "size_high": float(size.area)}
    flops = _BRANCHES * float(evaluate(context.part(stage).forward_flops, area))
    return link, flops / (rate * _REACHED) if flops else None


def size_of(stage: Stage, context: Context) -> Size | None:
    """The size that a stage makes unless told otherwise."""
    found, key = get(stage.keys, "size"), context.part(stage).key("size")
    value = found.value if found is not None else None
    given = value.default if isinstance(value, Open) else value
    given = given if isinstance(given, Size) else key.default if key is not None else None
    return given if isinstance(given, Size) else None


def _gone(stage: Stage, context: Context) -> list[tuple[int, ...]]:
    """Bytes of the blocks of each transformer that leave."""
    stays = resident(stage)
    if stays is None:
        return []
    sizes = [each for each in blocks_of(stage, context) if len(each) - stays >= FEWEST]
    return [tuple(each[at] for at in leaving(len(each), stays)) for each in sizes]
