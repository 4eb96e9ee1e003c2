"""Where boxes and arrows go: layers from left to right, ordered to cross little, then straightened.

The same graph always gets the same picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from omnic.cli.picture.graph import Arrow, Box, Graph

LINE, CHAR, PAD = 18.0, 7.3, 14.0  # height of a line, width of a character (monospace), space inside a box
GAP_X, GAP_Y, MARGIN = 56.0, 34.0, 28.0
_SWEEPS = 30


@dataclass(frozen=True, slots=True)
class Place:
    """A box with its corner and size, in pixels."""

    box: Box
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """An arrow through points, left to right; `backward` if it closes a cycle and so runs right to left."""

    arrow: Arrow
    points: tuple[tuple[float, float], ...]
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    width: float
    height: float
    places: tuple[Place, ...]
    routes: tuple[Route, ...]


def lay_out(graph: Graph) -> Layout:
    """Positions for every box and arrow of the graph."""
    rank = {box.id: index for index, box in enumerate(graph.boxes)}
    forward = [a for a in graph.arrows if rank[a.source] < rank[a.target]]
    layer = _layers(graph, forward)
    columns = _columns(graph, forward, layer)
    sizes = {box.id: _size(box) for box in graph.boxes}
    middles = _straighten(columns, _neighbours(columns, forward, layer), sizes)
    lefts, width = _lefts(columns, forward, layer, sizes)

    places = tuple(Place(b, lefts[layer[b.id]], middles[b.id] - sizes[b.id][1] / 2, *sizes[b.id]) for b in graph.boxes)
    at = {place.box.id: place for place in places}
    routes = tuple(_route(a, at, middles, lefts, layer, backward=a not in forward) for a in graph.arrows)
    bottom = max((p.y + p.height for p in places), default=0.0)
    lowest = max((y for r in routes for _, y in r.points), default=0.0)
    return Layout(width, max(bottom, lowest) + MARGIN, places, routes)


def _size(box: Box) -> tuple[float, float]:
    longest = max(len(box.title), *map(len, box.lines), 6) if box.lines else max(len(box.title), 6)
    return longest * CHAR + 2 * PAD, (1 + len(box.lines)) * LINE + 2 * PAD - 6


def _layers(graph: Graph, forward: list[Arrow]) -> dict[str, int]:
    """Longest path from the left; outputs all stand in the last layer."""
    layer = {box.id: 0 for box in graph.boxes}
    for box in graph.boxes:  # in data-flow order, so what feeds a box is done before it
        feeding = [layer[a.source] + 1 for a in forward if a.target == box.id]
        layer[box.id] = max(feeding, default=0)
    last = max((layer[b.id] for b in graph.boxes if b.kind == "output"), default=0)
    return layer | {b.id: last for b in graph.boxes if b.kind == "output"}


def _bend(arrow: Arrow, layer: int) -> str:
    return f"{arrow.source} → {arrow.target} ({arrow.text}) @ {layer}"


def _columns(graph: Graph, forward: list[Arrow], layer: dict[str, int]) -> list[list[str]]:
    """What stands in each layer, top to bottom: boxes, and a bend for each arrow that passes through."""
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for box in graph.boxes:
        columns[layer[box.id]].append(box.id)
    for arrow in forward:
        for between in range(layer[arrow.source] + 1, layer[arrow.target]):
            columns[between].append(_bend(arrow, between))
    neighbours = _neighbours(columns, forward, layer)
    for sweep in range(_SWEEPS):
        order = columns if sweep % 2 == 0 else list(reversed(columns))
        for fixed, free in pairwise(order):
            position = {name: index for index, name in enumerate(fixed)}
            free.sort(key=lambda name: _mean([position[n] for n in neighbours[name] if n in position], 0.0))
    return columns


def _neighbours(columns: list[list[str]], forward: list[Arrow], layer: dict[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for column in columns for name in column}
    for arrow in forward:
        bends = [_bend(arrow, n) for n in range(layer[arrow.source] + 1, layer[arrow.target])]
        chain = [arrow.source, *bends, arrow.target]
        for one, next_one in pairwise(chain):
            found[one].append(next_one)
            found[next_one].append(one)
    return found


def _mean(values: list[float] | list[int], default: float) -> float:
    return sum(values) / len(values) if values else default


def _straighten(
    columns: list[list[str]], neighbours: dict[str, list[str]], sizes: dict[str, tuple[float, float]]
) -> dict[str, float]:
    """The middle height of everything: near its neighbours, in order, without overlap."""
    middles: dict[str, float] = {}
    for column in columns:
        top = MARGIN + LINE
        for name in column:
            height = sizes.get(name, (0.0, LINE))[1]
            middles[name] = top + height / 2
            top += height + GAP_Y
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 else reversed(columns):
            wanted = {name: _mean([middles[n] for n in neighbours[name]], middles[name]) for name in column}
            _spread(column, wanted, sizes)
            middles |= wanted
    lift = min((middles[n] - sizes.get(n, (0.0, LINE))[1] / 2 for n in middles), default=0.0) - (MARGIN + LINE)
    return {name: middle - lift for name, middle in middles.items()}


def _spread(column: list[str], wanted: dict[str, float], sizes: dict[str, tuple[float, float]]) -> None:
    """Moves what overlaps apart, keeping the column centred on where it wanted to be."""
    aim = _mean(list(wanted.values()), 0.0)
    for above, below in pairwise(column):
        apart = (sizes.get(above, (0.0, LINE))[1] + sizes.get(below, (0.0, LINE))[1]) / 2 + GAP_Y
        wanted[below] = max(wanted[below], wanted[above] + apart)
    shift = _mean(list(wanted.values()), 0.0) - aim
    for name in column:
        wanted[name] -= shift


def _lefts(
    columns: list[list[str]], forward: list[Arrow], layer: dict[str, int], sizes: dict[str, tuple[float, float]]
) -> tuple[list[float], float]:
    """The left edge of each layer, wide enough apart for the texts on the arrows between; and the whole width."""
    lefts, x = [], MARGIN
    for index, column in enumerate(columns):
        lefts.append(x)
        texts = [len(a.text) * CHAR + GAP_X for a in forward if layer[a.source] == index]
        boxes = [sizes[name][0] for name in column if name in sizes]
        x += max(boxes, default=0.0) + max([*texts, GAP_X])
    last = max((sizes[n][0] for n in columns[-1] if n in sizes), default=0.0) if columns else 0.0
    return lefts, (lefts[-1] if lefts else 0.0) + last + MARGIN


def _route(
    arrow: Arrow,
    at: dict[str, Place],
    middles: dict[str, float],
    lefts: list[float],
    layer: dict[str, int],
    *,
    backward: bool,
) -> Route:
    source, target = at[arrow.source], at[arrow.target]
    start = (source.x + source.width, middles[arrow.source])
    end = (target.x, middles[arrow.target])
    if backward:
        low = max(source.y + source.height, target.y + target.height) + GAP_Y
        return Route(arrow, (start, (start[0] + GAP_X / 2, low), (end[0] - GAP_X / 2, low), end), backward=True)
    bends: list[tuple[float, float]] = []
    for index in range(layer[arrow.source] + 1, layer[arrow.target]):
        widest = max((p.width for p in at.values() if layer[p.box.id] == index), default=0.0)
        height = middles[_bend(arrow, index)]
        bends += [(lefts[index], height), (lefts[index] + widest, height)]
    return Route(arrow, (start, *bends, end))
