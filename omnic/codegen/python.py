"""Pieces of Python source: literals, types, expressions, and where in the pipeline's source they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnic.contract.domains import Choices, Domain
from omnic.contract.types import Type
from omnic.expr import BINARY, Binary, Call, Expr, Literal, Name, Quantity, Size, Unary
from omnic.source import Span


def literal(value: Any) -> str:
    """A value of the language as a Python literal."""
    match value:
        case Size(width=width, height=height, depth=depth):
            return f"Size({width}, {height})" if depth is None else f"Size({width}, {height}, {depth})"
        case Quantity():
            return literal(value.base)
        case str():
            return quoted(value)
        case tuple() | list():
            inner = ", ".join(literal(v) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def quoted(text: str) -> str:
    """A string literal in double quotes where that needs no more escapes than single ones."""
    plain = repr(text)
    if plain[0] == "'" and '"' not in text:
        return f'"{plain[1:-1]}"'.replace("\\'", "'")
    return plain


def domain(value: Domain) -> tuple[str, list[str]]:
    """The class of a domain, and the arguments that make it."""
    if isinstance(value, Choices):
        return "Choices", [literal(value.values)]
    step = [] if value.step is None else [literal(value.step)]
    return "Range", [literal(value.low), literal(value.high), *step]


def annotation(type_: Type) -> str:
    """The Python type a request value of this type has."""
    names = {
        "text": "str", "enum": "str", "chat": "list[dict[str, Any]]", "int": "int", "seed": "int", "float": "float",
        "bool": "bool", "size": "Size",
    }  # fmt: skip
    name = names.get(type_.kind, "Any")
    return f"{name} | None" if type_.optional and name != "Any" else name


def expression(expr: Expr, variables: Mapping[str, str], outer: int = 0) -> str:
    """An expression over params as Python; `variables` are the names that hold them."""
    match expr:
        case Literal(value=value):
            return literal(value)
        case Name(path=path):
            return ".".join((variables[path[0]], *path[1:]))
        case Call(function=function, args=args):
            name = f"math.{function}" if function in ("ceil", "floor") else function
            return f"{name}({', '.join(expression(a, variables) for a in args)})"
        case Unary(op="not", operand=operand):
            text, power = f"not {expression(operand, variables, 3)}", 3
        case Unary(op="-", operand=operand):
            text, power = f"-{expression(operand, variables, 7)}", 7
        case Binary(op=op, left=left, right=right):
            power = BINARY[op]
            text = f"{expression(left, variables, power + (power == 4))} {op} {expression(right, variables, power + 1)}"
        case _:
            raise TypeError(f"not an expression: {expr!r}")
    return f"({text})" if power < outer else text


def where(span: Span | None) -> str:
    """`assistant.omni:10`: the place in source a generated line comes from."""
    return f"{file_name(span.source.path)}:{span.line}" if span else ""


def file_name(path: str) -> str:
    """The last part of a path, as it may stand in a comment or a docstring."""
    return shown(path.rsplit("/", 1)[-1])


def shown(text: str) -> str:
    """`text` without the characters that would end a comment or a docstring, or mean something in it."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text)
