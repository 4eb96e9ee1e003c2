"""The values a param or a request field may take: `1..1024`, `0..20 step 0.5`, `[512x512, 1024x1024]`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from omnic.expr import ExprError, Quantity, Reader, Size, evaluate, format_value, parse, parse_literal

Bound: TypeAlias = int | float | Size | Quantity


class OutOfDomain(ValueError):
    """A value that a param or request field cannot take. `field` is its name."""

    def __init__(self, field: str, value: Any, domain: Domain) -> None:
        rule = (
            "one of " + ", ".join(map(format_value, domain.values)) if isinstance(domain, Choices) else f"in {domain}"
        )
        super().__init__(f"`{field}` must be {rule}, not {format_value(value)}")
        self.field = field


@dataclass(frozen=True, slots=True)
class Range:
    """`low..high`, both included, in steps from `low` where `step` is given. Sizes compare per axis."""

    low: Bound
    high: Bound
    step: int | float | None = None

    def __contains__(self, value: Any) -> bool:
        if isinstance(self.low, Size) and isinstance(self.high, Size):
            if not isinstance(value, Size) or value.depth != self.low.depth:
                return False
            axes = ((value.width, self.low.width, self.high.width), (value.height, self.low.height, self.high.height))
            return all(self._holds(*axis) for axis in axes)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self._holds(value, *self.numbers)

    def require(self, field: str, value: Any) -> None:
        """Raises OutOfDomain unless `value` is in this range."""
        if value not in self:
            raise OutOfDomain(field, value, self)

    @property
    def numbers(self) -> tuple[float, float]:
        """Its ends as numbers, in base units. For ranges that are not of sizes."""
        return _base(self.low), _base(self.high)

    def _holds(self, value: float, low: float, high: float) -> bool:
        if not low <= value <= high:  # also false for nan
            return False
        if self.step is None:
            return True
        steps = (value - low) / self.step
        return math.isclose(steps, round(steps), abs_tol=1e-9)

    def __str__(self) -> str:
        step = "" if self.step is None else f" step {format_value(self.step)}"
        return f"{format_value(self.low)}..{format_value(self.high)}{step}"


@dataclass(frozen=True, slots=True)
class Choices:
    """The listed values and no others."""

    values: tuple[Any, ...]

    def __contains__(self, value: Any) -> bool:
        return any(type(value) is type(v) and value == v for v in self.values) or (
            isinstance(value, float) and value.is_integer() and int(value) in self.values
        )

    def require(self, field: str, value: Any) -> None:
        """Raises OutOfDomain unless `value` is one of the choices."""
        if value not in self:
            raise OutOfDomain(field, value, self)

    def __str__(self) -> str:
        return format_value(self.values)


Domain: TypeAlias = Range | Choices


class BrokenRule(ValueError):
    """Arguments that a `require` of the pipeline does not allow."""

    def __init__(self, rule: str, values: Mapping[str, Any], why: str = "") -> None:
        given = ", ".join(f"{name} = {format_value(value)}" for name, value in values.items())
        super().__init__(f"the request must satisfy `{rule}`; it has {given}{why and f' ({why})'}")


class Rule:
    """A `require` of the pipeline, parsed once."""

    def __init__(self, text: str) -> None:
        self.text, self._expr = text, parse(text)

    def require(self, **values: Any) -> None:
        """Raises BrokenRule unless the rule can be applied to these values and holds for them."""
        try:
            holds = evaluate(self._expr, values)
        except ExprError as error:
            raise BrokenRule(self.text, values, str(error)) from None
        if not holds:
            raise BrokenRule(self.text, values)


def _base(bound: Bound) -> float:
    return bound.base if isinstance(bound, Quantity) else bound  # type: ignore[return-value]  # a Size never gets here


def within(inner: Domain, outer: Domain) -> bool:
    """Whether every value of `inner` is one of `outer`."""
    if isinstance(inner, Choices):
        return all(v in outer for v in inner.values)
    if isinstance(outer, Choices):
        if isinstance(inner.low, int) and isinstance(inner.high, int) and isinstance(inner.step, int | None):
            return all(v in outer for v in range(inner.low, inner.high + 1, inner.step or 1))
        return False
    aligned = outer.step is None or (inner.step is not None and (inner.step / outer.step).is_integer())
    return inner.low in outer and (inner.high in Range(outer.low, outer.high)) and aligned


def parse_domain(text: str) -> Domain:
    """The domain in `text`, in the syntax that `str` prints. Raises ExprError."""
    reader = Reader(text)
    domain = domain_from(reader)
    reader.end()
    return domain


def domain_from(reader: Reader) -> Domain:
    if reader.take("["):
        values: list[Any] = []
        while not reader.take("]"):
            values.append(_signed(reader))
            if not reader.take(","):
                reader.expect("]")
                break
        return Choices(tuple(values))
    low = _signed(reader)
    reader.expect("..")
    high = _signed(reader)
    step = _signed(reader) if reader.take("step") else None
    return Range(low, high, step)


def _signed(reader: Reader) -> Any:
    negative = reader.take("-")
    token = reader.next()
    if token.kind not in ("number", "quantity", "size", "string"):
        raise reader.error("expected a value")
    value = parse_literal(token)
    return -value if negative and isinstance(value, int | float) else value
