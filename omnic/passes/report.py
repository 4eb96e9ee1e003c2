"""The plan for people and for machines: `plan_text`, `plan_markdown`, `plan_json`.

What a build keeps (markdown, JSON) is the same wherever it is made: nothing read from this machine stands in it.
`plan_text` is for a terminal, and says beside the plan what this machine has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from omnic.catalog.part import Model
from omnic.expr import Expr, format_value
from omnic.ir.pipeline import Channel, Device, Open, Pipeline, Setting, Stage
from omnic.passes.base import Context
from omnic.source import Span
from omnic.target import machine_cores, memory_text

_TIMES = "Predicted times come with a later version."


def plan_text(pipeline: Pipeline, context: Context) -> str:
    """The plan for a terminal."""
    parts = [f"{pipeline.name} on {pipeline.target}", "", *_machine(context)]
    for title, head, rows in _tables(pipeline, context, here=True):
        parts += [title, *aligned(head, rows), ""]
    return "\n".join((*parts, _TIMES, ""))


def plan_markdown(pipeline: Pipeline, context: Context) -> str:
    """The plan as a build keeps it."""
    parts = [f"# {pipeline.name} on {pipeline.target}", ""]
    for title, head, rows in _tables(pipeline, context, here=False):
        cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
        parts += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
    return "\n".join((*parts, _TIMES, ""))


def plan_json(pipeline: Pipeline, context: Context) -> str:
    """The plan as JSON: devices with bytes by purpose, models, and every decision with its origin and reason."""
    record = {
        "pipeline": pipeline.name,
        "target": pipeline.target,
        "models": {m.name: _model(m.source, context.models.get(m.name)) for m in pipeline.models},
        "devices": {d.name: _device(d) for d in pipeline.devices},
        "stages": {
            s.name: {
                "kind": s.kind,
                "part": f"{s.model}.{s.part}" if s.model else s.part,
                "where": _where(s.span) if s.span else None,
                "keys": {name: _decision(setting) for name, setting in s.keys},
                "how": {name: _decision(setting) for name, setting in s.how},
            }
            for s in pipeline.stages
        },
        "channels": {
            c.name: {"from": c.source, "to": c.target, "type": str(c.type)}
            | {"how": {name: _decision(setting) for name, setting in c.how}}
            for c in pipeline.channels
        },
        "slices": {e.name: [{"outputs": s.outputs, "stages": s.stages} for s in e.slices] for e in pipeline.endpoints},
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


# --- tables -----------------------------------------------------------------------------------------------------------

Table = tuple[str, list[str], list[list[str]]]


def _tables(p: Pipeline, context: Context, *, here: bool) -> Iterator[Table]:
    memory = list(_memory_rows(p, context, here))
    if memory:
        yield "Memory", ["device", "what", "bytes", ""], memory
    if p.models:
        rows = [[m.name, m.source, m.family, *_model_cells(context.models.get(m.name))] for m in p.models]
        yield "Models", ["model", "source", "family", "revision", "licence", "read from"], rows
    yield (
        "Stages",
        ["stage", "decision", "value", "from", "why"],
        [r for s in p.stages for r in _stage_rows(s, context)],
    )
    if p.channels:
        rows = [r for c in p.channels for r in _channel_rows(c)]
        yield "Edges", ["edge", "decision", "value", "from", "why"], rows
    rows = [[e.name, " + ".join(s.outputs), ", ".join(s.stages)] for e in p.endpoints for s in e.slices]
    if rows:
        yield "Endpoints", ["endpoint", "for", "runs"], rows


def _memory_rows(p: Pipeline, context: Context, here: bool) -> Iterator[list[str]]:
    for index, device in enumerate(p.devices):
        of = context.target.device(device.name)
        name = device.name
        if here and context.visible is not None and index < len(context.visible):
            name += f" (here {context.visible[index]})"
        for item, n in device.items:
            yield [name, item, str(n), memory_text(n)]
        capacity = of.memory_bytes if here else device.capacity_bytes
        note = memory_text(device.planned_bytes)
        if capacity:
            note += f" of {memory_text(capacity)}"
            if of.free_bytes < of.memory_bytes and (here or not context.target.here):
                note += f", {memory_text(of.free_bytes)} free"
        yield [name, "in all", str(device.planned_bytes), note]


def _stage_rows(stage: Stage, context: Context) -> Iterator[list[str]]:
    first = stage.name
    for name, setting in (*stage.how, *stage.keys):
        value, origin, why = _cells(setting)
        yield [first, name, value, origin, why or _read_from(stage, name, setting, context)]
        first = ""
    if first:
        yield [first, "", "", "", ""]


def _read_from(stage: Stage, name: str, setting: Setting, context: Context) -> str:
    """Where the catalog has a default from."""
    key = context.part(stage).key(name) if setting.origin == "catalog default" else None
    return key.origin if key is not None else ""


def _channel_rows(channel: Channel) -> Iterator[list[str]]:
    first = f"{channel.source} -> {channel.target}"
    for name, setting in channel.how:
        yield [first, name, *_cells(setting)]
        first = ""


def _cells(setting: Setting) -> list[str]:
    where = f" ({_where(setting.span)})" if setting.span is not None else ""
    return [_shown(setting.value), f"{setting.origin}{where}", setting.reason]


def _where(span: Span) -> str:
    """A line of a file, by the file's name alone (where it lies is no part of a plan), or a flag as it was typed."""
    path = span.source.path
    return f"{path} {span.source.text}" if path.startswith("--") else f"{path.rpartition('/')[2]}:{span.line}"


def _shown(value: Any) -> str:
    match value:
        case Open(field=field, default=default, domain=domain):
            within = f" in {domain}" if domain is not None else ""
            default = "" if default in (None, ()) else f", else {format_value(default)}"
            return f"request field {field}{within}{default}"
        case Expr() | str():
            return str(value)
        case tuple() | list():
            return ", ".join(map(_shown, value))
    return format_value(value)


def _model_cells(model: Model | None) -> list[str]:
    return [model.revision or "", model.license, model.origin] if model is not None else ["", "", ""]


def _machine(context: Context) -> list[str]:
    """What this machine has, where the plan is for it."""
    if not context.target.here:
        return []
    host = context.target.host
    cores = machine_cores()
    has = f"{cores} core{'s' * (cores > 1)}, {memory_text(host.memory_bytes)}"
    return [f"This machine has {has}, {memory_text(host.free_bytes)} of it free.", ""]


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    numbers = {i for i, title in enumerate(head) if title == "bytes"}
    lines = []
    for row in (head, ["-" * w for w in widths], *rows):
        cells = [
            cell.rjust(w) if i in numbers else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


# --- records ----------------------------------------------------------------------------------------------------------


def _decision(setting: Setting) -> dict[str, Any]:
    where = {"where": _where(setting.span)} if setting.span is not None else {}
    reason = {"reason": setting.reason} if setting.reason else {}
    return {"value": _plain(setting.value), "origin": setting.origin} | where | reason


def _plain(value: Any) -> Any:
    match value:
        case Open(field=field, type=type_, default=default, domain=domain):
            within = {} if domain is None else {"domain": str(domain)}
            return {"request": field, "type": str(type_), "default": _plain(default)} | within
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [_plain(v) for v in value]
    return str(value)


def _model(source: str, model: Model | None) -> dict[str, Any]:
    if model is None:
        return {"source": source}
    return {
        "source": source,
        "family": model.family,
        "format": model.format,
        "revision": model.revision,
        "license": model.license,
        "read_from": model.origin,
        "header": model.digest,
    }


def _device(device: Device) -> dict[str, Any]:
    return {"capacity_bytes": device.capacity_bytes or None, "planned_bytes": device.planned_bytes} | {
        "items": dict(device.items)
    }
