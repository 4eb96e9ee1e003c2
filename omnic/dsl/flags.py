"""Settings given as flags: `--set think.slots=4`."""

from __future__ import annotations

from collections.abc import Sequence

from lark.exceptions import UnexpectedInput

from omnic.diagnostics import Label, Sink
from omnic.dsl import ast
from omnic.dsl.check.bound import Pipeline, Value
from omnic.dsl.check.deploy import find, overrides
from omnic.dsl.check.expressions import span_of
from omnic.dsl.tables import parser
from omnic.dsl.tree import setting
from omnic.source import Source, Span

FLAG = "--set"


def settings_of(flags: Sequence[str], pipeline: Pipeline, sink: Sink) -> dict[str, tuple[Value, ...]]:
    """The keys that flags set, by stage. A key that no stage has, or set twice, is an error."""
    found: dict[str, tuple[Value, ...]] = {}
    for text in flags:
        given = _read(text, sink)
        if given is None:
            continue
        names = [name.text for name in given.path.names]
        length = next((n for n in range(len(names) - 1, 0, -1) if find(names[:n], pipeline)), 1)
        if len(names) == 1:
            message = f"`{given.path}` names no stage; write `STAGE.{given.path}`"
            sink.error("unknown-stage", message, given.path.span)
            continue
        stage, key = ast.Path(given.path.names[:length]), ast.Path(given.path.names[length:])
        block = ast.Block((ast.Setting(key, given.value, key.span.to(span_of(given.value))),), given.span)
        before = found.get(str(stage), ())
        for value in overrides(ast.Override(stage, block, given.span), pipeline, sink):
            if (other := next((v for v in before if v.key.name == value.key.name), None)) is not None:
                first = Label(other.span, "set here")
                sink.error("duplicate-key", f"`{given.path}` is set twice", given.path.span, secondary=[first])
            else:
                found[str(stage)] = (*before, value)
    return found


def _read(text: str, sink: Sink) -> ast.Setting | None:
    source = Source(FLAG, text)
    try:
        tree = parser().parse(text, start="setting")
    except UnexpectedInput:
        message = f"`{text}` is no setting"
        sink.error("syntax", message, Span(source, 0, len(text)), help=[f"write `{FLAG} stage.key=value`"])
        return None
    return setting(tree, source, sink)
