"""Values of a config.json, each held to what it must be. All raise CatalogError (`bad-checkpoint`), naming the value.

`where` is the file, as messages name it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from omnic.catalog.part import CatalogError

_MOST = 1 << 31
_MOST_LAYERS = 4096  # each has tensors of its own, which are listed


def token_ids(given: Mapping[str, Any], name: str, where: str) -> list[int]:
    """The token ids under `name`, which holds one, a list of them, or nothing."""
    value = given.get(name)
    ids = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    if any(type(id) is not int or not 0 <= id < _MOST for id in ids):
        raise bad_checkpoint(where, f"`{name}` is {value!r}, not a token id or a list of them")
    return ids


def bad_checkpoint(where: str, why: str) -> CatalogError:
    return CatalogError(f"{where}: {why}", id="bad-checkpoint")


def count(full: Mapping[str, Any], name: str, where: str, default: int | None = None) -> int:
    """The positive whole number under `name`; `default` where there is none."""
    value = full.get(name) if full.get(name) is not None else default
    if type(value) is not int or not 1 <= value < _MOST:
        raise bad_checkpoint(where, f"`{name}` is {value!r}, not a positive whole number")
    if name == "num_hidden_layers" and value > _MOST_LAYERS:
        raise bad_checkpoint(where, f"`{name}` is {value}, beyond any model")
    return value


def positive(full: Mapping[str, Any], name: str, where: str) -> float:
    """The positive number under `name`."""
    value = full.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise bad_checkpoint(where, f"`{name}` is {value!r}, not a positive number")
    return float(value)


def flag(full: Mapping[str, Any], name: str, where: str, default: bool = False) -> bool:
    """The truth value under `name`; `default` where there is none."""
    value = full.get(name, default)
    if not isinstance(value, bool):
        raise bad_checkpoint(where, f"`{name}` is {value!r}, neither true nor false")
    return value


def object_(full: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The object under `name`; an empty one where there is none."""
    value = full.get(name)
    if value is not None and not isinstance(value, dict):
        raise bad_checkpoint(where, f"`{name}` is {value!r}, not an object")
    return value or {}
