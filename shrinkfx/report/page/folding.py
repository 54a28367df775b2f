"""Fold a large program by its modules into few boxes, recursively.

    embed, layers.0.norm, layers.0.qkv, ... layers.23.down, head
    becomes    embed, layers.0 (18 operators), ..., layers.23 (18 operators), head

A fold is a run of consecutive operators in program order. So folds can be read in that
order, and no two folds depend on each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shrinkfx.report.page.parts import OUTPUT, Light, Part

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
