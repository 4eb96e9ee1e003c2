"""The keys of a part that generates text: how tokens are drawn, and when it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnic.catalog.part import CatalogError, Key
from omnic.contract.domains import Range
from omnic.contract.types import Type

# Where a checkpoint says nothing: what the authors of SmolLM2 (135 M parameters) suggest. Measured on its GGUF over
# twelve questions: short facts come out right, and about half of the long answers begin to repeat themselves. At 0.7
# and 0.95 a tenth does, but then facts go wrong. Large models bring a generation config of their own.
FALLBACK: dict[str, float | int] = {"temperature": 0.2, "top_p": 0.9, "top_k": 0}
FALLBACK_ORIGIN = "catalog, as SmolLM2's authors suggest"


_NEUTRAL: dict[str, float | int] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
_GREEDY: dict[str, float | int] = {"temperature": 0.0, "top_p": 1.0, "top_k": 0}


def sampling_keys(max_context: int, generation: Mapping[str, Any], origin: str) -> tuple[Key, ...]:
    """The keys of a generate part. `generation` is the checkpoint's generation config, read from `origin`.

    A checkpoint that says how to sample is followed: what it leaves out is neutral, `do_sample = false` is greedy.
    Raises CatalogError (`bad-checkpoint`) if what it says cannot be meant.
    """
    stated = {name: generation[name] for name in _NEUTRAL if generation.get(name) is not None}
    defaults, read = FALLBACK, FALLBACK_ORIGIN
    if generation.get("do_sample") is False:
        defaults, read = _GREEDY, origin
    elif generation.get("do_sample") or stated:
        defaults, read = _NEUTRAL | {name: _number(name, value, origin) for name, value in stated.items()}, origin
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
        Key("stop", Type("text"), (), doc="end before any of these strings", field="stop"),
        Key("seed", Type("seed"), None, doc="the same seed gives the same draws", field="seed"),
    )


def _number(name: str, value: Any, origin: str) -> float | int:
    kind, most = type(_NEUTRAL[name]), 1 if name == "top_p" else float("inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or kind(value) != value:
        raise CatalogError(f"{origin}: `{name}` cannot be {value!r}", id="bad-checkpoint")
    return kind(value)
