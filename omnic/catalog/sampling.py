"""The keys of a part that generates text: how tokens are drawn, and when it stops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from omnic.catalog.part import CatalogError, Key
from omnic.contract.domains import Range
from omnic.contract.types import Type

# Where a checkpoint says nothing: what the authors of SmolLM2 (135 M parameters) suggest, and a penalty on repetition.
# Measured on its GGUF over twelve questions of 256 tokens: without the penalty half of the answers end in a loop, with
# it one does; warmer draws loop less too, but then facts go wrong. Large models bring a generation config of their own.
FALLBACK: dict[str, float | int] = {"temperature": 0.2, "top_p": 0.9, "top_k": 0, "repetition_penalty": 1.1}
FALLBACK_ORIGIN = "catalog, for small models"


_NEUTRAL: dict[str, float | int] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}
_GREEDY = _NEUTRAL | {"temperature": 0.0}


def sampling_keys(max_context: int, generation: Mapping[str, Any], origin: str) -> tuple[Key, ...]:
    """The keys of a generate part. `generation` is the checkpoint's generation config, read from `origin`.

    A checkpoint that says how to sample is followed: what it leaves out is neutral, `do_sample = false` is greedy.
    Raises CatalogError (`bad-checkpoint`) if what it says cannot be meant.
    """
    if not isinstance(generation.get("do_sample"), bool | None):
        raise CatalogError(f"{origin}: `do_sample` cannot be {generation['do_sample']!r}", id="bad-checkpoint")
    stated = {n: _number(n, generation[n], origin) for n in _NEUTRAL if generation.get(n) is not None}
    penalty = {n: value for n, value in stated.items() if n == "repetition_penalty"}  # holds for greedy draws too
    defaults, read = FALLBACK, FALLBACK_ORIGIN
    if generation.get("do_sample") is False or (stated == penalty != {} and not generation.get("do_sample")):
        defaults, read = _GREEDY | penalty, origin
    elif generation.get("do_sample") or stated:
        defaults, read = _NEUTRAL | stated, origin
    return (
        Key(
            "max_tokens",
            Type("int"),
            min(256, max_context),
            Range(1, max_context),
            "most tokens to generate",
            field="max_tokens",
        ),
        Key(
            "temperature",
            Type("float"),
            defaults["temperature"],
            Range(0.0, max(2.0, defaults["temperature"])),
            "0 always takes the likeliest token; higher is freer",
            field="temperature",
            origin=read,
        ),
        Key(
            "top_p",
            Type("float"),
            defaults["top_p"],
            Range(0.0, 1.0),
            "draw from the likeliest tokens that together have this probability",
            field="top_p",
            origin=read,
        ),
        Key(
            "top_k",
            Type("int"),
            defaults["top_k"],
            Range(0, max(1000, defaults["top_k"])),
            "draw from this many of the likeliest tokens; 0 for all",
            field="top_k",
            origin=read,
        ),
        Key(
            "repetition_penalty",
            Type("float"),
            defaults["repetition_penalty"],
            Range(min(1.0, defaults["repetition_penalty"]), max(2.0, defaults["repetition_penalty"])),
            "above 1 makes tokens that were said before less likely",
            field="repetition_penalty",
            origin=read,
        ),
        Key("stop", Type("text"), (), doc="end before any of these strings", field="stop"),
        Key("seed", Type("seed"), None, doc="the same seed gives the same draws", field="seed"),
    )


def _number(name: str, value: Any, origin: str) -> float | int:
    kind, most = type(_NEUTRAL[name]), 1 if name == "top_p" else float("inf")
    least = 1e-2 if name == "repetition_penalty" else 0
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not least <= value <= most or kind(value) != value:
        raise CatalogError(f"{origin}: `{name}` cannot be {value!r}", id="bad-checkpoint")
    return kind(value)
