"""Expressions over inputs and params: whether they make sense, what they give, between which bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from omnic import expr
from omnic.contract.domains import Domain, Range
from omnic.contract.types import Type
from omnic.diagnostics import Sink, listing
from omnic.dsl import ast
from omnic.expr import FUNCTIONS, Binary, Expr, Literal, Name, Quantity, Size, Unary
from omnic.source import Span
from omnic.spelling import did_you_mean

FIELDS: dict[str, dict[str, str]] = {
    # kind of type: what can be read of such a value, and the kind of that
    "size": {"width": "int", "height": "int", "area": "int", "depth": "int"},
    "image": {"width": "int", "height": "int", "area": "int"},
    "audio": {"seconds": "float"},
    "video": {"seconds": "float", "frames": "int", "width": "int", "height": "int"},
}
_NUMBERS = ("int", "float")
_WORDS = ("text", "enum")


class Scope(NamedTuple):
    """The names an expression may use, with their types (None: in doubt); `domains` of those that have one."""

    types: Mapping[str, Type | None]
    domains: Mapping[str, Domain | None]
    what: str = "input or param"


def span_of(value: Expr) -> Span:
    span = value.span
    assert isinstance(span, Span), "values of an AST have spans"
    return span


def plain(value: Expr, sink: Sink) -> Expr | None:
    """`value` in the expression language proper; None, and an error, if it holds what no expression can."""
    match value:
        case ast.Call(path=path, args=args, named=named):
            if path.tail is not None or path.head.text not in FUNCTIONS:
                hint = did_you_mean(str(path), FUNCTIONS) or f"there are {listing(FUNCTIONS)}"
                sink.error("unknown-function", f"unknown function `{path}`", path.span, hint)
                return None
            if named:
                sink.error("bad-expression", f"`{path}` takes no named arguments", named[0][0].span)
                return None
            if len(args) != 1 if path.head.text in ("ceil", "floor") else not args:
                needs = "one argument" if path.head.text in ("ceil", "floor") else "arguments"
                sink.error("bad-expression", f"`{path}` takes {needs}", span_of(value))
                return None
            made = [plain(arg, sink) for arg in args]
            known = tuple(arg for arg in made if arg is not None)
            return expr.Call(path.head.text, known, span=value.span) if len(known) == len(made) else None
        case ast.List() | ast.Signature():
            what = "a list" if isinstance(value, ast.List) else "`fn`"
            sink.error("bad-expression", f"{what} cannot be part of an expression", span_of(value))
            return None
        case Unary(op=op, operand=operand):
            inner = plain(operand, sink)
            return inner and Unary(op, inner, span=value.span)
        case Binary(op=op, left=left, right=right):
            first, second = plain(left, sink), plain(right, sink)
            return Binary(op, first, second, span=value.span) if first and second else None
    return value


def constant(value: Expr, sink: Sink, what: str) -> Any:
    """The value of an expression without names; `MISSING`, and an error, if it has none."""
    if isinstance(value, Literal):
        return value.value
    if (made := plain(value, sink)) is None:
        return MISSING
    if (name := next(expr.names(made), None)) is not None:
        sink.error("not-constant", f"{what} cannot depend on `{name}`", span_of(name), "a value is needed here")
        return MISSING
    if kind_of(made, Scope({}, {}), sink) is None:
        return MISSING
    return evaluated(made, sink)


class _Missing:
    """No value, where None is one."""


MISSING = _Missing()


def evaluated(made: Expr, sink: Sink) -> Any:
    try:
        return expr.evaluate(made, {})
    except expr.ExprError as error:
        sink.error("bad-expression", str(error), span_of(error.node or made))
        return MISSING


# --- kinds ------------------------------------------------------------------------------------------------------------


def kind_of(value: Expr, scope: Scope, sink: Sink) -> str | None:
    """What an expression gives: int, float, bool, text, size, none, a kind of media, or the dimension of a quantity.

    None where that cannot be told; errors say why. Names of unknown type give None without a word.
    """
    match value:
        case Literal(value=literal):
            return _kind_of_literal(literal)
        case Name():
            return _kind_of_name(value, scope, sink)
        case expr.Call(function=function, args=args):
            kinds = [kind_of(arg, scope, sink) for arg in args]
            for arg, kind in zip(args, kinds, strict=True):
                if kind is not None and not _is_measure(kind):
                    return _wrong(f"`{function}` takes numbers, not {_a(kind)}", arg, sink)
            if None in kinds:
                return None
            if function in ("ceil", "floor"):
                return "int"
            return kinds[0] if len(set(kinds)) == 1 else "float"
        case Unary(op=op, operand=operand):
            kind = kind_of(operand, scope, sink)
            if kind is None:
                return None
            if op == "not":
                return "bool" if kind == "bool" else _wrong(f"`not` takes true or false, not {_a(kind)}", operand, sink)
            return kind if _is_measure(kind) else _wrong(f"`-` takes a number, not {_a(kind)}", operand, sink)
        case Binary():
            left, right = kind_of(value.left, scope, sink), kind_of(value.right, scope, sink)
            return None if left is None or right is None else _kind_of_binary(value, left, right, sink)
    raise AssertionError(f"not plain: {value!r}")


def _kind_of_literal(literal: object) -> str:
    match literal:
        case None:
            return "none"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case Size():
            return "size"
        case Quantity():
            return literal.dimension
    return "text"


def _kind_of_name(name: Name, scope: Scope, sink: Sink) -> str | None:
    head, *fields = name.path
    if head not in scope.types:
        hint = did_you_mean(head, scope.types)
        sink.error("unknown-name", f"there is no {scope.what} `{head}`", span_of(name), hint)
        return None
    type_ = scope.types[head]
    if type_ is None:
        return None
    kind = type_.kind
    if not fields:
        return "int" if kind == "seed" else kind
    known = FIELDS.get(kind, {})
    if fields[0] not in known or len(fields) > 1:
        path = ".".join(fields)
        hint = did_you_mean(path, known) or (f"it has {listing(known)}" if known else "")
        sink.error("unknown-field", f"{_a(kind)} has no field `{path}`", span_of(name), hint)
        return None
    if kind != "size":
        sink.error("not-supported-yet", f"omnic cannot measure `{name}` of a request yet", span_of(name))
        return None
    return known[fields[0]]


def _kind_of_binary(value: Binary, left: str, right: str, sink: Sink) -> str | None:
    op = value.op
    if op in ("and", "or"):
        for kind, side in ((left, value.left), (right, value.right)):
            if kind != "bool":
                return _wrong(f"`{op}` takes true or false, not {_a(kind)}", side, sink)
        return "bool"
    if op in ("==", "!="):
        alike = (
            left == right or "none" in (left, right) or {left, right} <= set(_NUMBERS) or {left, right} <= set(_WORDS)
        )
        return "bool" if alike else _wrong(f"{_a(left)} never equals {_a(right)}", value, sink)
    for kind, side in ((left, value.left), (right, value.right)):
        if not _is_measure(kind):
            return _wrong(f"`{op}` takes numbers, not {_a(kind)}", side, sink)
    same = left == right or {left, right} <= set(_NUMBERS)
    if op in ("<", "<=", ">", ">="):
        return "bool" if same else _wrong(f"{_a(left)} cannot be compared with {_a(right)}", value, sink)
    if op in ("+", "-"):
        if not same:
            return _wrong(f"{_a(left)} and {_a(right)} cannot be {'added' if op == '+' else 'subtracted'}", value, sink)
        return left if left == right else "float"
    if op == "/":
        return left if right in _NUMBERS and left not in _NUMBERS else "float"
    if left == right == "int":
        return "int"
    return next((kind for kind in (left, right) if kind not in _NUMBERS), "float")


def _is_measure(kind: str) -> bool:
    return kind in _NUMBERS or kind in _DIMENSIONS


_DIMENSIONS = frozenset(dimension for _, dimension in expr.UNITS.values())


def _wrong(message: str, at: Expr, sink: Sink) -> str | None:
    sink.error("bad-expression", message, span_of(at))
    return None


def _a(kind: str) -> str:
    names = {
        "int": "a whole number", "float": "a number", "bool": "true or false", "text": "text", "none": "`none`",
        "size": "a size", "Hz": "a frequency", "s": "a time", "B": "a number of bytes", "B/s": "a bandwidth",
        "fps": "a frame rate", "FLOP/s": "a rate of work",
    }  # fmt: skip
    return names.get(kind, f"`{kind}`")


# --- bounds -----------------------------------------------------------------------------------------------------------


def bounds(value: Expr, domains: Mapping[str, Domain | None]) -> tuple[float, float] | None:
    """The least and the greatest value that an expression can have over the domains of its names, if that is known."""
    match value:
        case Literal(value=Quantity() as quantity):
            return quantity.base, quantity.base
        case Literal(value=bool()):
            return None
        case Literal(value=int() | float() as number):
            return number, number
        case Name(path=(head, *fields)):
            return _bounds_of_name(domains.get(head), fields)
        case expr.Call(function=function, args=args):
            ranges = [bounds(arg, domains) for arg in args]
            known = [r for r in ranges if r is not None]
            if len(known) < len(ranges):
                return None
            if function in ("ceil", "floor"):
                rounded = math.ceil if function == "ceil" else math.floor
                return (rounded(known[0][0]), rounded(known[0][1])) if all(map(math.isfinite, known[0])) else None
            pick = min if function == "min" else max
            return pick(r[0] for r in known), pick(r[1] for r in known)
        case Unary(op="-", operand=operand):
            inner = bounds(operand, domains)
            return inner and (-inner[1], -inner[0])
        case Binary(op=op, left=left, right=right) if op in "+-*/":
            first, second = bounds(left, domains), bounds(right, domains)
            if first is None or second is None or (op == "/" and second[0] <= 0 <= second[1]):
                return None
            corners = [_apply(op, a, b) for a in first for b in second]
            return min(corners), max(corners)
    return None


def _apply(op: str, a: float, b: float) -> float:
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b


def _bounds_of_name(domain: Domain | None, fields: list[str]) -> tuple[float, float] | None:
    if domain is None:
        return None
    values: list[Any] = [domain.low, domain.high] if isinstance(domain, Range) else list(domain.values)
    if fields:
        if not all(isinstance(v, Size) for v in values) or fields == ["depth"]:
            return None
        values = [getattr(v, fields[0]) for v in values]
    numbers = [v.base if isinstance(v, Quantity) else v for v in values]
    if not numbers or any(isinstance(v, bool) or not isinstance(v, int | float) for v in numbers):
        return None
    return min(numbers), max(numbers)
