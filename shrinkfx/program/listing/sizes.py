"""Sizes in a printed program: groups that change together, and ranges."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Declare, Refill, Resize, Write
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    Block,
    InputOrWeight,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
    Types,
)
from shrinkfx.program.listing.tensor_specs import Seeded
from shrinkfx.program.sizes import evaluate

_AUTO = "Dim.AUTO"
"""The declaration of a dim whose relations export determines."""


@dataclass(frozen=True)
class Place:
    """A dim of an input or weight.

    Attributes:
        how: the expression of its declaration, if it is dynamic.
    """

    name: str
    dim: int
    how: str = ""


@dataclass(frozen=True)
class SizeGroup:
    """Sizes that are equal or computed from one number, so they change together.

    Attributes:
        size: the number.
        run: the run of the sizes, if they belong to dynamic dims.
        dim: the declared dim that they are computed from, or ''.
        writes: for sizes in statements, changes that write the present number.
        is_outside: the run has a size outside of the range of its dim.
    """

    size: int
    places: tuple[Place, ...] = ()
    run: Run | None = None
    dim: str = ""
    writes: tuple[Write, ...] = ()
    is_outside: bool = False

    @property
    def least(self) -> int:
        """The smallest size to try.

        For dynamic dims it is 2: export treats 1 as static, and compiled code may
        assume that a dynamic size is not 1, so the program could fail for that reason.
        A run with a size outside of its range already breaks such an assumption.
        """
        return 1 if self.run is None or self.is_outside else 2

    def at(self, listing: PrintedProgram, size: int) -> Iterator[Change]:
        """Yield changes to another size: of dims, the range, and the bound of indices.

        The range is widened to include the size, unless the present size is outside the
        range, because that may be why the program fails.
        """
        yield from self.resized(size)
        for dim in listing.dims:
            inside = dim.name == self.dim and dim.holds(self.size)
            if inside and not dim.holds(size):
                high = None if dim.high is None else max(dim.high, size)
                yield Declare(dim.name, min(dim.low, size), high)
        yield from self._indices(listing, size)

    def resized(self, size: int) -> Iterator[Change]:
        """Yield changes of only the dims, or only the numbers in statements."""
        for place in self.places:
            if (new := _evaluate_declaration(place.how, self.dim, size)) is not None:
                yield Resize(place.name, place.dim, new, self.run)
        yield from (replace(write, text=str(size)) for write in self.writes)

    def resize_undeclared(self, size: int) -> Iterator[Change]:
        """Yield changes of each place, if no declared dim connects them."""
        if not self.dim:
            yield from self.resized(size)

    def _indices(self, listing: PrintedProgram, size: int) -> Iterator[Change]:
        """Yield changes that draw indices below the new size instead of the old one."""
        for tensor in listing.given:
            for run, recipe in tensor.recipes:
                match recipe.fill:
                    case Seeded("randint", low, self.size) if (
                        low < size and self.run in (None, run)
                    ):
                        fill = replace(recipe.fill, high=size)
                        yield Refill(tensor.name, fill, run)


def list_size_groups(
    listing: PrintedProgram, types: Types = UNTYPED
) -> list[SizeGroup]:
    """List the groups of sizes that can be smaller, the largest first.

    Groups of inputs and weights come before groups in statements. For one number there
    may be both: one of inputs, which statements follow, and one of statements.
    """
    groups = [*_static_groups(listing)]
    for run in Run:
        groups += sizes_in(listing, run)
    groups += _statement_groups(listing, types)
    resizable = [group for group in groups if group.size > group.least]
    return sorted(resizable, key=lambda group: (bool(group.writes), -group.size))


def lower_to_goals(
    listing: PrintedProgram, types: Types, goals: Mapping[SizeGroup, int]
) -> Iterator[Rewrite]:
    """Yield one rewrite that lowers each group to its goal, also in statements.

    Yield nothing if no goal is lower.
    """
    goals = {group: max(group.least, size) for group, size in goals.items()}
    goals = {group: size for group, size in goals.items() if size < group.size}
    if goals:
        numbers = {group.size: size for group, size in goals.items()}
        changes = [c for group, n in goals.items() for c in group.at(listing, n)]
        for size, write in sizes_in_statements(listing, types):
            if numbers.get(size, size) != size:
                changes.append(replace(write, text=str(numbers[size])))
        yield Rewrite(tuple(dict.fromkeys(changes)))


_DIMS = 4


def sizes_in_statements(
    listing: PrintedProgram, types: Types
) -> Iterator[tuple[int, Write]]:
    """Yield the sizes in statements, each with a change that writes the present number.

    A number counts as a size if it is in a list, or if it is a size of the statement's
    result and of none of its operands: in ``arange(975)``, but not in ``mul(x, 12)``.
    Small numbers do not count, because they may be dims or counts.
    """
    for block in listing.blocks:
        for line in block.statements:
            lists = {n.number for n in line.leaves if n.kind is LeafKind.LIST}
            made = _result_sizes(block, line, types)
            for leaf in line.leaves:
                is_integer = leaf.kind is LeafKind.NUMBER and leaf.text.isdecimal()
                size = int(leaf.text) if is_integer else 0
                is_made = leaf.parent is None and size in made
                if size > _DIMS and (leaf.parent in lists or is_made):
                    yield size, Write(block.name, line.name, leaf.number, leaf.text)


def _result_sizes(block: Block, line: Statement, types: Types) -> set[int]:
    """Return the sizes of a statement's result that none of its operands has."""

    def sizes(name: str) -> tuple[int, ...]:
        known = types.get((block.name, name))
        return known.shape if known else ()

    return set(sizes(line.name)).difference(*map(sizes, line.reads))


def _statement_groups(listing: PrintedProgram, types: Types) -> Iterator[SizeGroup]:
    by_size: dict[int, list[Write]] = defaultdict(list)
    for size, write in sizes_in_statements(listing, types):
        by_size[size].append(write)
    for size, writes in by_size.items():
        yield SizeGroup(size, writes=tuple(writes))


def _static_groups(listing: PrintedProgram) -> Iterator[SizeGroup]:
    by_size: dict[int, list[Place]] = defaultdict(list)
    for tensor in listing.given:
        dynamic = dict(tensor.open_dims)
        for dim, size in enumerate(tensor.recipe().shape):
            if dim not in dynamic:
                by_size[size].append(Place(tensor.name, dim))
    for size, places in by_size.items():
        yield SizeGroup(size, tuple(places))


def sizes_in(listing: PrintedProgram, run: Run) -> Iterator[SizeGroup]:
    """Yield the groups of dynamic dims in a run that has inputs of its own."""
    groups: dict[tuple[str, int], list[Place]] = defaultdict(list)
    named: dict[str, int] = {}
    opened = [each for each in listing.inputs if run in dict(each.recipes)]
    for place, size in _open_dims(opened, run):
        if _AUTO in place.how:
            groups["", size].append(replace(place, how=""))
        elif linear := parse_linear(place.how):
            named.setdefault(linear[0], (size - linear[1]) // linear[2])
    for name, size in named.items():
        for place, actual in _open_dims(opened, run):
            if _evaluate_declaration(place.how, name, size) == actual:
                groups[name, size].append(place)
    ranges = {dim.name: dim for dim in listing.dims}
    is_outside = any(n in ranges and not ranges[n].holds(size) for n, size in groups)
    for (name, size), places in groups.items():
        yield SizeGroup(size, tuple(places), run, name, is_outside=is_outside)


def _open_dims(tensors: list[InputOrWeight], run: Run) -> Iterator[tuple[Place, int]]:
    for tensor in tensors:
        for dim, how in tensor.open_dims:
            yield Place(tensor.name, dim, how), tensor.recipe(run).shape[dim]


@cache
def parse_linear(how: str) -> tuple[str, int, int] | None:
    """Parse a declaration such as ``2*n + 1``.

    Returns:
        The name of the dim, the size where it is 0, and the size per unit; None if the
        declaration is no such expression.
    """
    names = set(re.findall(r"[A-Za-z_]\w*", how))
    if len(names) != 1:
        return None
    (name,) = names
    try:
        start, then = (evaluate(how, {name: number}) for number in (0, 1))
    except (NameError, SyntaxError, ValueError, ZeroDivisionError):
        return None
    return (name, start, then - start) if then > start else None


def _evaluate_declaration(how: str, name: str, size: int) -> int | None:
    """Evaluate a declaration where a dim has a size; '' means the size itself."""
    linear = parse_linear(how) if how else (name, 0, 1)
    return linear[1] + linear[2] * size if linear and linear[0] == name else None
