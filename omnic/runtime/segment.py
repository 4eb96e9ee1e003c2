"""Segmenters: text in pieces of any size in, units for a consumer out.

Each reads character by character, so its units depend on the text alone. Joined, the units are the text again, less
blanks at its end; each holds something besides blanks. A word here is a run of characters between blanks.
"""

from __future__ import annotations

import re

LONGEST = 40  # words after which a unit ends that no stop and no newline has ended
LONGEST_WORD = 400  # characters, likewise, of a word that no blank has ended

_STOPS, _CLAUSE_MARKS = ".!?…", ",;:—–"
_WIDE_STOPS, _WIDE_CLAUSE_MARKS = "。！？", "，；：、"  # no blank follows these
_CLOSERS = "\"'”’»)]}*_~`」』）"  # quotes, brackets and markdown that may stand after a stop
_OPENERS = "\"'“‘«([{*_~`"
_LIST_MARKS = frozenset(">#*+-")
_SHORTENED = re.compile(  # words that a full stop shortens; their sentence goes on
    r"m(r|rs|s|x|t)|dr|profs?|st|ft|gens?|govs?|sens?|reps?|capt|lt|col|sgt|cmdr|rev|hon|pres|supt|maj|adm|fr|msgr"
    r"|vs|cf|al|approx|est|dept|figs?|eqs?|sec|ch|vol|eds?|pp|viz|resp|incl"
)
_BEFORE_NUMBER = re.compile(  # these before a number only: "No. 5" goes on, "No. That is wrong." does not
    r"nos?|p|art|par|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_INITIALS = re.compile(r"[^\W\d_](\.[^\W\d_])*")  # J. · U.S. · e.g.


class Sentences:
    """Units end at a newline, at a stop (. ! ? …, with quotes, brackets or markdown closed after it) that a blank
    and no small letter follows, and after 40 words at the latest (then at a clause mark in their second half, if
    there is one). The stops of abbreviations, initials, decimals and numbered lists end nothing."""

    _clause_words: int | None = None  # words after which a clause mark ends a unit too

    def __init__(self) -> None:
        self._held: list[str] = []  # characters of the unit being read
        self._word: list[str] = []  # characters of the word being read, or read last
        self._words = 0  # words begun in the unit
        self._clause = (0, 0)  # characters and words of the unit up to its last clause mark
        self._in_word = self._wide_stop = self._wide_clause = False
        self._new_line = self._leads_line = True  # a line has begun; the word is its first, marks of a list aside

    def push(self, item: str) -> list[str]:
        return [unit for char in item if (unit := self._read(char)) is not None]

    def flush(self) -> list[str]:
        unit = self._cut(len(self._held))
        return [unit] if unit.strip() else []

    def _read(self, char: str) -> str | None:
        """Takes a character; the unit that ended before or with it, if one did."""
        unit = None
        if char.isspace():
            self._held.append(char)
            ended_word, self._in_word = self._in_word, False
            if char == "\n":
                self._new_line = True
                return self._cut(len(self._held)) if self._words else None
            return self._shorten() if ended_word and self._words >= LONGEST else None
        if not self._in_word:
            unit = self._begin_word(char)
        elif (self._wide_break() and char not in _CLOSERS + _WIDE_STOPS) or len(self._word) >= LONGEST_WORD:
            unit = self._cut(len(self._held))
            self._words, self._word, self._leads_line = 1, [], False
        self._held.append(char)
        self._word.append(char)
        self._wide_stop = char in _WIDE_STOPS or (self._wide_stop and char in _CLOSERS)
        self._wide_clause = char in _WIDE_CLAUSE_MARKS
        return unit

    def _begin_word(self, char: str) -> str | None:
        """The unit that ends before the word that `char` begins, if one does."""
        unit, last = None, "".join(self._word)
        if self._words:
            if self._ends(last, char):
                unit = self._cut(len(self._held))
            elif _marks_clause(last):
                self._clause = len(self._held), self._words
        self._leads_line = self._new_line or (self._leads_line and _LIST_MARKS.issuperset(last))
        self._in_word, self._word, self._new_line = True, [], False
        self._words += 1
        return unit

    def _ends(self, word: str, char: str) -> bool:
        """Whether a unit ends between `word` and a next one that begins with `char`."""
        core = word.rstrip(_CLOSERS)
        if core.endswith(tuple(_WIDE_STOPS)):
            return True
        if self._clause_words is not None and self._words >= self._clause_words and _marks_clause(word):
            return True
        if not core.endswith(tuple(_STOPS)) or char.islower():
            return False
        if not core.endswith(".") or core.endswith(".."):
            return True
        name = core[:-1].lstrip(_OPENERS).lower()
        if name.isdigit():
            return not self._leads_line
        if _SHORTENED.fullmatch(name) or (_BEFORE_NUMBER.fullmatch(name) and char.isdigit()):
            return False
        return name in ("a.m", "p.m") or not _INITIALS.fullmatch(name)

    def _wide_break(self) -> bool:
        enough = self._clause_words is not None and len(self._held) >= 2 * self._clause_words
        return self._wide_stop or (self._wide_clause and enough)

    def _shorten(self) -> str:
        """The unit that has grown too long, cut at its last clause mark if that leaves more than half."""
        at, words = self._clause
        last = "".join(self._word)
        if words * 2 <= LONGEST or _marks_clause(last) or last.rstrip(_CLOSERS).endswith(tuple(_STOPS)):
            return self._cut(len(self._held))
        rest = self._words - words
        unit = self._cut(at)
        self._words = rest
        return unit

    def _cut(self, at: int) -> str:
        unit = "".join(self._held[:at])
        del self._held[:at]
        self._words, self._clause = 0, (0, 0)
        self._wide_stop = self._wide_clause = False
        return unit


class Clauses(Sentences):
    """As Sentences, and units of three words or more end at a clause mark (, ; : and dashes) that a blank follows."""

    _clause_words = 3


class Words:
    """Each word is a unit, with the blank after it."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._in_word = False

    def push(self, item: str) -> list[str]:
        units = []
        for char in item:
            self._held.append(char)
            ended, self._in_word = self._in_word and char.isspace(), not char.isspace()
            if ended:
                units.append("".join(self._held))
                self._held.clear()
        return units

    def flush(self) -> list[str]:
        held, self._held = "".join(self._held), []
        return [held] if held.strip() else []


class Whole:
    """All of the text is one unit, even where there is none."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def push(self, item: str) -> list[str]:
        self._held.append(item)
        return []

    def flush(self) -> list[str]:
        held, self._held = "".join(self._held), []
        return [held]


def _marks_clause(word: str) -> bool:
    return word.rstrip(_CLOSERS).endswith(tuple(_CLAUSE_MARKS))
