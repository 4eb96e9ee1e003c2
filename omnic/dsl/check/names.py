"""Names where they are declared: of the right form, not a word of the language, and only once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from omnic.diagnostics import Label, Sink
from omnic.dsl import ast
from omnic.dsl.words import RESERVED

_FORM = re.compile(r"[a-z_][a-z0-9_]*")


def well_formed(name: ast.Name, sink: Sink) -> bool:
    """Whether `name` can name a declaration; says why not."""
    if name.text in RESERVED:
        help_ = [f"after a dot or before `=`, `{name.text}` is a name like any other"]
        sink.error(
            "reserved-word", f"`{name.text}` is a word of the language", name.span, "cannot be declared", help=help_
        )
        return False
    if not _FORM.fullmatch(name.text):
        lower = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.text).lower()
        sink.error("bad-name", "names are lower case", name.span, f"write `{lower}`")
        return False
    return True


def declared(pipeline: ast.Pipeline) -> Iterator[tuple[str, ast.Name]]:
    """Every name that a pipeline declares, and as what."""
    for item in pipeline.items:
        match item:
            case ast.Model(name=name):
                yield "model", name
            case ast.Input(name=name):
                yield "input", name
            case ast.Output(name=name):
                yield "output", name
            case ast.Param(name=name):
                yield "param", name
            case ast.Stage(name=name):
                yield "stage", name


def check_names(names: Iterable[tuple[str, ast.Name]], sink: Sink) -> None:
    """Says of each name what is wrong with it, and which are declared twice."""
    first: dict[str, tuple[str, ast.Name]] = {}
    for what, name in names:
        well_formed(name, sink)
        if name.text in first:
            before, other = first[name.text]
            sink.error(
                "duplicate-name",
                f"`{name.text}` is declared twice",
                name.span,
                f"a {what}" if what[0] not in "aeiou" else f"an {what}",
                secondary=[Label(other.span, f"declared here as {'an' if before[0] in 'aeiou' else 'a'} {before}")],
            )
        else:
            first[name.text] = what, name
