"""The keys of a part that generates text: how tokens are drawn, and when it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnic.catalog.part import Key
from omnic.contract.domains import Range
from omnic.contract.types import Type

# Where a checkpoint says nothing: what the authors of SmolLM2 (135 M parameters) suggest. Small models drift or
# repeat at the usual 0.7 to 1.0; large ones bring a generation_config of their own.
FALLBACK = {"temperature": 0.2, "top_p": 0.9, "top_k": 0}
FALLBACK_ORIGIN = "catalog, as SmolLM2's authors suggest"


def sampling_keys(max_context: int, generation: Mapping[str, Any], origin: str) -> tuple[Key, ...]:
    """The keys of a generate part. `generation` is the checkpoint's generation config, read from `origin`.

    A checkpoint that says how to sample is followed: what it leaves out is neutral, `do_sample = false` is greedy.
    """
    defaults, read = dict(FALLBACK), FALLBACK_ORIGIN
    if generation.get("do_sample") is False:
        defaults, read = {"temperature": 0.0, "top_p": 1.0, "top_k": 0}, origin
    elif generation.get("do_sample") or any(generation.get(k) is not None for k in FALLBACK):
        neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
        stated = {k: type(v)(generation[k]) for k, v in neutral.items() if generation.get(k) is not None}
        defaults, read = neutral | stated, origin
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
            Range(0.0, 2.0),
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
            Range(0, 1000),
            "draw from this many of the likeliest tokens; 0 for all",
            field="top_k",
            origin=read,
        ),
        Key("stop", Type("text"), (), doc="end before any of these strings", field="stop"),
        Key("seed", Type("seed"), None, doc="the same seed gives the same draws", field="seed"),
    )
