"""What the families of sound share."""

from __future__ import annotations

from omnic.catalog.part import Key
from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type

MONO = "sound has one channel: the mean of those that the model makes"


def channels() -> Key:
    """Says of a part that its model makes more channels than omnic's sound has."""
    return Key("channels", Type("int"), 1, Range(1, 8), MONO, now=Choices((1,)), later=f"omnic's {MONO}")
