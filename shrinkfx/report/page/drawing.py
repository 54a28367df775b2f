"""A program as a drawing: connected boxes, folded by modules, with positions.

The boxes are the operators, inputs and outputs of a program. A large program is folded
by its modules into few boxes, recursively:

    embed, layers.0.norm, layers.0.qkv, ... layers.23.down, head
    becomes    embed, layers.0 (18 operators), ..., layers.23 (18 operators), head

A fold is a run of consecutive operators in program order. So folds can be read in that
order, and no two folds depend on each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import Names
from shrinkfx.program.listing.printed_program import (
    RETURN,
    InputOrWeight,
    PrintedProgram,
)
from shrinkfx.program.skeleton import Skeleton, TensorType
from shrinkfx.report.anonymous import strip_default_overload


class Light(StrEnum):
    """How a box is drawn."""

    GONE = "gone"
    KEPT = "kept"
    CULPRIT = "culprit"
    VALUE = "value"
    """An input or output, which is no operator."""


@dataclass(frozen=True)
class Part:
    """A box of a drawing.

    Attributes:
        reads: names of the boxes whose values it reads.
        label: the text; ``more`` is the tooltip.
        scope: the components of the path of its module.
        index: of the operator in the program, from 0; -1 for other boxes.
        operators: the number of operators it counts for, subgraphs included.
    """

    name: str
    label: str
    more: str
    reads: tuple[str, ...]
    scope: tuple[str, ...] = ()
    light: Light = Light.VALUE
    index: int = -1
    operators: int = 1


OUTPUT = "output"
"""Name of the box of the program's results; no node has this name."""


def parts_of(
    program: Skeleton, remaining: Collection[str], culprits: Collection[str] = ()
) -> list[Part]:
    """List the boxes of an input program in program order; kept operators are lit.

    Operators without an effect are not shown.
    """
    whole = Candidate.from_skeleton(program)
    return _parts(whole, remaining, culprits, program.outputs)


def parts_of_candidate(
    candidate: Candidate, culprits: Collection[str] = ()
) -> list[Part]:
    """List the boxes of a candidate that was not printed."""
    parts = _parts(candidate, candidate.keep, culprits, candidate.sinks)
    inputs = candidate.inputs
    return [replace(p, label=p.more) if p.name in inputs else p for p in parts]


def _parts(
    candidate: Candidate,
    remaining: Collection[str],
    culprits: Collection[str],
    returned: Iterable[str],
) -> list[Part]:
    program, inputs = candidate.skeleton, candidate.inputs
    indices = {name: index for index, name in enumerate(program.operators)}

    def read(operands: Iterable[str], but: str = "") -> tuple[str, ...]:
        values = (v if v in inputs else program.producer(v) for v in operands)
        return tuple(dict.fromkeys(v for v in values if v != but))

    found = [
        Part(name, name, f"{name}: {_format_type(program.node(name).value)}", ())
        for name in inputs
    ]
    for name in candidate.operators:
        if name in inputs:  # a replaced operator's value, now an input
            continue
        node = program.node(name)
        light = Light.KEPT if name in remaining else Light.GONE
        light = Light.CULPRIT if name in culprits and name in remaining else light
        texts = f"{name} = {node.target}", _format_type(node.value)
        found.append(
            Part(
                name,
                strip_default_overload(candidate.target(name)),
                _lines(*texts, node.scope, node.source),
                read(candidate.operands(name), name),
                tuple(filter(None, node.scope.split("."))),
                light,
                indices[name],
                node.operators,
            )
        )
    return [*found, Part(OUTPUT, "returns", "the results", read(returned))]


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _format_type(value: TensorType | None) -> str:
    return f"{value.dtype}[{', '.join(value.shape)}]" if value else ""


def parts_of_listing(
    listing: PrintedProgram, culprits: Collection[str] = (), names: Names | None = None
) -> list[Part]:
    """List the boxes of a printed program, one per statement.

    Args:
        names: the names that the input program has for the inputs, if different.
    """
    old = names.values[listing.main.name] if names is not None else {}
    found = [_given(item, old.get(item.spelling, "")) for item in listing.given]
    for statement in listing.main.statements:
        reads = tuple(sorted(name.removeprefix("self.") for name in statement.reads))
        code = _spelt(statement.code)
        if statement.name == RETURN:
            label = f"{RETURN} {code}"
            found.append(Part(OUTPUT, label, statement.code, reads))
            continue
        light = Light.CULPRIT if statement.name in culprits else Light.KEPT
        light = light if statement.is_operator else Light.VALUE
        more = _lines(statement.code, statement.origin)
        label = f"{statement.name} = {code}" if statement.yields else code
        found.append(Part(statement.name, label, more, reads, (), light))
    return found


def _given(item: InputOrWeight, name: str) -> Part:
    recipe = item.recipe()
    shape = ", ".join(map(str, recipe.shape))
    label = f"{item.spelling}: {recipe.dtype}[{shape}]"
    more = f"{item.kind} {label}"
    if name not in ("", item.spelling):
        more += f"\n{name.removeprefix('self.')} in the input program"
    return Part(item.name, label, more, ())


def _spelt(code: str) -> str:
    """Remove the parts that all calls have in common."""
    return code.replace("torch.ops.", "").replace(".default(", "(")


# --- folds

MOST = 30
"""Maximum number of boxes for a readable drawing."""


@dataclass(frozen=True)
class Fold:
    """Several operators in one box, with a drawing of its own.

    Attributes:
        label: the module of the operators, or the first and the last one.
        items: the content, in program order.
    """

    label: str
    items: tuple[Item, ...]

    @property
    def parts(self) -> Iterator[Part]:
        for item in self.items:
            yield from item.parts if isinstance(item, Fold) else (item,)


Item = Part | Fold


def fold(parts: Sequence[Part], most: int = MOST) -> tuple[Item, ...]:
    """Fold a program into at most ``most`` boxes, approximately.

    Folds are opened while there is room for their content: first those with kept
    operators, for which the limit is 1.5 times as high, and of these the largest.
    Inputs and outputs have boxes of their own.
    """
    first = [p for p in parts if p.light is Light.VALUE and not p.reads]
    last = [p for p in parts if p.name == OUTPUT]
    inside = [p for p in parts if p not in first and p not in last]
    items: list[Item] = [*inside]
    if len(inside) > most:
        items = [*_by_module(inside, 0, most)]
    while closed := [i for i in items if isinstance(i, Fold) and _fits(i, items, most)]:
        # Prefer kept operators, then the size.
        chosen = max(closed, key=lambda f: (has_kept_operator(f), len(parts_in(f))))
        place = items.index(chosen)
        items[place : place + 1] = chosen.items
    return (*_few(first, "inputs"), *items, *_few(last, "outputs"))


def _fits(opened: Fold, items: Sequence[Item], most: int) -> bool:
    """Return whether a fold may be opened."""
    limit = most * 3 // 2 if has_kept_operator(opened) else most
    return len(items) + len(opened.items) - 1 <= limit


def parts_in(item: Item) -> list[Part]:
    """List the operators of a box."""
    return list(item.parts) if isinstance(item, Fold) else [item]


def has_kept_operator(item: Item) -> bool:
    """Return whether a box contains a kept operator."""
    return any(part.light is not Light.GONE for part in parts_in(item))


def _by_module(parts: Sequence[Part], depth: int, most: int) -> tuple[Item, ...]:
    """Fold runs of operators of the same module; submodules become nested folds."""
    runs = [list(run) for _, run in itertools.groupby(parts, lambda p: _at(p, depth))]
    if len(runs) == 1 and len(parts[0].scope) > depth:
        return _by_module(parts, depth + 1, most)
    items: list[Item] = []
    for run in runs:
        path = run[0].scope[: depth + 1]
        if len(run) == 1 or len(path) <= depth:
            items += run
        else:
            deep = _by_module(run, depth + 1, most) if len(run) > most else tuple(run)
            items.append(Fold(_common(run), deep))
    return _in_runs(items, most)


def _at(part: Part, depth: int) -> tuple[str, ...]:
    return part.scope[: depth + 1]


def _common(parts: Sequence[Part]) -> str:
    """Return the innermost module that contains all ``parts``."""
    names = []
    for level in zip(*(part.scope for part in parts), strict=False):
        if len(set(level)) > 1:
            break
        names.append(level[0])
    return ".".join(names)


def _in_runs(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """Fold consecutive items into runs of about the same length, if too many."""
    if len(items) <= most:
        return tuple(items)
    length = max(-(-len(items) // most), most // 2)
    starts = range(0, len(items), length)
    runs = [items[start : start + length] for start in starts]
    return _in_runs([Fold(_span(run), tuple(run)) for run in runs], most)


SPAN = " \u2026 "
"""Separator of the first and the last item in the label of a run."""


def _span(items: Sequence[Item]) -> str:
    first, last = items[0], items[-1]
    return first.label if len(items) == 1 else f"{first.label}{SPAN}{last.label}"


_VALUES = 6
"""Maximum number of inputs, or of outputs, with a box each."""


def _few(parts: Sequence[Part], what: str) -> tuple[Item, ...]:
    if len(parts) <= _VALUES:
        return tuple(parts)
    return (Fold(f"{len(parts)} {what}", tuple(parts)),)


# --- positions

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
    order = Light.CULPRIT, Light.KEPT, Light.GONE, Light.VALUE
    light = next(each for each in order if each in lights)
    lit = sum(part.light in (Light.KEPT, Light.CULPRIT) for part in parts)
    more = f"{item.label}: {lit} of {len(parts)} kept; click to expand"
    more = item.more if isinstance(item, Part) else more
    label = _cut(item, widest)
    return Box(*corner, label, more, light, span, opens, lit, len(parts))


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
    across, down, high = wide + _GAP, BOX_HEIGHT + _BELOW, BOX_HEIGHT / 2
    xs = [_MARGIN + x * across + wide / 2 for x, _ in points]
    ys = [_MARGIN + y * down + high for _, y in points]
    (x, y), *rest = zip(xs, ys, strict=True)
    y += high
    path = [f"M{x:.0f} {y:.0f}"]
    for number, (to_x, to_y) in enumerate(rest, 1):
        end = to_y - high
        half = (y + end) / 2
        path.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {end:.0f}")
        x, y = to_x, end
        if number < len(rest):  # pass a layer in which the line has no box
            y = to_y + high
            path.append(f"V{y:.0f}")
    return "".join(path)


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

    This is Sugiyama's method: points on long lines count as narrow boxes; each layer is
    sorted by the means of the neighbors' places; then each box moves next to the mean
    of its neighbors as far as the others allow.

    Args:
        boxes: the number of boxes, which are numbered in program order.
        edges: pairs of a box and one that reads it, which has a higher number.
    """
    layer = _layers(boxes, edges)
    through: list[list[int]] = []
    for source, reader in edges:
        first = len(layer)
        layer += range(layer[source] + 1, layer[reader])
        through.append([source, *range(first, len(layer)), reader])
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    above, below = ([list[int]() for _ in layer] for _ in range(2))
    for line in through:
        for upper, lower in itertools.pairwise(line):
            above[lower].append(upper)
            below[upper].append(lower)
    for number, each in enumerate(layer):
        rows[each].append(number)
    half = [0.5 - _BEND * (number >= boxes) for number in range(len(layer))]
    places = [0.0] * len(layer)
    for row in rows:
        _place(row, [float(index) for index in range(len(row))], half, places)
    for sweep in range(_SWEEPS):
        for order, neighbors in (rows, above), (rows[::-1], below):
            for row in order:
                means = {n: _mean(places, neighbors[n], places[n]) for n in row}
                if sweep < _SWEEPS // 2:
                    row.sort(key=means.__getitem__)
                _place(row, [means[n] for n in row], half, places)
    left = min((x - h for x, h in zip(places, half, strict=True)), default=0.5) + 0.5
    right = max((x + h for x, h in zip(places, half, strict=True)), default=0.5) - 0.5
    points = [(x - left, float(y)) for x, y in zip(places, layer, strict=True)]
    return Layers(
        tuple(points[:boxes]),
        tuple(tuple(points[each] for each in line) for line in through),
        right - left + 1,
        len(rows) or 1,
    )


_BEND = 0.4
"""Half a column minus this much is the room that a line needs on each side."""

_SWEEPS = 8
"""Passes over the layers, down and up; the first half of them may change the order."""


def _mean(places: Sequence[float], neighbors: Sequence[int], default: float) -> float:
    """Return the mean place of neighbors, rounded to make equal ones equal."""
    if not neighbors:
        return default
    return round(sum(places[each] for each in neighbors) / len(neighbors), 6)


def _place(
    row: Sequence[int],
    wanted: Sequence[float],
    half: Sequence[float],
    places: list[float],
) -> None:
    """Set the places of a layer, next to the wanted ones, without an overlap.

    Items that would overlap are packed around the mean of their wanted places (isotonic
    regression, which minimizes the squared distances).
    """
    starts = [0.0]
    for one, other in itertools.pairwise(row):
        starts.append(starts[-1] + half[one] + half[other])
    packs: list[list[float]] = []  # the wanted places of the first items of each
    for place, start in zip(wanted, starts, strict=False):
        packs.append([place - start])
        while len(packs) > 1 and fmean(packs[-2]) > fmean(packs[-1]):
            packs[-2:] = [packs[-2] + packs[-1]]
    packed = [mean for pack in packs for mean in [fmean(pack)] * len(pack)]
    for number, start, mean in zip(row, starts, packed, strict=False):
        places[number] = mean + start


def _layers(boxes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: as high as possible, but inputs next to a reader.

    Inputs at the top would draw lines through the whole program.
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
