"""What a request can make of a key that has a measure: `reach`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from omnic.contract.domains import Choices, Domain, Range
from omnic.expr import Expr, ExprError, Size, evaluate, names
from omnic.ir.pipeline import Open


def reach(value: Any, domain: Domain | None, domains: Mapping[str, Domain | None]) -> tuple[float, float] | None:
    """The least and the most of a setting: a number, an open key, or an expression over params with `domains`. A size
    counts by its area.

    An expression is taken at the ends of its params, which bounds all that rises or falls with each of them.
    `domain` is that of the key, for what has none of its own. None where there is no bound.
    """
    match value:
        case bool() | None:
            return None
        case Size(area=area):
            return area, area
        case int() | float():
            return value, value
        case Open(domain=own):
            return _ends(own if own is not None else domain)
        case Expr():
            found = {n.path[0]: _ends(domains.get(n.path[0])) for n in names(value)}
            known = {name: ends for name, ends in found.items() if ends is not None}
            if len(known) < len(found):
                return _ends(domain)
            corners = (dict(zip(known, corner, strict=True)) for corner in product(*known.values()))
            try:
                values = [evaluate(value, corner) for corner in corners]
            except ExprError:
                return _ends(domain)
            return min(values), max(values)
    return _ends(domain)


def _ends(domain: Domain | None) -> tuple[float, float] | None:
    match domain:
        case Range(low=low, high=high):
            bounds: tuple[Any, ...] = (low, high)
        case Choices(values=values):
            bounds = values
        case _:
            return None
    numbers = [_number(bound) for bound in bounds]
    return (min(numbers), max(numbers)) if all(isinstance(n, int | float) for n in numbers) else None


def _number(bound: Any) -> Any:
    return bound.area if isinstance(bound, Size) else getattr(bound, "base", bound)
