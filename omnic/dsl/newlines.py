"""Which newlines count: between lexer and parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Token

_OPEN = frozenset({"LPAR", "LSQB", "LT", "LBRACE"})
_CLOSE = frozenset({"RPAR", "RSQB", "GT", "RBRACE"})


class Newlines:
    """Drops newlines inside ( [ <, and joins runs of them. Holds no state between texts."""

    always_accept = ("_NL",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        open_: list[str] = []
        last = ""
        for token in stream:
            kind = token.type
            if kind == "_NL":
                if last == "_NL" or (open_ and open_[-1] != "LBRACE"):
                    continue
            elif kind in _OPEN:
                open_.append(kind)
            elif kind in _CLOSE and open_:
                open_.pop()
            last = kind
            yield token
