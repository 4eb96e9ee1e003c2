"""A graph as Mermaid text, for places that draw it themselves (Markdown on code hosts)."""

from __future__ import annotations

from omnic.cli.picture.graph import Box, Graph

_SHAPES = {"input": ('(["', '"])'), "stage": ('["', '"]'), "output": ('(["', '"])')}


def draw(graph: Graph) -> str:
    """A `flowchart LR` with the boxes and arrows of the graph."""
    number = {box.id: f"n{index}" for index, box in enumerate(graph.boxes)}
    lines = ["---", f"title: {_quoted(graph.title)}", "---", "flowchart LR"]
    lines += [f"  {number[box.id]}{_shape(box)}" for box in graph.boxes]
    for arrow in graph.arrows:
        text = f'|"{_safe(arrow.text)}"|' if arrow.text else ""
        lines.append(f"  {number[arrow.source]} -->{text} {number[arrow.target]}")
    return "\n".join(lines) + "\n"


def _shape(box: Box) -> str:
    before, after = _SHAPES[box.kind]
    return before + "<br/>".join([f"<b>{_safe(box.title)}</b>", *map(_safe, box.lines)]) + after


def _safe(text: str) -> str:
    return "".join(f"#{ord(char)};" if char in '"#<>&|`' else char for char in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
