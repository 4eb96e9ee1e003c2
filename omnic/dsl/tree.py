"""From lark's parse tree to the records of `ast`; checks what a literal or an expression can get wrong by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard, cast

from lark import Token, Tree

from omnic import expr
from omnic.contract.types import Arg, Dims, Rate, Type, bound_value, ratio
from omnic.diagnostics import Sink
from omnic.dsl import ast
from omnic.expr import BINARY, CONSTANTS, UNARY, UNITS, Binary, Expr, ExprError, Literal, Quantity, Size, Unary
from omnic.source import Source, Span
from omnic.spelling import did_you_mean

Node: TypeAlias = "Tree[Token] | Token"

_DEEPEST = 20  # brackets and signs within each other
_LONGEST = 60  # operators in one expression
_TOO_DEEP = f"more than {_DEEPEST} brackets or signs within each other"
_DIGITS = 40
_LARGEST = 2**63 - 1
_LITERALS = {"NUMBER": "number", "QUANTITY": "quantity", "SIZE": "size", "STRING": "string"}


def build(tree: Tree[Token], source: Source, sink: Sink) -> ast.File:
    """The file that a parse tree without BAD nodes stands for; what its literals get wrong goes to `sink`."""
    builder = _Builder(source, sink)
    return ast.File(source, tuple(builder.item(child) for child in tree.children if isinstance(child, Tree)))


def setting(tree: Tree[Token], source: Source, sink: Sink) -> ast.Setting | None:
    """A setting by itself; None, and errors in `sink`, if its literals are wrong."""
    found = Sink()
    made: ast.Setting = _Builder(source, found).item(tree)
    for diagnostic in found.diagnostics:
        sink.add(diagnostic)
    return None if found.has_errors else made


class _Builder:
    def __init__(self, source: Source, sink: Sink) -> None:
        self.source, self.sink = source, sink
        self._items: dict[str, Callable[[Any], Any]] = {
            "edition": self._edition, "import_": self._import, "pipeline": self._pipeline, "deploy": self._deploy,
            "model": self._model, "input_": self._input, "output": self._output, "param": self._param,
            "require": self._require, "stage": self._stage, "edge": self._edge, "serve": self._serve,
            "use": self._use, "setting": self._setting, "override": self._override, "limit": self._limit,
            "block": self._block,
        }  # fmt: skip

    def item(self, tree: Tree[Token]) -> Any:
        return self._items[tree.data](tree.children)

    def span(self, first: Any, last: Any = None) -> Span:
        """From the start of `first` to the end of `last`, which are tokens or records with spans."""
        last = first if last is None else last
        start: int = first.start_pos if isinstance(first, Token) else first.span.start  # type: ignore[assignment]  # lexed tokens have positions
        end: int = last.end_pos if isinstance(last, Token) else last.span.end  # type: ignore[assignment]  # as above
        return Span(self.source, start, end)

    def name(self, token: Token) -> ast.Name:
        return ast.Name(str(token), self.span(token))

    def path(self, tree: Tree[Token]) -> ast.Path:
        return ast.Path(tuple(self.name(cast(Token, token)) for token in tree.children))

    # --- a file -------------------------------------------------------------------------------------------------------

    def _edition(self, parts: Sequence[Any]) -> ast.Edition:
        keyword, number = parts
        return ast.Edition(self.value(number), self.span(keyword, number))

    def _import(self, parts: Sequence[Any]) -> ast.Import:
        keyword, path, alias = parts
        name = self.name(alias) if alias else None
        return ast.Import(str(self.literal(path)), self.span(path), name, self.span(keyword, name or path))

    def _pipeline(self, parts: Sequence[Any]) -> ast.Pipeline:
        keyword, name, brace, *_, end = parts
        items = tuple(self.item(p) for p in parts if isinstance(p, Tree))
        return ast.Pipeline(self.name(name), items, self.span(brace), self.span(keyword, end))

    def _deploy(self, parts: Sequence[Any]) -> ast.Deploy:
        keyword, name, pipeline, brace, *_, end = parts
        items = tuple(self.item(p) for p in parts if isinstance(p, Tree))
        return ast.Deploy(
            self.name(name), self.name(pipeline) if pipeline else None, items, self.span(brace), self.span(keyword, end)
        )

    # --- items of a pipeline ------------------------------------------------------------------------------------------

    def _model(self, parts: Sequence[Any]) -> ast.Model:
        keyword, name, value = parts
        source = self.value(value)
        return ast.Model(self.name(name), source, self.span(keyword, source))

    def _input(self, parts: Sequence[Any]) -> ast.Input:
        keyword, name, type_ = parts
        type_ = self.type(type_)
        return ast.Input(self.name(name), type_, self.span(keyword, type_))

    def _output(self, parts: Sequence[Any]) -> ast.Output:
        keyword, name, type_ = parts
        type_ = self.type(type_)
        return ast.Output(self.name(name), type_, self.span(keyword, type_))

    def _param(self, parts: Sequence[Any]) -> ast.Param:
        keyword, name, type_, default, domain = parts
        type_ = self.type(type_)
        default = self.value(default) if default is not None else None
        domain = self._domain(domain) if domain is not None else None
        return ast.Param(self.name(name), type_, default, domain, self.span(keyword, domain or default or type_))

    def _domain(self, tree: Tree[Token]) -> ast.DomainRef:
        if tree.data == "choices":
            return cast(ast.List, self.value(tree.children[0]))
        low, high, step = (None if child is None else self.value(child) for child in tree.children)
        assert low is not None, "the grammar asks for both bounds"
        assert high is not None, "the grammar asks for both bounds"
        return ast.RangeRef(low, high, step, self.span(low, step or high))

    def _require(self, parts: Sequence[Any]) -> ast.Require:
        rule = self.value(parts[1])
        return ast.Require(rule, self.span(parts[0], rule))

    def _stage(self, parts: Sequence[Any]) -> ast.Stage:
        keyword, name, value, block = parts
        made_of, block = self.value(value), block and self.item(block)
        return ast.Stage(self.name(name), made_of, block, self.span(keyword, block or made_of))

    def _edge(self, parts: Sequence[Any]) -> ast.Edge:
        source, target, block = self.path(parts[0]), self.path(parts[1]), parts[2] and self.item(parts[2])
        return ast.Edge(source, target, block, self.span(source, block or target))

    def _serve(self, parts: Sequence[Any]) -> ast.Serve:
        uses = tuple(self.item(p) for p in parts if isinstance(p, Tree))
        return ast.Serve(uses, self.span(parts[0], uses[-1]))

    def _use(self, parts: Sequence[Any]) -> ast.Use:
        endpoint, block = self.path(parts[0]), parts[1] and self.item(parts[1])
        return ast.Use(endpoint, block, self.span(endpoint, block or endpoint))

    def _block(self, parts: Sequence[Any]) -> ast.Block:
        return ast.Block(tuple(self.item(p) for p in parts if isinstance(p, Tree)), self.span(parts[0], parts[-1]))

    def _setting(self, parts: Sequence[Any]) -> ast.Setting:
        key, value = parts
        path = ast.Path((self.name(key),)) if isinstance(key, Token) else self.path(key)
        content = self.value(value)
        return ast.Setting(path, content, self.span(path, content))

    def _override(self, parts: Sequence[Any]) -> ast.Override:
        keyword, stage, block = parts
        content = self.item(block)
        return ast.Override(self.path(stage), content, self.span(keyword, content))

    def _limit(self, parts: Sequence[Any]) -> ast.Limit:
        rule = self.value(parts[1])
        return ast.Limit(rule, self.span(parts[0], rule))

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, node: Node, depth: int = 0) -> Expr:
        """The expression in a tree. Nesting beyond reason is an error, and what lies below it is left out."""
        if isinstance(node, Token):
            return Literal(self.literal(node), span=self.span(node))
        parts: list[Any] = node.children
        if depth > _DEEPEST:
            self.sink.error("too-deep", _TOO_DEEP, self._first(node))
            return Literal(None, span=self._first(node))
        match node.data:
            case "path":
                path = self.path(node)
                word = path.head.text
                if word in CONSTANTS and path.tail is None:
                    return Literal(CONSTANTS[word], span=path.span)
                return expr.Name(tuple(name.text for name in path.names), span=path.span)
            case "group":
                return replace(self.value(parts[1], depth + 1), span=self.span(parts[0], parts[-1]))
            case "operation" | "prefixed":
                return self._operation(node, depth)
            case "list":
                items = tuple(self.value(p, depth + 1) for p in parts[1:-1])
                return ast.List(items, span=self.span(parts[0], parts[-1]))
            case "call":
                return self._call(parts, depth)
            case "signature":
                return self._signature(parts)
        raise AssertionError(f"not a value: {node.data}")

    def _call(self, parts: Sequence[Any], depth: int) -> ast.Call:
        path, _, *arguments, close = parts
        arguments = [a for a in arguments if a is not None]  # lark's placeholder for none at all
        args: list[Expr] = []
        named: list[tuple[ast.Name, Expr]] = []
        for argument in arguments:
            if isinstance(argument, Tree) and argument.data == "named":
                name, value = cast("tuple[Token, Node]", argument.children)
                named.append((self.name(name), self.value(value, depth + 1)))
            else:
                if named:
                    self.sink.error(
                        "argument-order",
                        "an argument without a name stands after one with a name",
                        self._first(argument),
                    )
                args.append(self.value(argument, depth + 1))
        callee = self.path(path)
        return ast.Call(callee, tuple(args), tuple(named), span=self.span(callee, close))

    def _signature(self, parts: Sequence[Any]) -> ast.Signature:
        middle = next(i for i, p in enumerate(parts) if isinstance(p, Token) and p.type == "RPAR")

        def ports(some: Sequence[Any]) -> tuple[ast.PortType, ...]:
            trees: list[Any] = [p.children for p in some if isinstance(p, Tree)]
            return tuple(ast.PortType(self.name(name), self.type(type_)) for name, type_ in trees)

        return ast.Signature(ports(parts[:middle]), ports(parts[middle:]), span=self.span(parts[0], parts[-1]))

    def _operation(self, node: Tree[Token], depth: int) -> Expr:
        """Operators bind as BINARY and UNARY say; comparisons do not chain."""
        flat = self._flat(node)
        if too_much := self._too_much(flat):
            return too_much
        at = 0

        def climb(power: int) -> Expr:
            nonlocal at
            first = flat[at]
            at += 1
            if _sign(first):
                operand = climb(UNARY[first])
                left: Expr = Unary(str(first), operand, span=self.span(first, operand))
                if first.type == "MINUS" and isinstance(operand, Literal) and isinstance(operand.value, int | float):
                    left = Literal(-operand.value, span=left.span)
            else:
                left = self.value(first, depth + 1)
            while at < len(flat) and BINARY[str(flat[at])] >= power:
                operator = cast(Token, flat[at])
                at += 1
                right = climb(BINARY[operator] + 1)
                left = Binary(str(operator), left, right, span=self.span(left, right))
                following = flat[at] if at < len(flat) else None
                if operator.type == "COMPARE" and isinstance(following, Token) and following.type == "COMPARE":
                    help_ = ["join two comparisons with `and`"]
                    self.sink.error("chained-comparison", "comparisons do not chain", self.span(following), help=help_)
            return left

        return climb(0)

    def _too_much(self, flat: Sequence[Node]) -> Expr | None:
        """What stands for an expression that is longer or deeper than any reader could follow."""
        signs = 0
        for number, node in enumerate(flat):
            signs = signs + 1 if _sign(node) else 0
            if signs > _DEEPEST:
                self.sink.error("too-deep", _TOO_DEEP, self._first(node))
                return Literal(None, span=self._first(node))
            if number > 2 * _LONGEST:
                self.sink.error("too-long", f"more than {_LONGEST} operators in one expression", self._first(node))
                return Literal(None, span=self._first(node))
        return None

    def _flat(self, node: Node) -> list[Node]:
        """Operands and operators, left to right; signs stand before what they apply to."""
        flat: list[Node] = []
        pending: list[Node] = [node]
        while pending:
            one = pending.pop()
            if isinstance(one, Tree) and one.data in ("operation", "prefixed"):
                pending += reversed(one.children)
            else:
                flat.append(one)
        return flat

    def literal(self, token: Token) -> int | float | Quantity | Size | str:
        """The value of a literal; a unit that does not exist or a number beyond reason is an error, and 0."""
        kind, text = _LITERALS[token.type], str(token)
        if kind != "string" and len(text) > _DIGITS:
            self.sink.error("bad-number", f"a number of {len(text)} characters", self.span(token))
            return 0
        try:
            value = expr.parse_literal(expr.Token(kind, text, 0))
        except ExprError:
            unit = text.lstrip("0123456789.")
            whole = self.span(token)
            at = Span(self.source, whole.end - len(unit), whole.end)
            self.sink.error("unknown-unit", f"unknown unit `{unit}`", at, did_you_mean(unit, UNITS))
            return 0
        if isinstance(value, float) and value == float("inf"):
            self.sink.error("bad-number", f"`{text}` is too large", self.span(token))
        if isinstance(value, int) and value > _LARGEST:
            self.sink.error("bad-number", f"`{text}` is too large: whole numbers go up to 2^63 - 1", self.span(token))
        if isinstance(value, str):
            self._escapes(token)
        return value

    def _escapes(self, token: Token) -> None:
        """Holds the backslashes of a string against the escapes that there are."""
        for found in re.finditer(r"\\(.)", str(token), re.DOTALL):
            if found[1] not in expr.ESCAPES:
                start = self.span(token).start
                at = Span(self.source, start + found.start(), start + found.end())
                help_ = [f"a string may hold {', '.join(f'`{chr(92)}{c}`' for c in expr.ESCAPES)}"]
                self.sink.error("unknown-escape", f"`{found[0]}` is no escape", at, help=help_)

    def _first(self, node: Node) -> Span:
        while isinstance(node, Tree):
            node = node.children[0]
        return self.span(node)

    # --- types --------------------------------------------------------------------------------------------------------

    def type(self, tree: Tree[Token], depth: int = 0) -> ast.TypeRef:
        kind, *inner, optional = tree.children
        args: list[Arg] = []
        bounds: list[tuple[str, int | float]] = []
        parts: list[Span] = []
        if depth > _DEEPEST:
            self.sink.error("too-deep", _TOO_DEEP, self._first(tree))
            inner = []
        for part in inner:
            if isinstance(part, Token) and part.type not in _LITERALS:
                continue  # brackets
            span = self._type_argument(part, args, bounds, depth)
            parts.append(span)
        last = optional or (inner[-1] if inner else kind)
        made = Type(str(kind), tuple(args), tuple(bounds), optional is not None)
        return ast.TypeRef(made, self.span(kind, last), tuple(parts))

    def _type_argument(self, part: Node, args: list[Arg], bounds: list[tuple[str, int | float]], depth: int) -> Span:
        if isinstance(part, Token):
            args.append(self.literal(part))
            return self.span(part)
        children: list[Any] = part.children
        span = self._first(part) if part.data == "type" else self.span(children[0], children[-1])
        match part.data:
            case "type":
                inner = self.type(part, depth + 1)
                args.append(inner.type)
                return inner.span
            case "rate":
                width, rate = map(self.literal, children)
                if isinstance(width, int) and isinstance(rate, Quantity):
                    args.append(Rate(width, rate))
                else:
                    self._bad_type(f"`{width}` is not a whole number", self.span(children[0]))
            case "ratio":
                self._try(lambda: args.append(ratio(self.literal(children[1]))), span)
            case "bound":
                name, literal = children
                self._try(lambda: bounds.append((str(name), bound_value(self.literal(literal)))), span)
            case "dims":
                dims = [str(t) if t.type == "NAME" else self.literal(t) for t in children[1:-1]]
                if fractions := [d for d in dims if isinstance(d, float)]:
                    self._bad_type(f"`{fractions[0]}` is not a whole number", span)
                args.append(Dims(tuple(d for d in dims if isinstance(d, int | str))))
        return span

    def _try(self, add: Callable[[], None], span: Span) -> None:
        try:
            add()
        except ExprError as error:
            self._bad_type(str(error), span)

    def _bad_type(self, message: str, span: Span) -> None:
        self.sink.error("bad-type", message, span)


def _sign(node: Node) -> TypeGuard[Token]:
    return isinstance(node, Token) and node.type in ("MINUS", "NOT")
