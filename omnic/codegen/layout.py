"""Statements and comments that are too long for a line, laid out as `ruff format` leaves them.

What is broken ends in a comma wherever one may stand, which tells formatters to keep it broken.
"""

from __future__ import annotations

import ast
import re
import textwrap

from omnic.codegen.python import quoted

WIDTH = 120
_NAMED = re.compile(r"(?P<name>\w+)(?P<between>=|: .+? = )(?P<value>.+)", re.DOTALL)


def call(prefix: str, args: list[str], suffix: str = "", indent: int = 0) -> str:
    """`prefix(args)suffix`, on one line where it fits `WIDTH` at this indent, else one argument a line.

    An argument is an expression, `name=expression` or a parameter. The first line is not indented: that is for
    whoever places it.
    """
    line = f"{prefix}({', '.join(args)}){suffix}"
    if not args or (indent + len(line) <= WIDTH and "\n" not in line):
        return line
    inner = "\n".join(f"{' ' * (indent + 4)}{_argument(arg, indent + 4)}," for arg in args)
    return f"{prefix}(\n{inner}\n{' ' * indent}){suffix}"


def condition(parts: list[str], indent: int) -> str:
    """`if a and b:`, a part a line where it is too long."""
    line = f"if {' and '.join(parts)}:"
    if indent + len(line) <= WIDTH:
        return line
    inside = f"\n{' ' * (indent + 4)}and ".join(parts)
    return f"if (\n{' ' * (indent + 4)}{inside}\n{' ' * indent}):"


def prose(text: str, indent: int, first: str = "") -> tuple[str, ...]:
    """`text` behind `first`, cut between words into lines that fit at `indent`."""
    return tuple(textwrap.wrap(first + text, WIDTH - indent, break_long_words=False, break_on_hyphens=False) or [first])


def docstring(text: str, indent: int) -> tuple[str, ...]:
    """The lines of a docstring: one where it fits, else the quotes at its end stand by themselves."""
    lines = prose(text, indent, '"""')
    if len(lines) == 1 and indent + len(lines[0]) + 3 <= WIDTH:
        return (f'{lines[0]}"""',)
    return (*lines, '"""')


def _argument(text: str, indent: int) -> str:
    if _fits(text, indent):
        return text
    named = _NAMED.fullmatch(text) if not text.startswith(("(", '"', "'")) else None
    if named is None:
        return _value(text, indent, hugged=False)
    head = f"{named['name']}{named['between']}"
    return head + _value(named["value"], indent, hugged=named["between"] == "=")


def _value(text: str, indent: int, *, hugged: bool) -> str:
    """An expression that is too long. `hugged`: parts of a string need no parentheses here."""
    node = ast.parse(text, mode="eval").body
    inner = " " * (indent + 4)
    match node:
        case ast.Constant(value=str(string)) if " " in string:
            if hugged:
                return f"\n{' ' * indent}".join(_pieces(string, indent))
            pieces = f"\n{inner}".join(_pieces(string, indent + 4))
            return f"(\n{inner}{pieces}\n{' ' * indent})"
        case ast.Tuple(elts=items):
            return call("", [_segment(text, item) for item in items], indent=indent)
        case ast.Call(func=function, args=args):
            return call(_segment(text, function), [_segment(text, arg) for arg in args], indent=indent)
        case ast.BinOp():
            return f"\n{' ' * indent}".join(_operands(text, node))
    return text


def _operands(text: str, node: ast.expr) -> list[str]:
    """`a`, `+ b`, `- (c - d)` of `a + b - (c - d)`."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            held = _segment(text, right)
            grouped = isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add | ast.Sub)
            sign = "+" if isinstance(op, ast.Add) else "-"
            return [*_operands(text, left), f"{sign} ({held})" if grouped else f"{sign} {held}"]
    return [_segment(text, node)]


def _segment(text: str, node: ast.expr) -> str:
    """The text of a node, without brackets around it."""
    found = ast.get_source_segment(text, node)
    assert found is not None, "parsed text has positions"
    return found


def _pieces(string: str, indent: int) -> list[str]:
    """`string` as literals that fit, each but the last ending in a blank."""
    pieces, held = [], ""
    for word in re.findall(r"\S*\s*", string):
        if held and not _fits(quoted(held + word), indent):
            pieces.append(quoted(held))
            held = ""
        held += word
    return [*pieces, quoted(held)]


def _fits(text: str, indent: int) -> bool:
    return "\n" not in text and indent + len(text) + 1 <= WIDTH  # and a comma
