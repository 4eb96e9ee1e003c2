"""Syntax errors: what to say of one, and where to read on after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnic.diagnostics import Label, Sink
from omnic.dsl.tables import parser
from omnic.dsl.words import DEPLOY_ITEMS, ITEMS, TOP, Lexeme, Scan
from omnic.source import Source, Span
from omnic.spelling import nearest

_MOST = 30
_CLOSER = {"LPAR": ")", "LSQB": "]", "LT": ">", "LBRACE": "}"}
_VALUE = frozenset(("NUMBER", "STRING", "NAME", "LPAR", "LSQB", "MINUS", "NOT", "FN", "QUANTITY", "SIZE"))
_ARGUMENT = frozenset(("NUMBER", "QUANTITY", "SIZE", "NAME", "SLASH", "LSQB"))
_OPERATORS = frozenset(("PLUS", "MINUS", "STAR", "SLASH", "COMPARE", "AND", "OR"))
_PHRASES = {
    "NAME": "a name",
    "COMPARE": "a comparison",
    "STRING": "a string",
    "NUMBER": "a number",
    "QUANTITY": "a quantity such as `24kHz`",
    "SIZE": "a size such as `1024x1024`",
    "_NL": "the end of the line",
    "$END": "the end of the file",
}
_HINTS = (
    ("=>", "an edge is written `->`"),
    ("-->", "an edge is written `->`"),
    ("→", "an edge is written `->`"),
    (";", "the end of the line ends a statement"),
    ("'", "strings stand in double quotes"),
    ("“", 'strings stand in double quotes: "'),
    ("”", 'strings stand in double quotes: "'),
    ("//", "comments begin with `#`"),
    ("/*", "comments begin with `#`"),
)


class _Open(NamedTuple):
    """A bracket that the parser is inside of. `what`: pipeline, deploy, block; round for those that are no braces."""

    token: Token
    what: str
    depth: int  # of the parser's stack where it lies

    @property
    def braced(self) -> bool:
        """Whether it holds statements."""
        return self.what in ("pipeline", "deploy")

    @property
    def closer(self) -> str:
        return _CLOSER[self.token.type]

    def span(self, source: Source) -> Span:
        assert self.token.start_pos is not None, "lexed tokens have positions"
        return Span(source, self.token.start_pos, self.token.start_pos + 1)


class SyntaxErrors:
    """lark's `on_error` for one text: reports each error and has the parser read on behind it."""

    def __init__(self, source: Source, sink: Sink) -> None:
        self._source, self._sink = source, sink
        self._scan: Scan | None = None
        self._count = 0
        self._last = -1  # offset where reading went on last

    def __call__(self, error: UnexpectedInput) -> bool:
        """Reports `error`; whether the parser shall go on."""
        self._count += 1
        scan = self._scan = self._scan or Scan(self._source.text)
        where = _Place(error, scan)
        stop = self._report(where)
        if stop is None or self._count >= _MOST:
            return False
        if isinstance(stop, _Repair):
            return where.resume(stop) or self._skip(where, where.index)
        return self._skip(where, stop)

    # --- what to say --------------------------------------------------------------------------------------------------

    def _report(self, at: _Place) -> int | _Repair | None:
        """Says what is wrong; answers with the index of the lexeme from which to look for a place to read on."""
        if at.inside:
            line = at.scan.line_begin(at.index)
            begins = at.scan.begins(line)
            behind = line > at.scan.index(at.inside.span(self._source).start)
            wrong_level = begins == "top" or (begins == "item" and at.inside.what in ("block", "round"))
            wrong_level |= at.inside.what == "round" and at.scan[line].text == "}"
            if at.ended or (behind and wrong_level):
                return self._unclosed(at, at.index if at.ended else line, begins)
        elif at.scan.begins(at.scan.line_begin(at.index)) == "item":
            return self._outside(at)
        if repair := at.misspelt():
            first, word = at.first, repair.word
            self._error("syntax", f"unknown statement `{first.text}`", self._span(first), f"did you mean `{word}`?")
            return repair
        self._unexpected(at)
        return None if at.ended else at.index

    def _unclosed(self, at: _Place, before: int, begins: str) -> int | None:
        """A bracket that should have been closed before the lexeme at index `before`."""
        assert at.inside
        kept = ("pipeline", "deploy") if begins == "item" and not at.ended else ()
        left = [bracket for bracket in reversed(at.open) if bracket.what not in kept]
        last = at.scan.before(before)
        end = at.scan[last].end
        opener = at.inside.span(self._source)
        self._error(
            "unclosed",
            f"`{at.inside.token}` is never closed",
            Span(self._source, end, end),
            f"expected `{' '.join(bracket.closer for bracket in left)}`",
            secondary=[Label(opener, f"this {at.inside.what}" if at.inside.braced else "opened here")],
        )
        if at.ended:
            return None
        at.floor = left[-1].depth
        return last + 1

    def _outside(self, at: _Place) -> int:
        """A statement of a pipeline at the top of the file."""
        line = at.scan.line_begin(at.index)
        index = at.scan.before(line)
        brace = at.scan[index]
        if brace.text == "}" and at.scan.line_begin(index) != index:
            self._error("unbalanced", "this `}` closes the pipeline, and statements follow it", self._span(brace))
        else:
            help_ = ["put it between the braces of a `pipeline`"]
            self._error("outside-pipeline", "this stands outside a pipeline", self._span(at.scan[line]), help=help_)
        return at.index

    def _unexpected(self, at: _Place) -> None:
        lexeme = at.lexeme
        rest = self._source.text[lexeme.start : lexeme.start + 3]
        hint = next((hint for mark, hint in _HINTS if rest.startswith(mark)), "")
        if rest.startswith('"') and lexeme.kind == "other":
            end = self._source.text.find("\n", lexeme.start)
            span = Span(self._source, lexeme.start, len(self._source.text) if end < 0 else end)
            self._error("unclosed-string", "this string is not closed on its line", span, 'expected `"`')
            return
        if lexeme.text == "}" and not at.inside:
            self._error("unbalanced", "this `}` closes nothing", self._span(lexeme))
            return
        before = at.scan.before(at.index)
        if at.scan[before].text in ("in", "step", "as", "for") and at.scan[before - 1].text in ("=", "..", "in", ":"):
            word = at.scan[before]
            what = "a name" if at.scan[before - 1].text == ":" else "a value"
            self._error("syntax", f"expected {what}, found `{word.text}`", self._span(word))
            return
        phrases = at.expected()
        dangling = at.scan[before].text == "," and before < at.index - 1 and at.inside and at.inside.what == "pipeline"
        if at.ended or lexeme.kind == "newline" or dangling:
            found, end = f"the end of the {'file' if at.ended else 'line'}", at.scan[before].end
            span = Span(self._source, end, end)
        else:
            found, span = f"`{_shown(lexeme.text)}`", self._span(lexeme)
            if lexeme.text == "{" and at.scan.line_begin(at.index) == at.index:
                hint = "`{` stands on the line of its statement"
        secondary = []
        if at.inside and at.inside.what == "round" and f"`{at.inside.closer}`" in phrases:
            secondary = [Label(at.inside.span(self._source), "opened here")]
        headline = f"expected {_either(phrases)}, found {found}" if len(phrases) <= 5 else f"unexpected {found}"
        notes = [f"here may stand {_either(phrases)}"] if len(phrases) > 5 else []
        self._error("syntax", headline, span, hint, secondary=secondary, notes=notes)

    def _error(self, id: str, headline: str, span: Span, label: str = "", **more: Any) -> None:
        self._sink.error(id, headline, span, label, **more)

    def _span(self, lexeme: Lexeme) -> Span:
        return Span(self._source, lexeme.start, lexeme.end)

    # --- where to read on ---------------------------------------------------------------------------------------------

    def _skip(self, at: _Place, index: int) -> bool:
        """Puts BAD in place of what could not be read, and goes on behind it."""
        level, braces, rounds = at.unwind()
        scan = at.scan
        while True:
            lexeme = scan[index]
            if index >= len(scan.lexemes):
                return False
            if lexeme.kind == "newline":
                begins = scan.begins(index + 1)
                expected_here = begins == "top" if level == "top" else begins != "" or (braces == 0 and rounds == 0)
                if expected_here and lexeme.start > self._last:
                    break
            elif lexeme.text == "{":
                braces += 1
            elif lexeme.text == "}":
                if braces == 0 and level != "top" and lexeme.start > self._last:
                    break
                braces, rounds = max(0, braces - 1), 0
            elif lexeme.text in ("(", "["):
                rounds += 1
            elif lexeme.text in (")", "]"):
                rounds = max(0, rounds - 1)
            elif (
                lexeme.text == ","
                and level in ("block", "deploy")
                and braces == rounds == 0
                and lexeme.start > self._last
            ):
                break
            index += 1
        self._last = lexeme.start
        at.go_on(lexeme.start, Token("BAD", ""))
        return True


class _Repair(NamedTuple):
    """A misspelt statement word, and the word that was meant."""

    word: str
    pop: bool  # the parser took the word for the begin of a path
    offset: int  # where to read on


class _Place:
    """Where the parser stood when it met the error."""

    def __init__(self, error: UnexpectedInput, scan: Scan) -> None:
        self.scan = scan
        self._parser: Any = error.interactive_parser
        self._state = self._parser.parser_state
        token = error.token if isinstance(error, UnexpectedToken) else None
        self.ended = token is not None and token.type == "$END"
        offset = error.pos_in_stream if isinstance(error, UnexpectedCharacters) else token.start_pos if token else None
        self.index = len(scan.lexemes) if self.ended else scan.index(offset or 0)
        self.lexeme = scan[self.index]
        self.open = tuple(self._brackets())
        self.inside = self.open[-1] if self.open else None
        self.floor: int | None = None  # height of the parser's stack under the brackets that count as closed

    @property
    def first(self) -> Lexeme:
        """The first word of the statement."""
        return self.scan[self.scan.statement_begin(self.index)]

    def _brackets(self) -> Iterable[_Open]:
        values = self._state.value_stack

        def word(depth: int) -> str:
            return values[depth].type if depth >= 0 and isinstance(values[depth], Token) else ""

        for depth, value in enumerate(values):
            if isinstance(value, Token) and value.type in _CLOSER:
                what = "round" if value.type != "LBRACE" else "block"
                if what == "block" and word(depth - 2) == "PIPELINE":
                    what = "pipeline"
                elif what == "block" and "DEPLOY" in (word(depth - 2), word(depth - 4)):
                    what = "deploy"
                yield _Open(value, what, depth)

    def expected(self) -> list[str]:
        """What may stand here, as the user would write it."""
        accepted = self._parser.accepts() - {"BAD"}
        phrases = []
        if accepted >= _VALUE:
            phrases.append("a value")
            accepted -= _VALUE
        elif accepted >= _ARGUMENT and "STRING" not in accepted:
            phrases.append("an argument such as `24kHz`")
            accepted -= _ARGUMENT
        operators = accepted & _OPERATORS
        if len(operators) > 2:
            accepted -= operators
        rest = [_PHRASES.get(name) or f"`{parser().get_terminal(name).pattern.value}`" for name in accepted]
        phrases += sorted(rest, key=lambda p: (p.startswith("the end"), not p.startswith("a "), p))
        return [*phrases, "an operator"] if len(operators) > 2 else phrases

    def misspelt(self) -> _Repair | None:
        """The repair of a first word that is nearly a statement word, if that is what is wrong."""
        begin = self.scan.statement_begin(self.index)
        first, second = self.scan[begin], self.scan[begin + 1]
        if first.kind != "word" or second.kind not in ("word", "string") or self.index - begin > 1:
            return None
        level = self.inside.what if self.inside else "top"
        words = {"top": TOP, "pipeline": ITEMS, "deploy": DEPLOY_ITEMS}.get(level, ())
        word = nearest(first.text, words) if first.text not in words else None
        if word is None:
            return None
        if self.index == begin:
            return _Repair(word, False, first.end)
        value = self._state.value_stack[-1] if self._state.value_stack else None
        if isinstance(value, Token) and value.start_pos == first.start:
            return _Repair(word, True, second.start)
        return None

    def resume(self, repair: _Repair) -> bool:
        """Reads on as if the word had been spelt right."""
        if repair.pop:
            self._state.state_stack.pop()
            self._state.value_stack.pop()
        if repair.word.upper() not in self._parser.choices():
            return False
        self.go_on(repair.offset, Token(repair.word.upper(), repair.word, repair.offset, end_pos=repair.offset))
        return True

    def unwind(self) -> tuple[str, int, int]:
        """Takes the parser back to where a statement or setting may begin.

        What that is part of (top, pipeline, deploy or block), and how many braces and other brackets were left.
        """
        states, values = self._state.state_stack, self._state.value_stack
        while "BAD" not in self._parser.choices() or (self.floor is not None and len(values) > self.floor):
            states.pop()
            values.pop()
        kept = [o for o in self.open if o.depth < len(values)]
        left = self.open[len(kept) :] if self.floor is None else ()
        braces = sum(o.what != "round" for o in left)
        return kept[-1].what if kept else "top", braces, len(left) - braces

    def go_on(self, offset: int, token: Token) -> None:
        self._parser.feed_token(token)
        self._parser.lexer_thread.state.line_ctr.char_pos = offset


def _either(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} or {phrases[-1]}"


def _shown(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
