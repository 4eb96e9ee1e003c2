"""Inputs, outputs and params: their types, defaults and domains."""

from __future__ import annotations

from typing import Any

from omnic.contract.domains import Choices, Domain, Range
from omnic.contract.types import KINDS, Type, problems
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check.bound import Given, Param
from omnic.dsl.check.expressions import MISSING, constant, span_of
from omnic.expr import Expr, Name, Quantity, Size, format_value
from omnic.source import Span
from omnic.spelling import did_you_mean

SCALARS = ("int", "float", "bool", "size", "seed", "text", "enum", "json")
"""The kinds that a param can have."""


def check_type(ref: ast.TypeRef, sink: Sink) -> bool:
    """Whether a type makes sense by itself; says why not."""
    kind = ref.type.kind
    if kind not in KINDS:
        span = Span(ref.span.source, ref.span.start, ref.span.start + len(kind))
        hint = did_you_mean(kind, KINDS) or f"there are {listing(KINDS, most=len(KINDS))}"
        sink.error("unknown-type", f"unknown type `{kind}`", span, hint)
        return False
    wrong = list(problems(ref.type))
    for problem in wrong:
        sink.error("bad-type", problem, _part_at_fault(ref, problem))
    return not wrong


def _part_at_fault(ref: ast.TypeRef, problem: str) -> Span:
    """The argument or bound that a problem quotes, or the whole type."""
    for span in ref.parts:
        name = span.text.partition("=")[0].strip()
        if f"`{name}`" in problem or f"`{span.text}`" in problem:
            return span
    return ref.span


def given(declared: ast.Input | ast.Output, sink: Sink) -> Given:
    check_type(declared.type, sink)
    return Given(declared.name.text, declared.type.type, declared.name.span.to(declared.type.span))


def param(declared: ast.Param, sink: Sink) -> Param | None:
    """A param with its default and domain as values; None, and errors, where they make no sense."""
    name, type_ = declared.name.text, declared.type.type
    if not check_type(declared.type, sink):
        return None
    if type_.kind not in SCALARS:
        hint = f"a param is {listing(SCALARS, last='or')}; declare an `input` for media"
        sink.error("bad-param", f"a param cannot be `{type_.kind}`", declared.type.span, help=[hint])
        return None
    if name == "seed":  # of the request, which every stage draws with
        if type_.kind not in ("int", "seed") or type_.optional:
            what = "the seed of a request is a whole number, always there"
            sink.error("bad-param", f"{what}: it cannot be `{type_}`", declared.type.span, "write `seed: seed`")
            return None
        type_ = Type("seed")
    domain = _domain(declared.domain, type_, sink) if declared.domain is not None else None
    if declared.domain is not None and domain is None:
        return None
    default = None
    if declared.default is not None:
        default = value_as(declared.default, type_, f"the default of `{name}`", sink)
        if default is MISSING:
            return None
        if domain is not None and default is not None and default not in domain:
            sink.error(
                "default-outside-domain",
                f"the default of `{name}` is outside its domain",
                span_of(declared.default),
                f"not {_within(domain)}",
                secondary=[Label(_span(declared.domain), "the domain")],
            )
    return Param(name, type_, default, domain, declared.name.span)


def _within(domain: Domain) -> str:
    return f"in {domain}" if isinstance(domain, Range) else f"one of {', '.join(map(format_value, domain.values))}"


def _span(ref: ast.DomainRef | None) -> Span:
    assert ref is not None
    return span_of(ref) if isinstance(ref, ast.List) else ref.span


def _domain(ref: ast.DomainRef, type_: Type, sink: Sink) -> Domain | None:
    if isinstance(ref, ast.List):
        values = [value_as(item, type_, "a choice", sink) for item in ref.items]
        return None if MISSING in values else Choices(tuple(values))
    if type_.kind not in ("int", "float", "size", "seed"):
        help_ = ["list the values instead: `in [a, b]`"] if type_.kind != "bool" else []
        sink.error("bad-domain", f"`{type_.kind}` has no order, so it has no range", ref.span, help=help_)
        return None
    low, high = (value_as(end, type_, "a bound", sink) for end in (ref.low, ref.high))
    step: Any = None if ref.step is None else value_as(ref.step, _step_type(type_), "a step", sink)
    if low is MISSING or high is MISSING or step is MISSING:
        return None
    if step is not None and step <= 0:
        sink.error("bad-domain", "a step must be positive", span_of(ref.step or ref.low))
        return None
    made = Range(low, high, step)
    if low not in Range(low, high):
        sink.error(
            "bad-domain", "this range is empty", ref.span, f"{format_value(low)} is not below {format_value(high)}"
        )
        return None
    return made


def _step_type(type_: Type) -> Type:
    return Type("float") if type_.kind == "float" else Type("int")


def value_as(value: Expr, type_: Type, what: str, sink: Sink) -> Any:
    """`value`, a constant, as a value of `type_`; MISSING, and an error, if it is none."""
    if isinstance(value, Name) and type_.kind == "enum" and len(value.path) == 1 and value.path[0] in type_.args:
        sink.error("unquoted", f"{what} is a string", span_of(value), f'write `"{value.path[0]}"`')
        return MISSING
    if isinstance(value, ast.List) and type_.kind == "json":
        items = [value_as(item, type_, what, sink) for item in value.items]
        return MISSING if MISSING in items else tuple(items)
    found = constant(value, sink, what)
    if found is MISSING or (found is None and type_.optional):
        return found
    fitted = fit(found, type_)
    if fitted is MISSING:
        sink.error("wrong-value", f"{what} must be {describe(type_)}", span_of(value), f"this is {_what(found)}")
    return fitted


def fit(value: Any, type_: Type) -> Any:
    """`value` as one of `type_` (an int becomes a float where that is asked for), or MISSING."""
    match type_.kind:
        case "int" | "seed":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return value if whole and (type_.kind == "int" or 0 <= value < 2**63) else MISSING
        case "float":
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else MISSING
        case "bool":
            return value if isinstance(value, bool) else MISSING
        case "size":
            return value if isinstance(value, Size) else MISSING
        case "text":
            return value if isinstance(value, str) else MISSING
        case "enum":
            return value if isinstance(value, str) and value in type_.args else MISSING
    return value


def describe(type_: Type) -> str:
    """What a value of `type_` is, in words."""
    match type_.kind:
        case "int":
            return "a whole number"
        case "float":
            return "a number"
        case "seed":
            return "a whole number from 0 to 2^63 - 1"
        case "bool":
            return "true or false"
        case "size":
            return "a size such as `1024x1024`"
        case "text":
            return "a string"
        case "enum":
            return f"one of {', '.join(format_value(a) for a in type_.args)}"
    return f"`{type_.kind}`"


def _what(value: Any) -> str:
    match value:
        case None:
            return "`none`"
        case bool():
            return f"`{format_value(value)}`"
        case float() if value.is_integer():
            return f"the fraction `{value}`"
        case Quantity() | Size() | str() | int() | float():
            return f"`{format_value(value)}`"
    return "something else"
