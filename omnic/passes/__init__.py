"""Passes: each makes one decision. `DEFAULT` is their order; `run` applies them."""

from __future__ import annotations

from omnic.passes.base import Context, Pass, PassBroken, Step, history, parse_specs, run
from omnic.passes.batch import BatchPass
from omnic.passes.budget import BudgetPass
from omnic.passes.capture import CapturePass
from omnic.passes.move import MovePass
from omnic.passes.offload import OffloadPass
from omnic.passes.place import PlacePass
from omnic.passes.quantize import QuantizePass
from omnic.passes.slice import SlicePass
from omnic.passes.stream import StreamPass

__all__ = ["DEFAULT", "PASSES", "Context", "Pass", "PassBroken", "Step", "history", "parse_spec", "run"]

PASSES: dict[str, type[Pass]] = {
    p.name: p
    for p in (
        SlicePass,
        StreamPass,
        QuantizePass,
        BatchPass,
        PlacePass,
        OffloadPass,
        MovePass,
        CapturePass,
        BudgetPass,
    )
}
DEFAULT: tuple[Pass, ...] = tuple(p() for p in PASSES.values())
_LATER = {
    "search": "the joint search over placements comes with predicted times",
    "shard": "omnic cannot spread a stage over several devices yet",
}


def parse_spec(text: str) -> tuple[Pass, ...]:
    """`slice,place{reserve=0.1}` as passes. Raises ValueError that says which name or option is wrong."""
    return parse_specs(text, PASSES, _LATER)
