"""A graph as SVG: self-contained, legible on light and dark pages, no script."""

from __future__ import annotations

from html import escape

from omnic.cli.picture.graph import Graph
from omnic.cli.picture.layout import CHAR, LINE, MARGIN, PAD, Layout, Place, Route, lay_out

_STYLE = """
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #24292f }
  .title { font-weight: 600 } .fact, .edge { fill: #57606a } .edge { text-anchor: middle }
  .page { fill: #ffffff; stroke: #d0d7de } .box { stroke-width: 1.2 }
  .input { fill: #f6f8fa; stroke: #8c959f } .stage { fill: #ddf4ff; stroke: #0969da }
  .output { fill: #dafbe1; stroke: #1a7f37 }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.3 } .backward { stroke-dasharray: 5 4 }
  .halo { fill: #ffffff }
"""


def draw(graph: Graph) -> str:
    """The graph as an SVG document."""
    layout = lay_out(graph)
    notes = graph.notes
    width = max(layout.width, max((len(n) for n in (graph.title, *notes)), default=0) * CHAR + 2 * MARGIN)
    height = layout.height + (len(notes) + 1) * LINE if notes else layout.height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(graph.title)}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="#57606a"/></marker></defs>',
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>',
        f'<text class="title" x="{MARGIN:.0f}" y="{MARGIN:.0f}">{escape(graph.title)}</text>',
    ]
    lines += [_arrow(route) for route in layout.routes]
    lines += [_box(place) for place in layout.places]
    lines += _labels(layout)
    for number, note in enumerate(notes):
        y = layout.height + (number + 0.5) * LINE
        lines.append(f'<text class="fact" x="{MARGIN:.0f}" y="{y:.0f}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _box(place: Place) -> str:
    shape = (
        f'<rect class="box {place.box.kind}" x="{place.x:.1f}" y="{place.y:.1f}" '
        f'width="{place.width:.1f}" height="{place.height:.1f}" rx="6"/>'
    )
    texts = []
    for number, line in enumerate((place.box.title, *place.box.lines)):
        y = place.y + PAD + LINE * (number + 0.5)
        style = "fact" if number else "title"
        texts.append(f'<text class="{style}" x="{place.x + PAD:.1f}" y="{y:.1f}">{escape(line)}</text>')
    return "".join([shape, *texts])


def _arrow(route: Route) -> str:
    (x, y), *rest = route.points
    path = [f"M{x:.1f},{y:.1f}"]
    for nx, ny in rest:
        bend = (nx - x) / 2
        straight = ny == y
        path.append(
            f"L{nx:.1f},{ny:.1f}" if straight else f"C{x + bend:.1f},{y:.1f} {nx - bend:.1f},{ny:.1f} {nx:.1f},{ny:.1f}"
        )
        x, y = nx, ny
    style = "arrow backward" if route.backward else "arrow"
    return f'<path class="{style}" d="{" ".join(path)}" marker-end="url(#head)"/>'


def _labels(layout: Layout) -> list[str]:
    """The text of each arrow, halfway along its first free stretch, above the line."""
    out = []
    for route in layout.routes:
        if not route.arrow.text:
            continue
        (x1, y1), (x2, y2) = route.points[:2] if not route.backward else route.points[1:3]
        x, y = (x1 + x2) / 2, (y1 + y2) / 2
        wide = len(route.arrow.text) * CHAR
        out.append(
            f'<rect class="halo" x="{x - wide / 2 - 2:.1f}" y="{y - LINE + 2:.1f}" '
            f'width="{wide + 4:.1f}" height="{LINE - 4:.0f}"/>'
            f'<text class="edge" x="{x:.1f}" y="{y - 5:.1f}">{escape(route.arrow.text)}</text>'
        )
    return out
