"""What of a text is read aloud: `Spoken` takes the markup out of it as it comes, `Phrases` makes units of the rest.

Fenced code goes whole. Headings, emphasis, bullets, quotes, rules, inline code and HTML tags lose their marks; links
and images keep their labels; a comma parts the cells of a table row. Indented code is read out: it cannot be told
from a nested list. All of it works character by character, so what comes out depends on the text alone.
"""

from __future__ import annotations

import html
import re
import string
from collections.abc import Callable

from omnic.runtime.edges import Segmenter

_LONGEST = 400  # characters of a label, an address or a tag, after which it is taken for plain text
_BLANKS = " \t\r"
_HEAD = frozenset(_BLANKS + ">#-*+=_~`|:")  # what can stand before the first word of a line
_MARKS = re.compile(r"\s*(?:>\s?|[-*+]\s+|#{1,6}\s+)*")  # of quotes, bullets and headings
_FENCE = re.compile(r"\s*(?:(?:>|[-*+]\s)\s*)*(`{3,}|~{3,})\s*")
_ADDRESS = re.compile(r"\(\s*\S*(?:\s+[\"'(].*[\"')])?\s*\)|\[.*\]")
_TAG = re.compile(r"/?[A-Za-z][\w-]*(?:\s+[\w:@.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+))*\s*/?|[!?].*")
_AUTOLINK = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*|[^\s@]+@\S+")
_PARTING = re.compile(r"/?(?:br|p|div|li|ul|ol|t[rdh]|table|hr|h[1-6])\b.*", re.IGNORECASE)
_GAP = re.compile(r" +([,.;:!?])")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,31});")
_URL = re.compile(r"https?://(?:www\.)?([\w-]+(?:\.[\w-]+)*)(?::\d+)?(?:[/?#](?:\S*[^\s.,;:!?)\]'\"])?)?")


class Phrases:
    """What is said of a text that comes in units, a phrase each; units that say nothing give none.

    With a `segmenter`, the text is cut by it first: for text that comes whole, or in deltas.
    """

    def __init__(self, segmenter: Segmenter | None = None) -> None:
        self._segmenter = segmenter
        self._spoken = Spoken()

    def push(self, unit: str) -> list[str]:
        return self._said(self._segmenter.push(unit) if self._segmenter else [unit])

    def flush(self) -> list[str]:
        phrases = self._said(self._segmenter.flush()) if self._segmenter else []
        return phrases + _phrase(self._spoken.flush())

    def _said(self, units: list[str]) -> list[str]:
        return [phrase for unit in units for phrase in _phrase(self._spoken.push(unit) + self._spoken.pause())]


def _phrase(text: str) -> list[str]:
    """`text` on one line, its entities read and of its addresses only the host; nothing if it holds no word."""
    text = _URL.sub(r"\1", _ENTITY.sub(lambda found: html.unescape(found[0]), text))
    text = _GAP.sub(r"\1", " ".join(text.split()))
    return [text] if any(map(str.isalnum, text)) else []


class Spoken:
    """A text without its markup. `push` what comes, then `flush`, once; each gives what is certain by then."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._read: Callable[[str], None] = self._line_head  # what takes the next character
        self._held: list[str] = []  # characters that what follows will explain: a line's head, an address, a tag
        self._fence = ""  # the marks that opened the code being skipped
        self._code = 0  # how many backticks opened the inline code being read
        self._run = ""  # marks of one kind, at hand
        self._last = "\n"  # the character before them
        self._labels: list[list[str]] = []  # what stands in each bracket that is open
        self._escaped = False
        self._quote = ""  # the quote that is open in a tag
        self._spaced = False  # a blank stands in the tag
        self._depth = 0  # how many brackets are open in an address
        self._cell = self._filled = False  # a cell ended; the line has said something

    def push(self, text: str) -> str:
        for char in text:
            self._read(char)
        return self._taken()

    def pause(self) -> str:
        """What is certain if a blank comes next."""
        if self._run:
            self._end_run(" ")
        return self._taken()

    def flush(self) -> str:
        self._read("\n")
        return self._taken().removesuffix("\n")

    def _taken(self) -> str:
        out, self._out = "".join(self._out), []
        return out

    def _give_back(self, then: str) -> None:
        """What was held is plain text after all, and `then` follows it."""
        held, self._held, self._read = [*self._held, then], [], self._inline
        for char in held:
            self._read(char)

    # --- lines -----------------------------------------------------------------------------------------------------

    def _line_head(self, char: str) -> None:
        if char in _HEAD:
            self._held.append(char)
            return
        head = "".join(self._held)
        if fence := _FENCE.fullmatch(head):
            self._fence, self._read = fence[1], self._fence_line
            self._fence_line(char)
        elif char == "\n":  # a rule, or a blank line
            self._held.clear()
            self._say("\n")
        else:
            self._held = list(head[_MARKS.match(head).end() :])  # type: ignore[union-attr]  # it matches nothing, too
            self._give_back(char)

    def _fence_line(self, char: str) -> None:
        if char != "\n":
            self._held.append(char)
            return
        line = "".join(self._held)
        if self._fence[0] == "`" and "`" in line[_FENCE.match(line).end() :]:  # type: ignore[union-attr]
            self._give_back(char)  # code on one line
        else:
            self._held.clear()
            self._read = self._fenced

    def _fenced(self, char: str) -> None:
        if char != "\n":
            self._held.append(char)
            return
        line = "".join(self._held).strip(_BLANKS + ">")
        self._held.clear()
        if len(line) >= len(self._fence) and set(line) == {self._fence[0]}:
            self._read = self._line_head

    def _end_line(self) -> None:
        self._end_labels()
        self._code, self._cell, self._filled, self._last = 0, False, False, "\n"
        self._say("\n")
        self._read = self._line_head

    # --- inside a line ---------------------------------------------------------------------------------------------

    def _inline(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
            if char in string.punctuation:
                self._show(char)
                return
            if char != "\n":
                self._show("\\")
        if self._run:
            if char == self._run[0]:
                self._run += char
                return
            self._end_run(char)
        if char == "\n":
            self._end_line()
        elif char == "`" or (char in "*_~!#" and not self._code):
            self._run = char
        elif self._code:
            self._show(char)
        elif char == "\\":
            self._escaped = True
        elif char == "[":
            self._labels.append([])
            self._last = char
        elif char == "]" and self._labels:
            self._read = self._after_label
        elif char == "<":
            self._read = self._tag
        elif char == "|":
            self._cell, self._last = True, char
        else:
            self._show(char)

    def _end_run(self, char: str) -> None:
        run, self._run, before, self._last = self._run, "", self._last, self._run[0]
        if run[0] == "`" and self._code in (0, len(run)):
            self._code = len(run) - self._code
        elif run[0] == "!":
            self._show(run[:-1] if char == "[" else run)  # an image
        elif (
            run[0] == "`"
            or run == "~"
            or (run[0] == "#" and not (before.isspace() and char in ("\n" if len(run) == 1 else " \n")))
            or (run[0] in "*_" and before.isspace() and char.isspace())
            or (run[0] == "*" and before.isdigit() and char.isdigit())
            or (run[0] == "_" and before.isalnum() and char.isalnum())
        ):
            self._show(run)

    def _after_label(self, char: str) -> None:
        if char in "([":
            self._held, self._read, self._depth = [char], self._address, 1
            return
        self._end_label(as_written=True)
        self._read = self._inline
        self._inline(char)

    def _address(self, char: str) -> None:
        if char == "\n" or len(self._held) > _LONGEST:
            self._end_label(as_written=True)
            self._give_back(char)
            return
        self._held.append(char)
        opening = self._held[0]
        self._depth += (char == opening) - (char == (")" if opening == "(" else "]"))
        if self._depth:
            return
        link = _ADDRESS.fullmatch("".join(self._held)) is not None
        self._end_label(as_written=not link)
        if link:
            self._held, self._read = [], self._inline
        else:
            self._held.pop()
            self._give_back(char)

    def _end_label(self, *, as_written: bool) -> None:
        label, self._last = "".join(self._labels.pop()), "]"
        if not as_written:
            self._say(label)
        elif not label.startswith("^") and label.strip() not in ("", "x", "X"):  # a footnote's mark, a box to tick
            self._say(f"[{label}]")

    def _end_labels(self) -> None:
        """The brackets that are open will not be closed."""
        while self._labels:
            label = "".join(self._labels.pop())
            self._say(f"[{label}")

    def _tag(self, char: str) -> None:
        if char == ">" and self._held and not self._quote:
            self._end_tag("".join(self._held))
            return
        self._spaced = bool(self._held) and self._spaced
        opens = bool(self._held) or char.isalpha() or char in "/!?"
        prose = char in ".,;!?()" and not self._quote and self._spaced
        if not opens or prose or char in "<\n" or len(self._held) > _LONGEST:
            self._quote = ""
            self._show("<")
            self._give_back(char)
            return
        self._held.append(char)
        self._spaced = self._spaced or char.isspace()
        if char in "\"'":
            self._quote = "" if self._quote == char else self._quote or char
        if self._held == ["!", "-", "-"]:
            self._held, self._read = [], self._comment

    def _end_tag(self, tag: str) -> None:
        self._held, self._read = [], self._inline
        if _AUTOLINK.fullmatch(tag):
            self._show(tag)
        elif not _TAG.fullmatch(tag):
            self._show("<")
            self._held = list(tag)
            self._give_back(">")
        elif _PARTING.fullmatch(tag):
            self._show(" ")
        self._last = ">"

    def _comment(self, char: str) -> None:
        self._held = [*self._held[-2:], char]
        if self._held == ["-", "-", ">"]:
            self._held, self._read = [], self._inline

    def _show(self, text: str) -> None:
        """Says a part of the line, after the comma that a cell's end asks for."""
        if self._cell and not text.isspace():
            self._cell = False
            if self._filled:
                self._say(", ")
        self._filled = self._filled or not text.isspace()
        self._say(text)
        self._last = text[-1:] or self._last
        if self._labels and len(self._labels[-1]) > _LONGEST:
            self._end_labels()

    def _say(self, text: str) -> None:
        (self._labels[-1] if self._labels else self._out).append(text)
