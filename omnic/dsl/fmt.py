"""The one format of `.omni` files. Formatting twice is formatting once; every comment is kept.

A block stays on its line if it fits and holds no comment. Names, values and blocks of neighbouring statements of a
kind stand under each other. One blank line at most stays where there were any. A comment inside an expression moves
above its statement.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from lark import Token

from omnic.diagnostics import Sink
from omnic.dsl import ast
from omnic.dsl.parse import parse
from omnic.dsl.tables import parser
from omnic.dsl.tokens import flat, wrapped
from omnic.dsl.words import Lexeme, scan
from omnic.source import Source, Span

WIDTH = 120
_INDENT = "  "


def format(source: Source, sink: Sink) -> str | None:
    """The text of `source`, formatted; None, and errors, if it does not parse."""
    file = parse(source, sink)
    return None if file is None else _Formatter(source).file(file)


@dataclass(slots=True)
class _Row:
    """A statement on its way to be a line: cells that may be padded, and what stands around them."""

    group: str  # rows of one group under each other are aligned
    cells: list[str]
    above: list[str]  # comments, and "" for blank lines
    below: list[str] = field(default_factory=list)  # the lines of a block that is not on one line
    opening: str = ""  # comment behind its opening brace
    comment: str = ""
    padded: list[str] = field(default_factory=list)

    def line(self, padded: bool) -> str:
        return "".join(self.padded if padded else [f"{cell} " for cell in self.cells]).rstrip()


class _Formatter:
    def __init__(self, source: Source) -> None:
        self._source = source
        reading: Any = parser().parse_interactive(source.text, start="start")
        self._tokens: list[Token] = [t for t in reading.iter_parse() if t.type != "_NL"]
        self._starts = [_start(t) for t in self._tokens]
        self._comments = [c for c in scan(source.text) if c.kind == "comment"]
        self._places = [c.start for c in self._comments]

    # --- what lies where ----------------------------------------------------------------------------------------------

    def _between(self, start: int, end: int) -> list[Token]:
        return self._tokens[bisect_left(self._starts, start) : bisect_left(self._starts, end)]

    def _notes(self, start: int, end: int) -> list[Lexeme]:
        return self._comments[bisect_left(self._places, start) : bisect_left(self._places, end)]

    def _line(self, offset: int) -> int:
        return self._source.position(offset)[0]

    def _flat(self, span: Span) -> str:
        return flat(self._between(span.start, span.end))

    # --- a file -------------------------------------------------------------------------------------------------------

    def file(self, file: ast.File) -> str:
        lines = self._body(file.items, 0, len(self._source.text), "")
        return "".join(f"{line}\n" for line in lines)

    def _body(self, entries: Sequence[Any], start: int, end: int, indent: str) -> list[str]:
        """The lines of what stands between `start` and `end`, which are entries and comments."""
        rows: list[_Row] = []
        at = start
        for entry in entries:
            row = self._row(entry, indent)
            above = self._above(at, entry.span.start, bool(rows))
            around_block = rows and (_is_top_block(entry) or _is_top_block(entries[len(rows) - 1]))
            row.above = [*([""] if around_block and above[:1] != [""] else []), *above, *self._hoisted(entry)]
            row.comment, at = self._trailing(entry.span.end, end)
            rows.append(row)
        rest = self._above(at, end, bool(rows))
        while rest and rest[-1] == "":
            rest.pop()
        _align(rows, indent)
        lines = [line for row in rows for line in self._lines(row, indent)]
        return [*lines, *(f"{indent}{text}" if text else "" for text in rest)]

    def _lines(self, row: _Row, indent: str) -> Iterator[str]:
        yield from (f"{indent}{text}" if text else "" for text in row.above)
        text = row.line(padded=True) if row.padded else row.line(padded=False)
        lines = [f"{indent}{text}"]
        if len(lines[0]) > WIDTH:
            lines = wrapped(row.line(padded=False), indent, WIDTH)
        lines[-1] += f"  {row.opening}" if row.opening else ""
        lines += row.below
        lines[-1] += f"  {row.comment}" if row.comment else ""
        yield from lines

    # --- comments -----------------------------------------------------------------------------------------------------

    def _above(self, start: int, end: int, blank_first: bool) -> list[str]:
        """Comments between two places, and "" for blank lines the source has; before all of them if `blank_first`."""
        found: list[str] = []
        at = self._line(start)
        for comment in self._notes(start, end):
            line = self._line(comment.start)
            if line > at + 1 and (found or blank_first):
                found.append("")
            found.append(comment.text.rstrip())
            at = line
        if end < len(self._source.text) and self._line(end) > at + 1 and (found or blank_first):
            found.append("")
        return found

    def _trailing(self, start: int, end: int) -> tuple[str, int]:
        """The comment on the line where an entry ends, and where to read on."""
        line = self._line(start)
        for comment in self._notes(start, end)[:1]:
            between = self._source.text[start : comment.start]
            if self._line(comment.start) == line and not between.strip(" \t\f\r\ufeff,"):
                return comment.text.rstrip(), comment.end
        return "", start

    def _hoisted(self, entry: Any) -> list[str]:
        """Comments inside an entry that cannot stay where they are."""
        kept = self._body_span(entry)
        inside = self._notes(entry.span.start, entry.span.end)
        return [c.text.rstrip() for c in inside if kept is None or not kept[0] <= c.start < kept[1]]

    def _body_span(self, entry: Any) -> tuple[int, int] | None:
        """Where entries inside this one stand, each with comments of its own."""
        match entry:
            case ast.Pipeline() | ast.Deploy():
                return entry.brace.end, entry.span.end
            case ast.Stage() | ast.Edge() | ast.Override():
                return (entry.block.span.start + 1, entry.block.span.end) if entry.block else None
        return None

    # --- entries ------------------------------------------------------------------------------------------------------

    def _row(self, entry: Any, indent: str) -> _Row:
        start = entry.span.start
        match entry:
            case ast.Pipeline() | ast.Deploy():
                head = flat(self._between(start, entry.brace.start))
                items = entry.items
                return self._braced("", [head], items, entry.brace.end, entry.span.end - 1, indent, inline=False)
            case ast.Model(name=name, value=value):
                return _Row("model", [self._to(start, name.span), f"= {self._flat(_span(value))}"], [])
            case ast.Input(name=name, type=type_) | ast.Output(name=name, type=type_):
                word = "input" if isinstance(entry, ast.Input) else "output"
                return _Row("given", [word, f"{name}:", self._flat(type_.span)], [])
            case ast.Param(name=name):
                rest = flat(self._between(name.span.start, entry.span.end))
                return _Row("given", ["param", rest], [])
            case ast.Stage(name=name, value=value, block=block):
                cells = [self._to(start, name.span), f"= {self._flat(_span(value))}"]
                return self._with_block("stage", cells, block, indent)
            case ast.Edge(source=source, target=target, block=block):
                return self._with_block(
                    "edge", [self._flat(source.span), f"-> {self._flat(target.span)}"], block, indent
                )
            case ast.Override(stage=stage, block=block):
                return self._with_block("override", [f"stage {self._flat(stage.span)}"], block, indent)
            case ast.Serve(uses=uses):
                return self._serve(uses, indent)
        return _Row("", [self._flat(entry.span)], [])

    def _to(self, start: int, span: Span) -> str:
        return flat(self._between(start, span.end))

    def _with_block(self, group: str, cells: list[str], block: ast.Block | None, indent: str) -> _Row:
        if block is None:
            return _Row(group, cells, [])
        return self._braced(group, cells, block.settings, block.span.start + 1, block.span.end - 1, indent, inline=True)

    def _braced(
        self, group: str, cells: list[str], entries: Sequence[Any], start: int, end: int, indent: str, *, inline: bool
    ) -> _Row:
        """A row that ends in braces around `entries`: on its line if `inline` and it fits, else each on a line."""
        noted = bool(self._notes(start, end))
        if not entries and not noted:
            return _Row(group, [*cells, "{}"], [])
        if inline and not noted:
            block = f"{{ {', '.join(self._flat(e.span) for e in entries)} }}"
            if len(indent) + sum(len(c) + 1 for c in cells) + len(block) <= WIDTH:
                return _Row(group, [*cells, block], [])
        opening, at = self._trailing(start, end)
        lines = self._body(entries, at, end, f"{indent}{_INDENT}")
        return _Row(group, [*cells, "{"], [], [*lines, f"{indent}}}"], opening)

    def _serve(self, uses: Sequence[ast.Use], indent: str) -> _Row:
        texts = [self._flat(use.span) for use in uses]
        line = f"serve {', '.join(texts)}"
        if len(indent) + len(line) <= WIDTH or len(texts) == 1:
            return _Row("", [line], [])
        first, *rest = [f"{text}," for text in texts[:-1]] + [texts[-1]]
        return _Row("", [f"serve {first}"], [], [f"{indent}      {text}" for text in rest])


def _is_top_block(entry: Any) -> bool:
    return isinstance(entry, ast.Pipeline | ast.Deploy)


def _start(token: Token) -> int:
    assert token.start_pos is not None, "lexed tokens have positions"
    return token.start_pos


def _span(value: Any) -> Span:
    span = value.span
    assert isinstance(span, Span), "values of an AST have spans"
    return span


# --- alignment --------------------------------------------------------------------------------------------------------


def _align(rows: list[_Row], indent: str) -> None:
    """Pads the cells of neighbouring rows of a group, unless a line would become too long by it."""
    at = 0
    while at < len(rows):
        end = at + 1
        while end < len(rows) and rows[end].group == rows[at].group and "" not in rows[end].above:
            end += 1
        if rows[at].group in ("model", "given", "stage", "edge"):
            _pad(rows[at:end], indent)
        at = end


def _pad(rows: list[_Row], indent: str) -> None:
    widths = _widths(rows)
    for columns in (2, 1, 0):
        for row, own in zip(rows, widths, strict=True):
            *padded, last = row.cells
            cells = [f"{cell:<{own[i] if i < columns else 0}} " for i, cell in enumerate(padded)]
            row.padded = [*cells, last]
        if all(len(indent) + len(row.line(padded=True)) <= WIDTH for row in rows):
            return


def _widths(rows: list[_Row]) -> list[list[int]]:
    """How wide each cell but the last is, for each row: as the widest that it stands under.

    Names of inputs stand under names of neighbouring inputs alone, and those of outputs likewise.
    """
    most = max(len(row.cells) for row in rows)
    columns = [max((len(r.cells[i]) for r in rows if len(r.cells) > i + 1), default=0) for i in range(most)]
    widths = [list(columns) for _ in rows]
    if rows[0].group == "given":
        at = 0
        for _, run in groupby(rows, key=lambda row: row.cells[0]):
            alike = list(run)
            name = max((len(row.cells[1]) for row in alike if len(row.cells) > 2), default=0)
            for own in widths[at : at + len(alike)]:
                own[1:2] = [name]
            at += len(alike)
    return widths
