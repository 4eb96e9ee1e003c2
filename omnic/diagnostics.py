"""What a user is told: `Diagnostic` values, the `Sink` that gathers them, and the ways to print them.

A diagnostic's headline stands alone on one line. Its primary label is the narrowest span that is at fault;
secondary labels point at what it is at odds with; notes say why, help says what to write instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from omnic.source import Source, Span

Severity = Literal["error", "warning"]
FORMATS = ("full", "concise", "json", "github")


@dataclass(frozen=True, slots=True)
class Label:
    """A span and what is to be said of it, if anything."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake or doubt. `id` is kebab-case and stable; `primary` is None only where no source is at fault."""

    id: str
    severity: Severity
    headline: str
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: tuple[str, ...] = ()


class Sink:
    """Gathers the diagnostics of a phase. The same complaint about the same place is kept once."""

    def __init__(self) -> None:
        self._diagnostics: list[Diagnostic] = []
        self._seen: set[tuple[str, str, str, int]] = set()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return tuple(self._diagnostics)

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self._diagnostics)

    def add(self, diagnostic: Diagnostic) -> None:
        span = diagnostic.primary.span if diagnostic.primary else None
        key = (diagnostic.id, diagnostic.headline, span.source.path if span else "", span.start if span else -1)
        if key not in self._seen:
            self._seen.add(key)
            self._diagnostics.append(diagnostic)

    def advise(self, id: str, help: str) -> None:
        """Adds a line of help to what there is of this kind."""
        self._diagnostics = [replace(d, help=(*d.help, help)) if d.id == id else d for d in self._diagnostics]

    def error(
        self,
        id: str,
        headline: str,
        span: Span | None = None,
        label: str = "",
        *,
        secondary: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: Iterable[str] = (),
    ) -> None:
        primary = None if span is None else Label(span, label)
        self.add(Diagnostic(id, "error", headline, primary, tuple(secondary), tuple(notes), tuple(help)))

    def warning(
        self,
        id: str,
        headline: str,
        span: Span | None = None,
        label: str = "",
        *,
        secondary: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: Iterable[str] = (),
    ) -> None:
        primary = None if span is None else Label(span, label)
        self.add(Diagnostic(id, "warning", headline, primary, tuple(secondary), tuple(notes), tuple(help)))


# --- words ------------------------------------------------------------------------------------------------------------


def listing(words: Iterable[str], *, last: str = "and", most: int = 12) -> str:
    """`` `a`, `b` and `c` ``; beyond `most` words, how many more there are."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) > most:
        return f"{', '.join(quoted[:most])} and {len(quoted) - most} more"
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


# --- rendering --------------------------------------------------------------------------------------------------------


def render(diagnostics: Sequence[Diagnostic], format: str = "full", color: bool = False) -> str:
    """All diagnostics in order of source, as text that ends in a newline (or is empty; `json` never is)."""
    ordered = [_printable(d) for d in _in_source_order(diagnostics)]
    match format:
        case "full":
            return "\n".join(f"{block}\n" for block in (_full(d, _ANSI if color else _PLAIN) for d in ordered))
        case "concise":
            return "".join(f"{_concise(d)}\n" for d in ordered)
        case "github":
            return "".join(f"{_github(d)}\n" for d in ordered)
        case "json":
            return _json(ordered)
    raise ValueError(f"unknown format `{format}`; there are {', '.join(FORMATS)}")


def _in_source_order(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    paths: dict[str, int] = {}
    for d in diagnostics:
        if d.primary:
            paths.setdefault(d.primary.span.source.path, len(paths))
    return sorted(
        diagnostics,
        key=lambda d: (paths[d.primary.span.source.path], d.primary.span.start) if d.primary else (len(paths), 0),
    )


def _printable(d: Diagnostic) -> Diagnostic:
    """With nothing in it that would move the cursor or hide text: what is quoted may hold anything."""

    def clean(text: str) -> str:
        return "".join(char if char == "\n" else _cell(char) for char in text)

    def label(one: Label) -> Label:
        return Label(one.span, clean(one.text).replace("\n", " "))

    return replace(
        d,
        headline=clean(d.headline).replace("\n", " "),
        primary=label(d.primary) if d.primary else None,
        secondary=tuple(map(label, d.secondary)),
        notes=tuple(map(clean, d.notes)),
        help=tuple(map(clean, d.help)),
    )


def _concise(d: Diagnostic) -> str:
    at = f"{d.primary.span}: " if d.primary else ""
    return f"{at}{d.severity}[{d.id}]: {d.headline}"


def _github(d: Diagnostic) -> str:
    properties = [("title", d.id)]
    if d.primary:
        span = d.primary.span
        line, column = span.source.position(span.start)
        end_line, end_column = span.source.position(span.end)
        places = (("line", line), ("endLine", end_line), ("col", column), ("endColumn", end_column))
        properties = [("file", span.source.path), *((k, str(v)) for k, v in places), *properties]
    body = "\n".join([d.headline, *_remarks(d)])
    escaped = ",".join(f"{k}={_percent(v, ':,')}" for k, v in properties)
    return f"::{d.severity} {escaped}::{_percent(body)}"


def _percent(text: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in "%\r\n" + more else char for char in text)


def _remarks(d: Diagnostic) -> Iterator[str]:
    if d.primary and d.primary.text:
        yield d.primary.text
    yield from (f"{label.span}: {label.text}" for label in d.secondary if label.text)
    yield from (f"note: {note}" for note in d.notes)
    yield from (f"help: {line}" for line in d.help)


def _json(diagnostics: Sequence[Diagnostic]) -> str:
    import json

    def label(one: Label) -> dict[str, object]:
        span = one.span
        (line, column), (end_line, end_column) = span.source.position(span.start), span.source.position(span.end)
        start, end = {"line": line, "column": column}, {"line": end_line, "column": end_column}
        return {"path": span.source.path, "start": start, "end": end, "text": one.text}

    records = [
        {
            "id": d.id,
            "severity": d.severity,
            "headline": d.headline,
            "primary": label(d.primary) if d.primary else None,
            "secondary": [label(one) for one in d.secondary],
            "notes": d.notes,
            "help": d.help,
        }
        for d in diagnostics
    ]
    return json.dumps(records, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class _Style:
    error: str
    warning: str
    frame: str
    strong: str
    off: str

    def severity(self, name: str) -> str:
        return self.error if name == "error" else self.warning


_PLAIN = _Style("", "", "", "", "")
_ANSI = _Style("\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m")


def _full(d: Diagnostic, style: _Style) -> str:
    tint = style.severity(d.severity)
    lines = [f"{tint}{d.severity}[{d.id}]{style.off}{style.strong}: {d.headline}{style.off}"]
    labels = [d.primary, *d.secondary] if d.primary else [*d.secondary]
    gutter = max((len(str(label.span.line)) for label in labels), default=1)
    bar = f"{' ' * (gutter + 1)}{style.frame}|{style.off}"
    for number, (source, group) in enumerate(_by_source(labels)):
        arrow = "-->" if number == 0 else ":::"
        lines.append(f"{' ' * gutter}{style.frame}{arrow}{style.off} {group[0].span}")
        lines.append(bar)
        for line in sorted({label.span.line for label in group}):
            row = _Row(source, line)
            lines.append(f"{style.frame}{line:>{gutter}} |{style.off} {row.text}".rstrip())
            for label in sorted((o for o in group if o.span.line == line), key=lambda o: o.span.start):
                primary = label is d.primary
                under = row.underline(label.span, "^" if primary else "-")
                text = f" {label.text}" if label.text else ""
                lines.append(f"{bar} {tint if primary else style.frame}{under}{text}{style.off}")
    for kind, texts in (("note", d.notes), ("help", d.help)):
        for text in texts:
            head, *more = text.split("\n")
            lines.append(f"{' ' * (gutter + 1)}{style.frame}={style.off} {style.strong}{kind}{style.off}: {head}")
            lines += [f"{' ' * (gutter + 9)}{line}" for line in more]
    return "\n".join(lines)


def _by_source(labels: Sequence[Label]) -> list[tuple[Source, list[Label]]]:
    groups: list[tuple[Source, list[Label]]] = []
    for label in labels:
        group = next((g for s, g in groups if s is label.span.source or s == label.span.source), None)
        if group is None:
            groups.append((label.span.source, [label]))
        else:
            group.append(label)
    return groups


class _Row:
    """A line of source as a terminal shows it: tabs are four spaces, what cannot be shown one mark each."""

    def __init__(self, source: Source, line: int) -> None:
        self._cells = [_cell(char) for char in source.line(line)]
        self.text = "".join(self._cells)

    def underline(self, span: Span, mark: str) -> str:
        first = span.column - 1
        length = max(1, span.end - span.start)  # a place between two characters still gets its mark
        before = sum(map(_width, self._cells[:first]))
        under = sum(map(_width, self._cells[first : first + length])) or 1
        return " " * before + mark * under


def _cell(char: str) -> str:
    if char == "\t":
        return "    "
    return char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    import unicodedata

    wide = unicodedata.east_asian_width(cell) in "WF"
    return 2 if wide else 0 if unicodedata.combining(cell) else 1
