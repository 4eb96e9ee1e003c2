"""Pieces of Python source: literals, expressions, calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnic.contract.domains import Choices, Domain, Range
from omnic.contract.types import Type
from omnic.expr import BINARY, Binary, Call, Expr, Literal, Name, Quantity, Size, Unary
from omnic.source import Span

WIDTH = 120


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


def domain(value: Domain) -> str:
    if isinstance(value, Choices):
        return f"Choices({literal(value.values)})"
    assert isinstance(value, Range)
    step = "" if value.step is None else f", {literal(value.step)}"
    return f"Range({literal(value.low)}, {literal(value.high)}{step})"


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
    return f"{span.source.path.rsplit('/', 1)[-1]}:{span.line}" if span else ""


def call(prefix: str, args: list[str], suffix: str = "", indent: int = 0) -> str:
    """`prefix(args)suffix`, on one line where it fits `WIDTH` at this indent, else one argument a line.

    The form is the one ruff format would leave as it is. The first line is not indented: the template does that.
    """
    line = f"{prefix}({', '.join(args)}){suffix}"
    if indent + len(line) <= WIDTH and "\n" not in line:
        return line
    inner = "\n".join(" " * (indent + 4) + f"{arg}," for arg in args)
    return f"{prefix}(\n{inner}\n{' ' * indent}){suffix}"
