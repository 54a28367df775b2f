"""Sizes in a printed program: groups that change together, and ranges."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Declare, Fix, Refill, Resize, Write
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    Block,
    Dim,
    InputOrWeight,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
    Types,
)
from shrinkfx.program.listing.tensor_specs import Seeded

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
    """

    size: int
    places: tuple[Place, ...] = ()
    run: Run | None = None
    dim: str = ""
    writes: tuple[Write, ...] = ()

    @property
    def least(self) -> int:
        """The smallest size to try.

        For dynamic dims in the example it is 2, because export treats 1 as static; in
        the passing call, because equal to the example is simplest.
        """
        return 2 if self.run in (Run.EXAMPLE, Run.PASSING) else 1

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
            if (new := _evaluate_declaration(place.how, {self.dim: size})) is not None:
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


def smaller_sizes(size: int, least: int = 1) -> Iterator[int]:
    """Yield smaller sizes in the order of trying; most failures need 1, or any size.

    Code that works in blocks fails just above a block or at whole blocks. So 17 comes
    early, and so does the block of which the size is a multiple. Then come sizes closer
    and closer to the present one. They are the same for all sizes in the neighborhood,
    so that queries of an earlier search down to 1 are not repeated. They come first for
    a large size: if 1 and 17 do not fail, the failure probably depends on a threshold.
    """
    near = [((size - 2) >> k << k) + 1 for k in range(size.bit_length(), 0, -1)]
    if {size, size - 1} & {*_BLOCKS}:
        near = [size // 2 + 1]
    divisor = size & -size
    block = divisor if divisor < size else size // 2
    above = [each + 1 for each in _BLOCKS]
    blocks = [block] * (block > 3)
    few = [2, 3, 17, 33, 9, 5, *blocks, *above]
    large = size > _MANY
    order = [1, 17, *blocks, *near, *few] if large else [1, *few, *near]
    order.append(size - 1)
    yield from (each for each in dict.fromkeys(order) if least <= each < size)


def bisected_sizes(sizes: Sequence[SizeGroup]) -> Iterator[Mapping[SizeGroup, int]]:
    """Yield smaller sizes for all large groups, the smallest sizes first.

    This is a bisection of the largest size by powers of two: after an accepted
    proposal, the next call starts below the accepted size. Each size keeps its
    remainder modulo the width of a tile.
    """
    largest = max((group.size for group in sizes), default=0)
    low, high = _TILE.bit_length() - 1, largest.bit_length() - 1
    while low < high:
        middle = (low + high) // 2
        bounds = {group: (1 << middle) + group.size % _TILE for group in sizes}
        goals = {group: size for group, size in bounds.items() if size < group.size}
        if goals:
            yield goals
        low = middle + 1


_MANY = 64
"""Above this size, bisection comes before the small sizes."""

_TILE = 16
"""Elements of the widest vector, and rows and columns of a tile (torch 2.15)."""


def smaller_size_pairs(sizes: Sequence[SizeGroup]) -> Iterator[Mapping[SizeGroup, int]]:
    """Yield smaller sizes for two related groups, with equal difference or equal ratio.

    Args:
        sizes: the groups, the largest first.
    """
    for one, other in combinations(sizes, 2):
        if one.run is not other.run or one.size == other.size:
            continue
        least = max(one.least, other.least)
        for size in (least, least + 1):
            yield {one: size + one.size - other.size, other: size}
            if one.size % other.size == 0:
                yield {one: size * (one.size // other.size), other: size}


_DIMS = 4

_BLOCKS = tuple(1 << k for k in range(1, 32))


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
        elif solved := _solve_declaration(place.how, size):
            named.setdefault(*solved)
    for name, size in named.items():
        for place, actual in _open_dims(opened, run):
            if _evaluate_declaration(place.how, {name: size}) == actual:
                groups[name, size].append(place)
    for (name, size), places in groups.items():
        yield SizeGroup(size, tuple(places), run, name)


def _open_dims(tensors: list[InputOrWeight], run: Run) -> Iterator[tuple[Place, int]]:
    for tensor in tensors:
        for dim, how in tensor.open_dims:
            yield Place(tensor.name, dim, how), tensor.recipe(run).shape[dim]


def _solve_declaration(how: str, size: int) -> tuple[str, int] | None:
    """Solve a declaration such as ``2*n + 1`` for its dim; return name and value."""
    names = set(re.findall(r"[A-Za-z_]\w*", how))
    for name in names if len(names) == 1 else ():
        start, then = (_evaluate_declaration(how, {name: number}) for number in (0, 1))
        if start is not None and then is not None and then > start:
            return name, (size - start) // (then - start)
    return None


def _evaluate_declaration(how: str, values: Mapping[str, int]) -> int | None:
    """Evaluate a declaration such as ``2*n + 1``; '' means the only value itself."""
    if not how:
        return next(iter(values.values()))
    try:
        return _evaluate_node(ast.parse(how, mode="eval").body, values)
    except (KeyError, SyntaxError, ZeroDivisionError):
        return None


def _evaluate_node(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(number)):
            return number
        case ast.Name(name):
            return values[name]
        case ast.BinOp(left, operation, right):
            pair = _evaluate_node(left, values), _evaluate_node(right, values)
            match operation:
                case ast.Add():
                    return pair[0] + pair[1]
                case ast.Sub():
                    return pair[0] - pair[1]
                case ast.Mult():
                    return pair[0] * pair[1]
                case ast.FloorDiv():
                    return pair[0] // pair[1]
    raise KeyError(ast.unparse(node))


_LEAST, _MOST = 2, 3
"""Minimum and maximum of the smallest range that a dim can be declared with."""


def names_in(opened: Iterable[InputOrWeight]) -> list[str]:
    """List the names in the declarations of dims."""
    declarations = (how for tensor in opened for _, how in tensor.open_dims)
    return [*dict.fromkeys(word for how in declarations for word in _words(how))]


def _words(how: str) -> list[str]:
    return re.findall(r"[A-Za-z_][\w.]*", how.partition("(")[0])


def make_dims_static(opened: Iterable[InputOrWeight], name: str) -> Iterator[Change]:
    """Yield the changes that make all dims with ``name`` in their declarations static.

    An empty name means all dims.
    """
    for tensor in opened:
        failing = tensor.recipe(Run.FAILING).shape
        for dim, how in tensor.open_dims:
            if not name or name in _words(how):
                yield Fix(tensor.name, dim)
                for run, recipe in tensor.recipes:
                    if recipe.shape[dim] != failing[dim]:
                        yield Resize(tensor.name, dim, failing[dim], run)


def use_failing_values(tensor: InputOrWeight) -> Iterator[Change]:
    """Yield the change that gives an input its failing values in all runs."""
    if len(tensor.recipes) > 1:
        yield Refill(tensor.name, tensor.recipe(Run.FAILING).fill)


def narrow_to_used_sizes(listing: PrintedProgram, dim: Dim) -> Iterator[Rewrite]:
    """Propose ranges that end at the sizes in use; sizes outside stay outside."""
    sizes = [each.size for each in _sizes(listing, dim)]
    used = {size for size in sizes if dim.holds(size)}
    if used and max(used) > max(dim.low, _LEAST):
        yield Rewrite((Declare(dim.name, dim.low, max(used)),))
    if len(used) > 1:
        yield Rewrite((Declare(dim.name, min(used), max(used)),))


def move_just_outside(listing: PrintedProgram, dim: Dim) -> Iterator[Rewrite]:
    """Propose the smallest size that is outside a dim's range, if the failing size is.

    First with the smallest possible range and all other sizes in it; then with a range
    that covers the sizes in use.
    """
    in_use = list(_sizes(listing, dim))
    inside = [sizes for sizes in in_use if dim.holds(sizes.size)]
    used = {sizes.size for sizes in inside} or {dim.low}
    for fails in in_use:
        if dim.high is not None and fails.size > dim.high:
            least, most = (0, _MOST), (dim.low, max(_MOST, *used))
            yield _outside(fails, dim, least, inside, _LEAST)
            yield _outside(fails, dim, most)
        elif fails.size < dim.low:
            yield _outside(fails, dim, (_MOST, None), inside, _MOST)
            yield _outside(fails, dim, (min(used), dim.high))


def _outside(
    fails: SizeGroup,
    dim: Dim,
    ends: tuple[int, int | None],
    others: Iterable[SizeGroup] = (),
    size: int = 0,
) -> Rewrite:
    """Declare a range, put the failing size right outside, and move others inside."""
    low, high = ends
    above = high is not None and fails.size > high
    beyond = high + 1 if above and high is not None else low - 1
    moved = (change for each in others for change in each.resized(size))
    return Rewrite((Declare(dim.name, low, high), *fails.resized(beyond), *moved))


def _sizes(listing: PrintedProgram, dim: Dim) -> Iterator[SizeGroup]:
    """Yield the sizes that a dim has in each run."""
    for run in Run:
        yield from (each for each in sizes_in(listing, run) if each.dim == dim.name)
