"""Geometry of a program's drawing: boxes, connecting lines, and nested drawings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shrinkfx.report.page.folding import SPAN, Fold, Item, fold, parts_in
from shrinkfx.report.page.layered import Point, lay_out
from shrinkfx.report.page.parts import Light, Part

BOX_HEIGHT = 26
_GAP = 18
"""Horizontal space between two boxes."""
_BELOW = 16
"""Vertical space between two layers."""
_MARGIN = 10
_LETTER = 6.7
"""Width of a character in the boxes' monospaced 11 px font."""


_COUNT = 5
"""Characters reserved for the operator count of a fold: ``3/19``."""


@dataclass(frozen=True)
class Box:
    """A box with its position; x and y are its upper left corner.

    Attributes:
        label: the text, shortened to the box's width; ``more`` is the full text.
        span: index of the first operator in it, and one past the last; (0, 0) for none.
        opens: name of the drawing that it expands to; or ''.
        operators_left: the number of operators in it that are kept, of ``of``.
    """

    x: float
    y: float
    label: str
    more: str
    light: Light
    span: tuple[int, int]
    opens: str = ""
    operators_left: int = 0
    of: int = 1


@dataclass(frozen=True)
class Drawing:
    """A drawing, and the drawings that its boxes open.

    Attributes:
        name: the identifier that ``Box.opens`` refers to.
        box: width of each box.
        lines: SVG paths; ``lit`` are those between kept operators.
    """

    name: str
    title: str
    width: float
    height: float
    box: float
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    lit: tuple[str, ...]
    inside: tuple[Drawing, ...] = ()
    operators_left: int = 0
    of: int = 0


def draw(parts: Sequence[Part], name: str, widest: int = 18) -> Drawing:
    """Draw a program, folded if it is large.

    Args:
        widest: maximum characters of a label.
    """
    return _drawn(fold(parts), parts, itertools.count(), name, "", widest)


_LETTERS = (100, 52, 40, 30, 20)
"""Maximum characters of a statement, from wide to narrow drawings."""


def draw_within(width: float, parts: Sequence[Part], name: str) -> Drawing:
    """Draw statements with the longest labels that fit the width of the page.

    The tooltip of a shortened label has the full text. A drawing with very many columns
    may be wider than the page.
    """
    drawings = (draw(parts, name, letters) for letters in _LETTERS)
    narrow = (drawing for drawing in drawings if drawing.width <= width)
    return next(narrow, None) or draw(parts, name, _LETTERS[-1])


def _drawn(
    items: Sequence[Item],
    parts: Sequence[Part],
    numbers: itertools.count[int],
    prefix: str,
    title: str,
    widest: int,
) -> Drawing:
    """Draw some boxes of a program, and the drawings folded into them."""
    place = {p.name: i for i, item in enumerate(items) for p in parts_in(item)}
    reads = [
        (place[read], place[part.name])
        for part in parts
        if part.name in place
        for read in part.reads
        if read in place
    ]
    edges = sorted({(a, b) for a, b in reads if a < b})
    laid = lay_out(len(items), edges)
    longest = max((_letters(item) for item in items), default=1)
    wide = min(longest, widest) * _LETTER + 2 * _MARGIN
    name = f"{prefix}-{next(numbers)}"
    boxes, inside = [], []
    for item, (x, y) in zip(items, laid.places, strict=True):
        inner = None
        if isinstance(item, Fold):
            inner = _drawn(item.items, parts, numbers, prefix, item.label, widest)
            inside.append(inner)
        corner = _MARGIN + x * (wide + _GAP), _MARGIN + y * (BOX_HEIGHT + _BELOW)
        boxes.append(_box(item, corner, inner.name if inner else "", widest))
    lit = [_is_lit(boxes[a]) and _is_lit(boxes[b]) for a, b in edges]
    paths = [_path(line, wide) for line in laid.lines]
    counted = [p for item in items for p in parts_in(item) if p.index >= 0]
    return Drawing(
        name,
        title,
        width=2 * _MARGIN + laid.columns * (wide + _GAP) - _GAP,
        height=2 * _MARGIN + laid.layers * (BOX_HEIGHT + _BELOW) - _BELOW,
        box=wide,
        boxes=tuple(boxes),
        lines=tuple(p for p, is_lit in zip(paths, lit, strict=True) if not is_lit),
        lit=tuple(p for p, is_lit in zip(paths, lit, strict=True) if is_lit),
        inside=tuple(inside),
        operators_left=sum(p.operators for p in counted if p.light is not Light.GONE),
        of=sum(p.operators for p in counted),
    )


def _is_lit(box: Box) -> bool:
    return box.light is not Light.GONE


def _box(item: Item, corner: Point, opens: str, widest: int) -> Box:
    parts = parts_in(item)
    numbers = [part.index for part in parts if part.index >= 0]
    span = (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    lights = {part.light for part in parts}
    order = Light.GUILTY, Light.KEPT, Light.GONE, Light.VALUE
    light = next(each for each in order if each in lights)
    lit = sum(part.light in (Light.KEPT, Light.GUILTY) for part in parts)
    more = item.more if isinstance(item, Part) else _fold_label(item, len(parts), lit)
    label = _cut(item, widest)
    return Box(*corner, label, more, light, span, opens, lit, len(parts))


def _fold_label(item: Fold, of: int, lit: int) -> str:
    return f"{item.label}: {lit} of {of} kept; click to expand"


def _letters(item: Item) -> int:
    return len(item.label) + (_COUNT if isinstance(item, Fold) else 0)


def _cut(item: Item, most: int) -> str:
    """Shorten a label; for a module the end of the path is the informative part."""
    label = item.label
    if not isinstance(item, Fold):
        return label if len(label) <= most else f"{label[: most - 1]}\u2026"
    most -= _COUNT
    first, *between = label.split(SPAN)
    if len(label) > most and between:
        ends = [_bare(first), _bare(between[-1])]
        label = SPAN.join(ends)
        if len(label) > most:
            half = (most - len(SPAN)) // 2
            return SPAN.join(end[:half] for end in ends)
    return label if len(label) <= most else f"\u2026{label[1 - most :]}"


def _bare(label: str) -> str:
    """Reduce one of PyTorch's operators to its name.

    >>> _bare("aten.add.Tensor"), _bare("layers.0")
    ('add', 'layers.0')
    """
    name = label.removeprefix("aten.")
    return label if name == label else name.partition(".")[0]


def _path(points: Sequence[Point], wide: float) -> str:
    """Return the path of a line, from below the first box to above the last one."""
    step = BOX_HEIGHT + _BELOW
    middle = [
        (
            _MARGIN + x * (wide + _GAP) + wide / 2,
            _MARGIN + y * step + BOX_HEIGHT / 2,
        )
        for x, y in points
    ]
    (x, y), *rest = middle
    y += BOX_HEIGHT / 2
    path = [f"M{x:.0f} {y:.0f}"]
    for number, (to_x, to_y) in enumerate(rest, 1):
        end = to_y - BOX_HEIGHT / 2
        half = (y + end) / 2
        path.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {end:.0f}")
        x, y = to_x, end
        if number < len(rest):  # pass a layer in which the line has no box
            y = to_y + BOX_HEIGHT / 2
            path.append(f"V{y:.0f}")
    return "".join(path)
