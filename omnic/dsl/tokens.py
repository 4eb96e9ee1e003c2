"""Tokens as text: the spaces between them, and where a line that is too long may be broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lark import Token

from omnic.dsl.words import scan

_OPEN = {"LPAR": "RPAR", "LSQB": "RSQB", "LT": "GT", "LBRACE": "RBRACE"}
_CLOSE = frozenset(("RPAR", "RSQB", "GT"))
_TIGHT_BEFORE = frozenset((",", ")", "]", ":", ".", "?", ".."))
_TIGHT_AFTER = frozenset(("(", "[", ".", ".."))
_OPERATORS = frozenset(("PLUS", "MINUS", "STAR", "SLASH", "COMPARE", "AND", "OR", "NOT"))


def flat(tokens: Sequence[Token]) -> str:
    """The tokens on one line, without commas before closing brackets."""
    kept = [t for i, t in enumerate(tokens) if not (t == "," and i + 1 < len(tokens) and _closes(tokens[i + 1]))]
    parts: list[str] = []
    inside: list[str] = []  # open brackets, innermost last
    for index, token in enumerate(kept):
        before = kept[index - 1] if index else None
        if before is not None and _spaced(before, token, kept[index - 2] if index > 1 else None, inside):
            parts.append(" ")
        if token.type in _OPEN:
            inside.append(token.type)
        elif token.type in _OPEN.values() and inside:
            inside.pop()
        parts.append(str(token))
    return "".join(parts)


def _closes(token: Token) -> bool:
    return token.type in _CLOSE or token.type == "RBRACE"


def _spaced(before: Token, token: Token, two_before: Token | None, inside: list[str]) -> bool:
    """Whether a space stands between `before` and `token`."""
    if token in _TIGHT_BEFORE and token.type != "COMPARE":
        return False
    if before in _TIGHT_AFTER or before.type == "LT" or token.type in ("LT", "GT"):
        return False
    if token.type == "LPAR" and before.type in ("NAME", "FN"):
        return False
    if before.type == "MINUS" and _prefix(two_before):
        return False
    ratio = before.type == "SLASH" and inside[-1:] == ["LT"]  # `/8` in a type
    return not ratio


def _prefix(before: Token | None) -> bool:
    """Whether a minus behind `before` is a sign."""
    if before is None or before.type in _OPERATORS or before.type in _OPEN:
        return True
    return str(before) in (",", "=", "..", "in", "step") or before.type in ("REQUIRE", "LIMIT")


# --- lines that are too long ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Brackets:
    """A pair of brackets in a line, and the commas right inside it."""

    open: int
    close: int
    commas: tuple[int, ...]
    list: bool  # may end in a comma


def wrapped(text: str, indent: str, width: int) -> list[str]:
    """A line as lines of at most `width`, as far as brackets in it can be broken: one item a line."""
    if len(indent) + len(text) <= width:
        return [f"{indent}{text}"]
    pairs = [pair for pair in _outermost(text) if pair.close > pair.open + 1]
    if not pairs:
        return [f"{indent}{text}"]
    pair = max(pairs, key=lambda p: p.close - p.open)
    edges = (pair.open, *pair.commas, pair.close)
    items = [text[a + 1 : b].strip() for a, b in pairwise(edges)]
    lines = [f"{indent}{text[: pair.open + 1]}"]
    for number, item in enumerate(items):
        comma = "," if pair.list or number + 1 < len(items) else ""
        lines += wrapped(f"{item}{comma}", f"{indent}  ", width)
    return [*lines, *wrapped(text[pair.close :], indent, width)]


def _outermost(text: str) -> list[_Brackets]:
    found: list[_Brackets] = []
    open_: list[tuple[str, int]] = []
    commas: list[int] = []
    before = kind = ""
    for lexeme in scan(text):
        mark, at = lexeme.text, lexeme.start
        tight = at > 0 and text[at - 1] != " "
        if mark in ("(", "[", "{") or (mark == "<" and tight):
            if not open_:
                commas, kind = [], before
            open_.append((mark, at))
        elif open_ and (mark in (")", "]", "}") or (mark == ">" and tight)):
            bracket, start = open_.pop()
            if not open_ and bracket in ("(", "["):
                called = kind.isidentifier() and kind not in ("and", "or", "not", "require", "limit", "step", "in")
                found.append(_Brackets(start, at, tuple(commas), bracket == "[" or called or kind == "->"))
        elif mark == "," and len(open_) == 1:
            commas.append(at)
        before = mark
    return found
