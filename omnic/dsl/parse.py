"""Text to AST."""

from __future__ import annotations

from contextlib import suppress

from lark.exceptions import UnexpectedInput

from omnic.diagnostics import Sink
from omnic.dsl import ast
from omnic.dsl.tables import parser
from omnic.dsl.tree import build
from omnic.source import Source


def parse(source: Source, sink: Sink) -> ast.File | None:
    """The file that `source` says; None, and every syntax error that can be told apart in `sink`, if it has any."""
    try:
        tree = parser().parse(source.text, start="start")
    except UnexpectedInput:
        _tell(source, sink)
        return None
    found = Sink()
    file = build(tree, source, found)
    for diagnostic in found.diagnostics:
        sink.add(diagnostic)
    return None if found.has_errors else file


def _tell(source: Source, sink: Sink) -> None:
    """Reads `source` again for its errors; a text without any has no need of what that takes."""
    from omnic.dsl.syntax import SyntaxErrors

    with suppress(UnexpectedInput):  # told, and nothing left to read on from
        parser().parse(source.text, start="start", on_error=SyntaxErrors(source, sink))
