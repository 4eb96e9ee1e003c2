"""Text to AST."""

from __future__ import annotations

from lark.exceptions import UnexpectedInput

from omnic.diagnostics import Sink
from omnic.dsl import ast
from omnic.dsl.syntax import SyntaxErrors
from omnic.dsl.tables import parser
from omnic.dsl.tree import build
from omnic.source import Source


def parse(source: Source, sink: Sink) -> ast.File | None:
    """The file that `source` says; None, and every syntax error that can be told apart in `sink`, if it has any."""
    errors = SyntaxErrors(source, sink)
    try:
        tree = parser().parse(source.text, start="start", on_error=errors)
    except UnexpectedInput:  # reported, and nothing left to read on from
        return None
    if errors.found:
        return None
    found = Sink()
    file = build(tree, source, found)
    for diagnostic in found.diagnostics:
        sink.add(diagnostic)
    return None if found.has_errors else file
