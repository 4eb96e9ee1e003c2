"""The words of the language, and a scan of a text that cannot fail: what syntax errors and comments are found with."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from omnic.expr import CONSTANTS

TOP = ("edition", "import", "pipeline", "deploy")
ITEMS = ("model", "input", "output", "param", "require", "stage", "serve")
DEPLOY_ITEMS = ("stage", "limit")
RESERVED = frozenset((*TOP, *ITEMS, "limit", "in", "step", "for", "as", "and", "or", "not", "fn", "std", *CONSTANTS))
"""What cannot name a declaration. After a dot or before `=` these are names like any other."""

_SCAN = re.compile(
    r"""
    (?P<blank>[ \t\f\r\ufeff]+)
  | (?P<newline>\n)
  | (?P<comment>\#[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<word>[A-Za-z0-9_]+)
  | (?P<mark>->|\.\.|[<>=!]=|[{}()\[\]<>=:,.?@+\-*/])
  | (?P<other>.)
""",
    re.VERBOSE,
)


class Lexeme(NamedTuple):
    """A piece of text: a string, word or mark, a newline, a comment, or a character that means nothing."""

    kind: str  # string word mark newline comment other
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def scan(text: str) -> Iterator[Lexeme]:
    """Everything in `text` but blanks."""
    for match in _SCAN.finditer(text):
        kind = match.lastgroup
        if kind is not None and kind != "blank":
            yield Lexeme(kind, match[0], match.start())


class Scan:
    """The lexemes of a text without its comments, by index and by offset."""

    def __init__(self, text: str) -> None:
        self.lexemes = [lexeme for lexeme in scan(text) if lexeme.kind != "comment"]
        self._starts = [lexeme.start for lexeme in self.lexemes]
        self.length = len(text)

    def index(self, offset: int) -> int:
        """Index of the lexeme at `offset`, or of the first one after it."""
        at = bisect_right(self._starts, offset) - 1
        return at if at >= 0 and self.lexemes[at].end > offset else at + 1

    def __getitem__(self, index: int) -> Lexeme:
        """The lexeme at `index`; before and after all of them, newlines."""
        if 0 <= index < len(self.lexemes):
            return self.lexemes[index]
        return Lexeme("newline", "", 0 if index < 0 else self.length)

    def before(self, index: int) -> int:
        """Index of the last lexeme before the one at `index` that is no newline; -1 if there is none."""
        while index > 0 and self[index - 1].kind == "newline":
            index -= 1
        return index - 1

    def line_begin(self, index: int) -> int:
        """Index of the first lexeme on the line of the one at `index`."""
        while self[index - 1].kind != "newline":
            index -= 1
        return index

    def statement_begin(self, index: int) -> int:
        """Index of the first lexeme after the newline or brace before the one at `index`."""
        while not (self[index - 1].kind == "newline" or self[index - 1].text in ("{", "}")):
            index -= 1
        return index

    def begins(self, index: int) -> str:
        """What the line that begins at `index` looks like: `top`, `item`, or neither of them (an empty text)."""
        first, second = self[index], self[index + 1]
        if first.text in TOP and second.kind in ("word", "string"):
            return "top"
        if first.text in ITEMS and second.kind in ("word", "string"):
            return "item"
        if first.kind == "word" and first.text not in (*TOP, *ITEMS):
            while self[index + 1].text == "." and self[index + 2].kind == "word":
                index += 2
            return "item" if self[index + 1].text == "->" else ""
        return ""
