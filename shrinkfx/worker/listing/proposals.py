"""Repairs of an invalid statement: knobs, and a bounded number of their values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, islice

import torch

from shrinkfx.program.listing.changes import Cast, Change, Resize, Write, place_of
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    InputOrWeight,
    Leaf,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Opaque
from shrinkfx.worker.listing.eager_statement import (
    arguments_of,
    get_operator_name,
    is_index,
)
from shrinkfx.worker.listing.fakes import Place, Value, shapes_of

# x: (2, 12, 32) -> (2, 4, 32)        x.view([24, 32])  ->  x.view([8, 32])
#
# A number that equals a replaced size becomes the new size; multiples and divisors
# are scaled alike; one number of a shape may be computed from the others.

_MOST_NEAR = 40
_MOST_FAR = 60
_MOST_EACH = 8
"""Maximal number of repairs: of the statement, of all before it, of each of these."""

_SHAPES = frozenset({"size", "shape", "split_sizes"})
"""Arguments whose product or sum equals that of the operand's sizes."""

Repair = tuple[Change, ...]


@dataclass(frozen=True)
class Replacements:
    """The sizes and dtypes that have been replaced, as far as known.

    Attributes:
        sizes: old and new sizes; those nearest to the statement last, because they
            follow from the others.
        dtypes: old and new dtypes, as statements write them.
        totals: the current element counts and sizes of the operands.
    """

    sizes: tuple[Pair, ...]
    dtypes: tuple[tuple[str, str], ...]
    totals: tuple[int, ...]

    @property
    def exact(self) -> dict[int | str, int | str]:
        """The new value of each old value; of several the first."""
        return dict([*reversed(self.sizes), *reversed(self.dtypes)])


def propose_repairs(
    near: Sequence[Knob], far: Sequence[Sequence[Knob]], replaced: Replacements
) -> Iterator[Repair]:
    """Yield repairs, each once.

    Args:
        near: knobs of the invalid statement.
        far: knobs of each earlier statement, the nearest first.
    """
    before = [knob for knobs in far for knob in knobs]
    chain = [
        islice(_near(near, replaced), _MOST_NEAR),
        iter(
            [
                apply_replacements(before, replaced.exact),
                apply_replacements([*near, *before], replaced.exact),
            ]
        ),
        islice(_far(far, replaced), _MOST_FAR),
        islice(_guesses(near, replaced), _MOST_NEAR),
    ]
    seen: set[Repair] = {()}
    for repair in (repair for part in chain for repair in part):
        if repair not in seen:
            seen.add(repair)
            yield repair


def _near(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Repair]:
    yield apply_replacements(knobs, replaced.exact)
    singles = list(_singles(knobs, replaced.sizes))
    yield from ((change,) for _, change in singles)
    yield _all_following(knobs, replaced.sizes)
    shape = [k for k in knobs if k.argument in _SHAPES and isinstance(k.now, int)]
    yield from _left_over(shape, replaced.totals)
    for (one, first), (other, second) in combinations(singles, 2):
        if one is not other:
            yield first, second


def _far(groups: Sequence[Sequence[Knob]], replaced: Replacements) -> Iterator[Repair]:
    for knobs in groups:
        yield apply_replacements(knobs, replaced.exact)
        singles = ((change,) for _, change in _singles(knobs, replaced.sizes))
        yield from islice(singles, _MOST_EACH)
        yield _all_following(knobs, replaced.sizes)


def _guesses(knobs: Sequence[Knob], replaced: Replacements) -> Iterator[Repair]:
    """Try 1, the new sizes, the last valid indices, and 0."""
    ends = {n for _, new in replaced.sizes for n in (new, new - 1) if n > 0}
    for knob in knobs:
        if isinstance(knob.now, int):
            for number in [1, *sorted(ends, reverse=True), 0]:
                if number < abs(knob.now):
                    yield (knob.change_to(number),)


def _singles(
    knobs: Iterable[Knob], pairs: Sequence[Pair]
) -> Iterator[tuple[Knob, Change]]:
    numbers = [knob for knob in knobs if isinstance(knob.now, int)]
    for old, new in pairs:
        for knob in numbers:
            if knob.now == old != new:
                yield knob, knob.change_to(new)
    for knob in numbers:
        for number in scale_number(int(knob.now), pairs):
            yield knob, knob.change_to(number)


def _all_following(knobs: Iterable[Knob], pairs: Sequence[Pair]) -> Repair:
    turned = []
    for knob in knobs:
        if isinstance(knob.now, int):
            turned += [
                knob.change_to(n) for n in islice(scale_number(knob.now, pairs), 1)
            ]
    return tuple(turned)


def _left_over(shape: Sequence[Knob], totals: Sequence[int]) -> Iterator[Repair]:
    """Compute one number of a shape from the others, or set all but one to 1."""
    now = [int(knob.now) for knob in shape]
    for total in totals:
        for place, knob in enumerate(shape):
            rest = math.prod(now[:place] + now[place + 1 :])
            if rest > 0 and total % rest == 0 and total // rest != knob.now:
                yield (knob.change_to(total // rest),)
    ones = tuple(knob.change_to(1) for knob in shape[:-1] if knob.now != 1)
    yield from _solve_with_one(shape, now, totals)
    if len(shape) > 2:  # e.g. a prime total for [2, 4, 4]
        yield from ((*ones, shape[-1].change_to(total)) for total in totals)
    for total in totals:
        if shape and (last := total - len(shape) + 1) > 0:
            yield (*ones, shape[-1].change_to(last))


def _solve_with_one(
    shape: Sequence[Knob], now: Sequence[int], totals: Sequence[int]
) -> Iterator[Repair]:
    """Set one number of a shape to 1, and compute another.

    Numbers that are sizes of an operand are changed last.
    """
    pairs = ((i, j) for i in range(len(now)) for j in range(len(now)) if i != j)
    by_stay = sorted(pairs, key=lambda p: (now[p[0]] in totals) + (now[p[1]] in totals))
    for total in totals:
        for one, place in by_stay:
            rest = math.prod(n for i, n in enumerate(now) if i not in (one, place))
            if rest > 0 and total % rest == 0:
                yield shape[one].change_to(1), shape[place].change_to(total // rest)


_LONGEST = 2**31
"""Numbers from here on stand for the end of a slice; they are no sizes."""

_NO_SIZES = re.compile(r"dims?\d?|.*_dim|dimension|axis|correction|device|layout|k")
"""Integer arguments that are not sizes."""

_COUNTING = frozenset({"arange", "linspace"})
"""Operators whose schemas declare sizes as numbers of any type."""


@dataclass(frozen=True)
class Knob:
    """A number or a dtype that a repair may change.

    Attributes:
        change: the change that writes it, with the current value.
        now: the current value.
        argument: the operator argument that it belongs to, or ''.
    """

    change: Write | Resize | Cast
    now: int | str
    argument: str = ""

    def change_to(self, to: int | str) -> Change:
        """Return the change that writes another value."""
        match self.change:
            case Write():
                return replace(self.change, text=str(to))
            case Resize():
                return replace(self.change, size=int(to))
            case Cast():
                return replace(self.change, dtype=str(to).removeprefix("torch."))


def list_statement_knobs(
    block: str, statement: Statement, requested: Set[int]
) -> Iterator[Knob]:
    """Yield the knobs of a statement, without leaves that the rewrite itself sets."""
    fixed = set(requested)
    for leaf in statement.leaves:
        if leaf.number in fixed or leaf.parent in fixed:
            fixed.add(leaf.number)
            continue
        value = _number_or_dtype(leaf, statement)
        if value is not None:
            write = Write(block, statement.name, leaf.number, leaf.text)
            argument = arguments_of(statement).get(leaf.number, ("", ""))[0]
            yield Knob(write, value, argument)


def _number_or_dtype(leaf: Leaf, statement: Statement) -> int | str | None:
    name, kind = arguments_of(statement).get(leaf.number, ("", "int"))
    if leaf.kind is LeafKind.WORD:
        return leaf.text if leaf.text.startswith("torch.") else None
    if leaf.kind is not LeafKind.NUMBER or not leaf.text.lstrip("-").isdigit():
        return None
    counts = "number" in kind.lower() and get_operator_name(statement) in _COUNTING
    if not counts and "int" not in kind.lower():
        return None
    number = int(leaf.text)
    if _NO_SIZES.fullmatch(name) or is_index(leaf, statement):
        return None
    return number if number != -1 and abs(number) < _LONGEST else None


def list_input_knobs(
    entry: InputOrWeight, requested: Set[tuple[object, ...]]
) -> Iterator[Knob]:
    """Yield static sizes and dtype of an input, unless the rewrite sets them."""
    recipe = entry.recipe()
    if isinstance(recipe.fill, Opaque):
        return
    for dim, size in enumerate(recipe.shape):
        if dim not in dict(entry.open_dims) and not _is_rejected_resize(
            entry.name, dim, requested
        ):
            yield Knob(Resize(entry.name, dim, size), size)
    if (Cast, entry.name) not in requested:
        yield Knob(Cast(entry.name, recipe.dtype), f"torch.{recipe.dtype}")


def _is_rejected_resize(
    name: str, dim: int, requested: Set[tuple[object, ...]]
) -> bool:
    return any((Resize, name, dim, run) in requested for run in (None, *Run))


Pair = tuple[int, int]
"""An old number and the new one."""


def apply_replacements(
    knobs: Iterable[Knob], replaced: Mapping[int | str, int | str]
) -> tuple[Change, ...]:
    """Change each knob whose value has been replaced elsewhere."""
    return tuple(
        knob.change_to(replaced[knob.now])
        for knob in knobs
        if replaced.get(knob.now, knob.now) != knob.now
    )


def scale_number(number: int, pairs: Iterable[Pair]) -> Iterator[int]:
    """Yield scaled values of a multiple or divisor of a replaced number."""
    seen = {number}
    for old, new in pairs:
        related = old and number and (number % old == 0 or old % number == 0)
        if related and number * new % old == 0 and number * new // old not in seen:
            seen.add(number * new // old)
            yield number * new // old


Values = Mapping[Place, Value]


class UpstreamKnobs:
    """The knobs of a changed program, as leaves of the unchanged program.

    Args:
        was: the unchanged program.
        now: the changed program, which runs.
        request: the requested changes; their leaves and sizes are no knobs.
    """

    def __init__(
        self, was: PrintedProgram, now: PrintedProgram, request: Sequence[Change]
    ) -> None:
        self._was = was
        self._now = now
        self._places = {place_of(change) for change in request}
        self._leaves: dict[Place, set[int]] = {}
        for change in request:
            if isinstance(change, Write):
                place = change.block, change.statement
                self._leaves.setdefault(place, set()).add(change.leaf)

    def around(self, frames: Sequence[Place]) -> tuple[list[Knob], list[list[Knob]]]:
        """List the knobs of a statement, and of each earlier one in reverse order.

        Args:
            frames: the statements that call its block, and the statement last.
        """
        groups = [
            self._list_knobs(*place)
            for block, statement in reversed(frames)
            for place in self._before(self._now.block(block), statement)
        ]
        read = {name for b, s in frames for name in self._reads(b, s) if b == MAIN}
        for entry in self._now.given:
            if entry.spelling in read:
                was = self._was.find(entry.name)
                groups.append(list(list_input_knobs(was, self._places)))
        return self._list_knobs(*frames[-1]), [group for group in groups if group]

    def before(self, name: str) -> list[Knob]:
        """List the knobs of everything that a value of the main block depends on."""
        for entry in self._now.given:
            if entry.spelling == name:
                return list(list_input_knobs(self._was.find(entry.name), self._places))
        near, far = self.around([(MAIN, name)])
        return [*near, *(knob for group in far for knob in group)]

    def list_arithmetic(self) -> list[Knob]:
        """List the knobs of arithmetic statements in the main block.

        A search upstream misses them if only an assertion reads them.
        """
        lines = (line for line in self._now.main.statements if not line.callee)
        return [knob for line in lines for knob in self._list_knobs(MAIN, line.name)]

    def _list_knobs(self, block: str, name: str) -> list[Knob]:
        found = [s for s in self._was.block(block).statements if s.name == name]
        if not found or not found[0].yields:
            return []
        requested = self._leaves.get((block, name), set())
        return list(list_statement_knobs(block, found[0], requested))

    def _before(self, block: Block, name: str) -> Iterator[Place]:
        """Yield the statements that a statement depends on, also indirectly."""
        for statement in reversed(block.statements):
            if statement.name == name:
                yield from self._within(block, statement)
            elif statement.name in self._reads(block.name, name):
                yield block.name, statement.name
                yield from self._within(block, statement)

    def _within(self, block: Block, statement: Statement) -> Iterator[Place]:
        """Yield the statements of the blocks that a statement calls."""
        for attribute, kind in block.members:
            if f"self.{attribute}" in statement.reads:
                inner = self._now.block(kind)
                for each in reversed(inner.statements):
                    yield kind, each.name
                    yield from self._within(inner, each)

    def _reads(self, block: str, name: str) -> set[str]:
        """Return the names that a statement reads, also indirectly."""
        found: set[str] = set()
        after = False
        for statement in reversed(self._now.block(block).statements):
            if statement.name == name and not after:
                after = True
                found |= statement.reads
            elif after and statement.name in found:
                found |= statement.reads
        return found


def collect_replacements(
    was: PrintedProgram,
    now: PrintedProgram,
    request: Sequence[Change],
    place: Place,
    values: tuple[Values, Values],
) -> Replacements:
    """Collect replaced sizes and dtypes: requested ones, and those of operands.

    Args:
        values: the values before and after the change.
    """
    pairs = list(_sizes_moved(was, request))
    totals: list[int] = []
    block, name = place
    statement = next(s for s in now.block(block).statements if s.name == name)
    for read in sorted(statement.reads):
        old, new = (mapping.get((block, read)) for mapping in values)
        if new is not None:
            for shape in shapes_of(new):
                totals += [_count(shape), *shape]
        if old is not None and new is not None:
            for before, after in zip(shapes_of(old), shapes_of(new), strict=False):
                if len(before) == len(after):
                    pairs += zip(before, after, strict=True)
                pairs.append((_count(before), _count(after)))
        if old is not None and new is not None and old.exact and new.exact:
            pairs += zip(_sums(old), _sums(new), strict=False)
    sizes = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    dtypes = tuple(dict.fromkeys(iter_dtype_changes(was, request)))
    return Replacements(sizes, dtypes, tuple(dict.fromkeys(totals)))


def _sums(value: Value) -> list[int]:
    """Add up whole numbers, because a size may be the sum of lengths."""
    return [int(tensor.sum()) for tensor in value.tensors()]


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _sizes_moved(
    was: PrintedProgram, request: Sequence[Change]
) -> Iterator[tuple[int, int]]:
    for change in request:
        if isinstance(change, Resize):
            recipe = was.find(change.name).recipe(change.run or Run.EXAMPLE)
            if not isinstance(recipe.fill, Opaque) and change.dim < len(recipe.shape):
                yield recipe.shape[change.dim], change.size
        elif isinstance(change, Write) and (leaf := _leaf(was, change)):
            texts = leaf.text, change.text
            if all(text.isdigit() for text in texts):
                yield int(leaf.text), int(change.text)


def iter_dtype_changes(
    was: PrintedProgram, request: Sequence[Change]
) -> Iterator[tuple[str, str]]:
    """Yield the old and new dtype of each cast, as statements write them."""
    for change in request:
        if isinstance(change, Cast):
            old = was.find(change.name).recipe().dtype
            if old != change.dtype:
                yield f"torch.{old}", f"torch.{change.dtype}"
        elif isinstance(change, Write) and (leaf := _leaf(was, change)):
            texts = leaf.text, change.text
            if all(map(_is_dtype, texts)):
                yield texts


def _is_dtype(text: str) -> bool:
    named = getattr(torch, text.removeprefix("torch."), None)
    return text.startswith("torch.") and isinstance(named, torch.dtype)


def _leaf(was: PrintedProgram, change: Write) -> Leaf | None:
    for statement in was.block(change.block).statements:
        if statement.name == change.statement:
            leaves = statement.leaves
            return leaves[change.leaf] if change.leaf < len(leaves) else None
    return None
