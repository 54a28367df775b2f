"""Where boxes and lines go: layers from top to bottom, laid out by igraph."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import igraph

Point = tuple[float, float]


@dataclass(frozen=True)
class Layers:
    """Places in units of columns and layers, from 0.

    Attributes:
        places: of each box.
        lines: of each edge: the points that it goes through, both ends included.
    """

    places: tuple[Point, ...]
    lines: tuple[tuple[Point, ...], ...]
    columns: float
    layers: int


def lay_out(boxes: int, edges: Sequence[tuple[int, int]]) -> Layers:
    """Put boxes into layers below what they read, with few crossings.

    Args:
        boxes: how many; they are numbered in the program's order.
        edges: from a box to one that reads it, which has a higher number.
    """
    layer = _layers(boxes, edges)
    # igraph can split long lines itself; with several components it mixes up (1.0.0)
    # which of them a bend is of.
    through: list[list[int]] = []
    for source, reader in edges:
        first = len(layer)
        layer += range(layer[source] + 1, layer[reader])
        through.append([source, *range(first, len(layer)), reader])
    short = [pair for line in through for pair in itertools.pairwise(line)]
    graph = igraph.Graph(len(layer), short, directed=True)
    places = [(x, y) for x, y in graph.layout_sugiyama(layers=layer).coords]
    left = min((x for x, _ in places), default=0.0)
    points = [(x - left, y) for x, y in places]
    return Layers(
        tuple(points[:boxes]),
        tuple(tuple(points[each] for each in line) for line in through),
        max((x for x, _ in points), default=0.0) + 1,
        max(layer, default=0) + 1,
    )


def _layers(boxes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Number the layers: each box as high as it may be, but inputs next to a reader.

    igraph would put what reads nothing at the top, with a line through all of the
    program.
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
