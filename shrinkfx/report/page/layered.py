"""Positions of boxes and lines: layers from top to bottom, computed by igraph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import igraph

Point = tuple[float, float]


@dataclass(frozen=True)
class Layers:
    """Positions in units of columns and layers, from 0.

    Attributes:
        places: the position of each box.
        lines: the points of each edge, both ends included.
        columns, layers: the size of the drawing.
    """

    places: tuple[Point, ...]
    lines: tuple[tuple[Point, ...], ...]
    columns: float
    layers: int


def lay_out(boxes: int, edges: Sequence[tuple[int, int]]) -> Layers:
    """Assign boxes to layers below the boxes that they read, with few crossings.

    Args:
        boxes: the number of boxes, which are numbered in program order.
        edges: pairs of a box and one that reads it, which has a higher number.
    """
    layer = _layers(boxes, edges)
    # igraph 1.0.0 can split long lines itself, but with several components it assigns
    # bends to the wrong lines.
    through: list[list[int]] = []
    for source, reader in edges:
        first = len(layer)
        layer += range(layer[source] + 1, layer[reader])
        through.append([source, *range(first, len(layer)), reader])
    short = [pair for line in through for pair in itertools.pairwise(line)]
    graph = igraph.Graph(len(layer), short, directed=True)
    places = [(x, y) for x, y in graph.layout_sugiyama(layers=layer).coords]
    places = _closer(places, boxes)
    reach = [0.0 if each < boxes else _BEND for each in range(len(places))]
    left = min((x + r for (x, _), r in zip(places, reach, strict=True)), default=0.0)
    right = max((x - r for (x, _), r in zip(places, reach, strict=True)), default=0.0)
    points = [(x - left, y) for x, y in places]
    return Layers(
        tuple(points[:boxes]),
        tuple(tuple(points[each] for each in line) for line in through),
        right - left + 1,
        max(layer, default=0) + 1,
    )


_BEND = 0.4
"""Half a column minus this much is the room that a line needs on each side."""


def _closer(places: Sequence[Point], boxes: int) -> list[Point]:
    """Move columns together, because igraph gives a line as much room as a box.

    Items of one column stay in one, and the order is kept. Igraph may put several
    components at the same place; these are moved side by side.

    Args:
        places: positions of boxes, then of points on lines.
        boxes: the number of boxes.
    """
    columns = [round(x, 3) for x, _ in places]
    rows: dict[float, list[int]] = {}
    for number in sorted(range(len(places)), key=lambda each: columns[each]):
        rows.setdefault(places[number][1], []).append(number)
    gaps: list[tuple[float, float, float]] = []
    for row in rows.values():
        for left, right in itertools.pairwise(row):
            columns[right] = max(columns[right], columns[left] + _ASIDE)
            least = 1 - _BEND * ((left >= boxes) + (right >= boxes))
            gaps.append((columns[left], columns[right], least))
    to_left = _packed(columns, gaps)
    to_right = _packed([-x for x in columns], [(-b, -a, d) for a, b, d in gaps])
    # The average keeps boxes centered below others.
    most = max(to_left, default=0.0)
    moved = [(a + most - b) / 2 for a, b in zip(to_left, to_right, strict=True)]
    return [(x, y) for x, (_, y) in zip(moved, places, strict=True)]


def _packed(
    columns: Sequence[float], gaps: Sequence[tuple[float, float, float]]
) -> list[float]:
    """Move each column as far towards 0 as the minimum distances allow.

    Args:
        gaps: pairs of columns, and the minimum distance between them.
    """
    least: dict[float, list[tuple[float, float]]] = {}
    for first, second, distance in gaps:
        least.setdefault(second, []).append((first, distance))
    moved: dict[float, float] = {}
    last = 0.0
    for x in sorted({*columns}):
        bounds = (moved[first] + distance for first, distance in least.get(x, ()))
        last = moved[x] = max([last, *bounds])
    return [moved[x] for x in columns]


_ASIDE = 0.001
"""An offset that makes a separate column."""


def _layers(boxes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: as high as possible, but inputs next to a reader.

    igraph would put inputs at the top, with lines through the whole program.
    """
    layer = [0] * boxes
    for source, reader in sorted(edges, key=lambda edge: edge[1]):
        layer[reader] = max(layer[reader], layer[source] + 1)
    read = {reader for _, reader in edges}
    readers: dict[int, list[int]] = {}
    for source, reader in edges:
        readers.setdefault(source, []).append(layer[reader])
    for source, found in readers.items():
        if source not in read:
            layer[source] = min(found) - 1
    return layer
