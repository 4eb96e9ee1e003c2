"""The expression language of `when`, `require`, `limit`, size rules and cost formulas.

One small language, used by the checker, the planner and the server alike: arithmetic, comparison,
`and or not`, field access (`size.area`), `ceil floor min max`, `none true false`. An expression is a value;
`str` prints it in the form `parse` reads, so it travels in a manifest as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNITS: dict[str, tuple[float, str]] = {
    # unit: (factor, base unit)
    "Hz": (1, "Hz"), "kHz": (1e3, "Hz"), "MHz": (1e6, "Hz"), "GHz": (1e9, "Hz"),
    "s": (1, "s"), "ms": (1e-3, "s"), "us": (1e-6, "s"), "min": (60, "s"), "h": (3600, "s"),
    "B": (1, "B"), "KB": (1e3, "B"), "MB": (1e6, "B"), "GB": (1e9, "B"), "TB": (1e12, "B"),
    "KiB": (2**10, "B"), "MiB": (2**20, "B"), "GiB": (2**30, "B"), "TiB": (2**40, "B"),
    "B/s": (1, "B/s"), "MB/s": (1e6, "B/s"), "GB/s": (1e9, "B/s"), "TB/s": (1e12, "B/s"), "GiB/s": (2**30, "B/s"),
    "Mb/s": (1e6 / 8, "B/s"), "Gb/s": (1e9 / 8, "B/s"),
    "fps": (1, "fps"),
    "TFLOPs": (1e12, "FLOP/s"), "GFLOPs": (1e9, "FLOP/s"),
}  # fmt: skip


class ExprError(ValueError):
    """An expression that cannot be parsed or evaluated. `node` is the part at fault, where known."""

    def __init__(self, message: str, node: Expr | None = None) -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with a unit, as written; `base` is its value in the unit's base (Hz, s, B, B/s, fps)."""

    number: float
    unit: str

    @property
    def base(self) -> float:
        value = self.number * UNITS[self.unit][0]
        return int(value) if value == int(value) else value

    @property
    def dimension(self) -> str:
        return UNITS[self.unit][1]

    def __str__(self) -> str:
        return f"{_number(self.number)}{self.unit}"


@dataclass(frozen=True, slots=True)
class Size:
    """Width × height in pixels, or × depth."""

    width: int
    height: int
    depth: int | None = None

    @property
    def area(self) -> int:
        return self.width * self.height * (self.depth or 1)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}" + ("" if self.depth is None else f"x{self.depth}")


@dataclass(frozen=True, slots=True)
class Expr:
    """Base of all nodes. `span` is the source it came from (any object); equality ignores it."""

    span: Any = field(default=None, compare=False, repr=False, kw_only=True)

    def __str__(self) -> str:
        return _print(self, 0)


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A number, quantity, size, string, bool or None."""

    value: int | float | Quantity | Size | str | bool | None

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """`frames`, `size.area`: a variable and the fields read from it."""

    path: tuple[str, ...]

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Call(Expr):
    function: str
    args: tuple[Expr, ...]

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Unary(Expr):
    op: str
    operand: Expr

    __str__ = Expr.__str__


@dataclass(frozen=True, slots=True)
class Binary(Expr):
    op: str
    left: Expr
    right: Expr

    __str__ = Expr.__str__


# binding power of each operator; higher binds tighter. Comparisons do not chain.
BINARY: dict[str, int] = {
    "or": 1, "and": 2,
    "==": 4, "!=": 4, "<=": 4, ">=": 4, "<": 4, ">": 4,
    "+": 5, "-": 5, "*": 6, "/": 6,
}  # fmt: skip
UNARY = {"not": 3, "-": 7}
CONSTANTS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil": math.ceil, "floor": math.floor, "min": min, "max": max}


# --- evaluate ---------------------------------------------------------------------------------------------------------


def evaluate(expr: Expr, env: Mapping[str, Any]) -> Any:
    """The value of `expr` with names looked up in `env`; quantities become floats in their base unit.

    Raises ExprError, which carries the node at fault, for unknown names and operands that do not fit.
    """
    match expr:
        case Literal(value=Quantity() as quantity):
            return quantity.base
        case Literal(value=value):
            return value
        case Name(path=path):
            if path[0] not in env:
                raise ExprError(f"unknown name `{path[0]}`", expr)
            value = env[path[0]]
            for name in path[1:]:
                value = _field(value, name, expr)
            return value
        case Call(function=function, args=args):
            if function not in FUNCTIONS:
                raise ExprError(f"unknown function `{function}`", expr)
            return _apply(FUNCTIONS[function], [evaluate(a, env) for a in args], expr)
        case Unary(op="not", operand=operand):
            return not evaluate(operand, env)
        case Unary(op="-", operand=operand):
            return _apply(lambda x: -x, [evaluate(operand, env)], expr)
        case Binary(op="and", left=left, right=right):
            return evaluate(left, env) and evaluate(right, env)
        case Binary(op="or", left=left, right=right):
            return evaluate(left, env) or evaluate(right, env)
        case Binary(op=op, left=left, right=right):
            return _apply(_ARITHMETIC[op], [evaluate(left, env), evaluate(right, env)], expr)
    raise ExprError(f"cannot evaluate {expr!r}", expr)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _apply(function: Callable[..., Any], args: Sequence[Any], expr: Expr) -> Any:
    try:
        return function(*args)
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        raise ExprError(f"cannot evaluate `{expr}`: {error}", expr) from None


def _field(value: Any, name: str, expr: Expr) -> Any:
    if isinstance(value, Size) and name in ("width", "height", "area", "depth"):
        return getattr(value, name)
    if isinstance(value, Mapping) and name in value:
        return value[name]
    raise ExprError(
        f"`{name}` is not a field of `{'.'.join(expr.path[:-1]) if isinstance(expr, Name) else expr}`", expr
    )


def fold(expr: Expr, env: Mapping[str, Any]) -> Expr:
    """`expr` with the names in `env` replaced by their values and constant parts computed."""
    match expr:
        case Name(path=path) if path[0] in env:
            return Literal(evaluate(expr, env), span=expr.span)
        case Call(function=function, args=args):
            folded: Expr = Call(function, tuple(fold(a, env) for a in args), span=expr.span)
        case Unary(op=op, operand=operand):
            folded = Unary(op, fold(operand, env), span=expr.span)
        case Binary(op=op, left=left, right=right):
            folded = Binary(op, fold(left, env), fold(right, env), span=expr.span)
        case _:
            return expr
    if all(isinstance(child, Literal) for child in children(folded)):
        return Literal(evaluate(folded, {}), span=expr.span)
    return folded


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Call(args=args):
            return args
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
    return ()


def names(expr: Expr) -> Iterator[Name]:
    """Every name in `expr`, left to right."""
    if isinstance(expr, Name):
        yield expr
    for child in children(expr):
        yield from names(child)


# --- print ------------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else repr(value)


def quote(text: str) -> str:
    """`text` as a string literal of the language."""
    body = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{body}"'


ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


def unquote(literal: str) -> str:
    """The text of a string literal, quotes included."""
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), literal[1:-1])


def format_value(value: Any) -> str:
    """A literal value in the syntax of the language."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return quote(value)
        case tuple() | list():
            return f"[{', '.join(format_value(v) for v in value)}]"
    return str(value)


def _print(expr: Expr, outer: int) -> str:
    match expr:
        case Literal(value=value):
            text = format_value(value)
            return f"({text})" if isinstance(value, int | float) and value < 0 and outer >= UNARY["-"] else text
        case Name(path=path):
            return ".".join(path)
        case Call(function=function, args=args):
            return f"{function}({', '.join(_print(a, 0) for a in args)})"
        case Unary(op=op, operand=operand):
            power = UNARY[op]
            text = f"{op} {_print(operand, power)}" if op == "not" else f"-{_print(operand, power)}"
        case Binary(op=op, left=left, right=right):
            power = BINARY[op]
            left_power = power + 1 if power == 4 else power
            text = f"{_print(left, left_power)} {op} {_print(right, power + 1)}"
        case _:
            raise TypeError(f"not an expression: {expr!r}")
    return f"({text})" if power < outer else text


# --- parse ------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<size>[0-9]+x[0-9]+(?:x[0-9]+)?(?![A-Za-z0-9_]))
  | (?P<quantity>[0-9]+(?:\.[0-9]+)?(?!e[+-]?[0-9])[A-Za-z][A-Za-z/]*(?![A-Za-z0-9_]))
  | (?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?(?![A-Za-z0-9_]))
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op><=|>=|==|!=|->|\.\.|[-+*/<>(),.@=?\[\]:{}%!])
)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # size quantity number string name op end
    text: str
    start: int


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`, ending in one of kind `end`. Raises ExprError."""
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ExprError(f"unexpected `{text[at:].strip()[:1]}` at column {at + 1} of `{text}`")
        tokens.append(Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    tokens.append(Token("end", "", len(text)))
    return tokens


class Reader:
    """A cursor over tokens, shared by the parsers of expressions and of types."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at = text, tokenize(text), 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def take(self, text: str) -> bool:
        """Consumes the operator or word `text` if it is next."""
        if self.token.text == text and self.token.kind in ("op", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.error(f"expected `{text}`")

    def error(self, message: str) -> ExprError:
        found = f"`{self.token.text}`" if self.token.text else "the end"
        return ExprError(f"{message}, found {found} at column {self.token.start + 1} of `{self.text}`")

    def end(self) -> None:
        if self.token.kind != "end":
            raise self.error("expected the end")


def parse(text: str) -> Expr:
    """The expression in `text`. Raises ExprError."""
    reader = Reader(text)
    expr = parse_from(reader)
    reader.end()
    return expr


def parse_from(reader: Reader, power: int = 0) -> Expr:
    left = _prefix(reader)
    while True:
        op = reader.token.text
        binds = BINARY.get(op, -1) if reader.token.kind in ("op", "name") else -1
        if binds < power or binds < 0:
            return left
        reader.next()
        left = Binary(op, left, parse_from(reader, binds + 1))
        if binds == 4 and BINARY.get(reader.token.text) == 4:
            raise reader.error("comparisons do not chain")


def parse_literal(token: Token) -> int | float | Quantity | Size | str:
    """The value of a size, quantity, number or string token. Raises ExprError for an unknown unit."""
    match token.kind:
        case "size":
            return Size(*map(int, token.text.split("x")))
        case "quantity":
            number, unit = re.fullmatch(r"([\d.]+)(.*)", token.text).groups()  # type: ignore[union-attr]  # token matched
            if unit not in UNITS:
                raise ExprError(f"unknown unit `{unit}` in `{token.text}`")
            return Quantity(float(number) if "." in number else int(number), unit)
        case "number":
            return int(token.text) if token.text.isdigit() else float(token.text)
    return unquote(token.text)


def _prefix(reader: Reader) -> Expr:
    token = reader.next()
    if token.kind in ("size", "quantity", "number", "string"):
        return Literal(parse_literal(token))
    if token.text == "(":
        inner = parse_from(reader)
        reader.expect(")")
        return inner
    if token.text in UNARY:
        operand = parse_from(reader, UNARY[token.text])
        if token.text == "-" and isinstance(operand, Literal) and type(operand.value) in (int, float):
            return Literal(-operand.value)  # type: ignore[operator]  # checked above
        return Unary(token.text, operand)
    if token.kind == "name" and token.text not in BINARY:
        if token.text in CONSTANTS:
            return Literal(CONSTANTS[token.text])
        if reader.take("("):
            args: list[Expr] = []
            while not reader.take(")"):
                args.append(parse_from(reader))
                if not reader.take(","):
                    reader.expect(")")
                    break
            return Call(token.text, tuple(args))
        path = [token.text]
        while reader.take("."):
            path.append(reader.next().text)
        return Name(tuple(path))
    reader.at -= token.kind != "end"
    raise reader.error("expected a value")
