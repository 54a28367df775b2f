"""Strategies for the inputs and weights of printed programs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Cast,
    Change,
    Convert,
    Declare,
    Fix,
    Refill,
    Resize,
    Squeeze,
    Straighten,
    Write,
    needless,
)
from shrinkfx.program.listing.printed_program import (
    Dim,
    InputOrWeight,
    Kind,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.sizes import (
    SizeGroup,
    list_size_groups,
    lower_to_goals,
    sizes_in,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Saved,
    Seeded,
    TensorSpec,
    list_simpler_formulas,
    yield_parts,
    yield_simpler_elements,
)
from shrinkfx.program.view import View

# Reduce the sizes of large inputs together, by bisection.
#
#     x = torch.randn((4096, 1000))       becomes       x = torch.randn((256, 264))
#
# Checks of programs with large inputs are slow, so this strategy runs before the others
# for printed programs. Each size keeps its remainder modulo the width of a tile,
# because many failures depend on it. Programs with at most 1 MiB of inputs and weights
# are left to minimize_sizes and shrink_sizes.


class BisectSizes:
    """Propose all sizes at their minimum, then powers of two, the smallest first."""

    name = "bisect_sizes"
    kind = Kind.SIZES
    combines = False

    def propose(self, view: View) -> Iterator[Rewrite]:
        if view.listing.nbytes <= _LARGE:
            return
        sizes = list_size_groups(view.listing, view.types)
        free = [group for group in sizes if group.run is not Run.FAILING]
        for goals in [dict.fromkeys(free, 1), *bisected_sizes(free)]:
            yield from lower_to_goals(view.listing, view.types, goals)


_LARGE = 1 << 20
"""The bytes of inputs and weights above which this strategy runs."""


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


_TILE = 16
"""Elements of the widest vector, and rows and columns of a tile (torch 2.15)."""


# Make dynamic dims static, or give them a simpler range.
#
#     x: (n, 8), n from 2 to 4096      becomes      x: (33, 8)
#                                      or           x: (n, 8), any n
#
# A static program has the sizes at which the dynamic one fails, and one set of inputs.


class MakeDimsStatic:
    """Propose a static program, then each dim static, then no range or a small one.

    A size that fails outside of its range stays outside, just beyond the limit.
    """

    name = "make_dims_static"
    kind = Kind.SIZES
    combines = False
    """There are few proposals; and of two dims that matter together, one may become
    static."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        opened = [tensor for tensor in listing.inputs if tensor.open_dims]
        fills = [f for tensor in listing.inputs for f in use_failing_values(tensor)]
        if opened or fills:
            yield Rewrite((*make_dims_static(opened, ""), *fills))
        for name in names_in(opened):
            yield Rewrite((*make_dims_static(opened, name),))
        plain = [Declare(dim.name, 0, None) for dim in listing.dims]
        if any(dim.low or dim.high is not None for dim in listing.dims):
            yield Rewrite((*plain,))
        for dim, change in zip(listing.dims, plain, strict=True):
            yield Rewrite((change,))
            yield from move_just_outside(listing, dim)
            yield from narrow_to_used_sizes(listing, dim)


_LEAST, _MOST = 2, 3
"""Minimum and maximum of the smallest range that a dim can be declared with."""


def names_in(opened: Iterable[InputOrWeight]) -> list[str]:
    """List the names in the declarations of dims."""
    declarations = (how for tensor in opened for _, how in tensor.open_dims)
    return [
        *dict.fromkeys(word for how in declarations for word in _list_dim_names(how))
    ]


def _list_dim_names(how: str) -> list[str]:
    return re.findall(r"[A-Za-z_][\w.]*", how.partition("(")[0])


def make_dims_static(opened: Iterable[InputOrWeight], name: str) -> Iterator[Change]:
    """Yield the changes that make all dims with ``name`` in their declarations static.

    An empty name means all dims.
    """
    for tensor in opened:
        failing = tensor.recipe(Run.FAILING).shape
        for dim, how in tensor.open_dims:
            if not name or name in _list_dim_names(how):
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


# Turn weights into inputs with simple values: gigabytes become a few lines.
#
#     self.w = Parameter(data["w"])        becomes    w = torch.ones((4, 4))
#     add(self.w, self.v)                  becomes    add(self.w, self.w)
#
# An input takes one line less than a weight. A tensor that must be a weight may still
# be a constant, or the same as another weight.


class SimplifyWeights:
    """Propose inputs with simple values for weights, then simple weights, then less."""

    name = "simplify_weights"
    kind = Kind.WEIGHTS
    combines = False
    """The initializers of a weight, and the weights that could replace it, are
    alternatives."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        tensors = {w.name: w.recipe() for w in listing.weights if _is_tensor(w)}
        fills = {
            name: list_simpler_formulas(recipe) for name, recipe in tensors.items()
        }
        first = {n: [Refill(n, fill) for fill in fills[n][:1]] for n in tensors}
        to_input = {name: [Convert(name, "input")] for name in tensors}
        rest = [name for name in tensors if fills[name]]
        for names, edits in (([*tensors], (to_input, first)), (rest, (first,))):
            if names:
                yield _joined(names, *edits)
        for part in yield_parts([*tensors]):
            yield _joined(part, to_input, first)
        for part in yield_parts(rest):
            yield _joined(part, first)
        for other, name in pairwise(tensors):
            if _are_alike(tensors[other], tensors[name]):
                yield Rewrite((*_read_other(listing, name, other),))
        for name in rest:
            yield _joined([name], to_input)
            for fill in [*fills[name][1:], *yield_simpler_elements(tensors[name])]:
                yield Rewrite((Refill(name, fill),))


def _joined(names: Iterable[str], *changes: Mapping[str, Sequence[Change]]) -> Rewrite:
    """Join the changes of some weights into one rewrite."""
    return Rewrite(tuple(c for name in names for by in changes for c in by[name]))


def _is_tensor(weight: InputOrWeight) -> bool:
    return not isinstance(weight.recipe().fill, Opaque)


def _are_alike(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether an operator that accepts one weight would accept the other."""
    return replace(one, fill=other.fill) == other


def _read_other(listing: PrintedProgram, name: str, other: str) -> Iterator[Write]:
    """Yield changes that make each reader of a weight read another one."""
    for line in listing.main.statements:
        for leaf in line.leaves:
            if leaf.text == listing.find(name).spelling:
                spelling = listing.find(other).spelling
                yield Write(listing.main.name, line.name, leaf.number, spelling)


# Fill inputs with simple values.
#
#     x = data["x"]                        becomes  x = torch.ones((4, 8))
#     x = torch.randn((4,))                becomes  x = torch.arange(4, ...)
#     x = torch.tensor([2., 7., nan, 3.])  becomes  x = torch.tensor([nan, 0., 0., 0.])
#
# Few failures depend on values, and those that do depend on few elements. A tensor that
# a formula can make needs no file.


class SimplifyValues:
    """Propose a simple initializer for all inputs, for parts, for each; then elements.

    The first proposals set all runs of a program alike, the last ones a single run.
    """

    name = "simplify_values"
    kind = Kind.VALUES
    combines = False
    """A tensor has one initializer, and the elements that can still change depend on
    it."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        fills = {
            tensor.name: list_simpler_formulas(_least_plain(tensor))
            for tensor in view.listing.inputs
        }
        fills = {name: simpler for name, simpler in fills.items() if simpler}
        names = [*fills]
        for part in yield_parts(names):
            yield _filled(part, fills, 0)
        for nth in range(1, max(map(len, fills.values()), default=0)):
            yield _filled(names, fills, nth)
        for name in names:
            for nth in range(1, len(fills[name])):
                yield _filled([name], fills, nth)
        for tensor in view.listing.inputs:
            for run, recipe in tensor.recipes:
                for fill in [
                    *list_simpler_formulas(recipe)[:1],
                    *yield_simpler_elements(recipe),
                ]:
                    yield Rewrite((Refill(tensor.name, fill, run),))


def _least_plain(tensor: InputOrWeight) -> TensorSpec:
    return max((recipe for _, recipe in tensor.recipes), key=lambda r: r.complexity)


def _filled(
    names: Sequence[str], fills: Mapping[str, Sequence[Initializer]], nth: int
) -> Rewrite:
    """Give each input its nth initializer, or its last one if it has fewer."""
    chosen = ((name, fills[name][: nth + 1][-1]) for name in names)
    return Rewrite(tuple(Refill(name, fill) for name, fill in chosen))


# Compute in the usual dtypes.
#
#     x = torch.ones((4,), dtype=torch.bfloat16)     becomes     x = torch.ones((4,))
#     i = torch.zeros((4,), dtype=torch.int8)        becomes     int64
#
# All tensors of one dtype are cast at once, in statements too, because few operators
# mix dtypes.


class SimplifyDtypes:
    """Propose to cast all tensors of one dtype, then each tensor alone."""

    name = "simplify_dtypes"
    kind = Kind.DTYPES
    combines = True

    def propose(self, view: View) -> Iterator[Rewrite]:
        by_dtype: dict[str, list[str]] = defaultdict(list)
        for each in view.listing.given:
            dtype = each.recipe().dtype
            if _usual(dtype) != dtype and _is_formula(each):
                by_dtype[dtype].append(each.name)
        for dtype, names in by_dtype.items():
            casts = [Cast(name, _usual(dtype)) for name in names]
            yield Rewrite((*casts, *_words(view.listing, dtype)))
        for dtype, names in by_dtype.items():
            for name in names:
                yield Rewrite((Cast(name, _usual(dtype)),))


def _usual(dtype: str) -> str:
    """Return the usual dtype of a dtype's kind of number."""
    if dtype.startswith(("float", "bfloat", "complex")):
        return "float32"
    return "int64" if "int" in dtype else dtype


def _is_formula(tensor: InputOrWeight) -> bool:
    """Tell whether the dtype sets the elements: not if they are written out."""
    return all(
        isinstance(recipe.fill, (Counted, Seeded))
        or (
            isinstance(recipe.fill, Constant)
            and not isinstance(recipe.fill.value, complex)
        )
        for _, recipe in tensor.recipes
    )


def _words(listing: PrintedProgram, dtype: str) -> Iterator[Write]:
    """Yield changes that write the usual dtype wherever a statement names this one."""
    for block in listing.blocks:
        for line in block.statements:
            for leaf in line.leaves:
                if leaf.text == f"torch.{dtype}":
                    usual = f"torch.{_usual(dtype)}"
                    yield Write(block.name, line.name, leaf.number, usual)


# Make inputs and weights contiguous.
#
# torch.ones(32).as_strided((4, 4), (8, 1))     becomes     torch.ones((4, 4))
# torch.ones(32).as_strided((4, 4), (1, 8))     or
# torch.ones(16).as_strided((4, 4), (1, 4))


class SimplifyLayouts:
    """Propose to make each tensor contiguous; a tensor in a file keeps its layout."""

    name = "simplify_layouts"
    kind = Kind.LAYOUTS
    combines = True

    def propose(self, view: View) -> Iterator[Rewrite]:
        for tensor in view.listing.given:
            strided = [r for _, r in tensor.recipes if r.stride is not None]
            if strided and not any(isinstance(r.fill, Saved) for r in strided):
                yield Rewrite((Straighten(tensor.name),))
                packed = {r.contiguous(in_order=True).stride for r in strided}
                if None not in packed and packed != {r.stride for r in strided}:
                    yield Rewrite((Straighten(tensor.name, in_order=True),))


# Reduce sizes, everywhere at once.
#
#     x = torch.randn((2, 40))            x = torch.randn((1, 17))
#     w = torch.randn((40, 40))           w = torch.randn((17, 17))
#     view(x, [40, 2])        becomes     view(x, [17, 1])
#
# Equal numbers change together as long as that works; then those in statements, as in
# arange(975), without inputs and weights; then each one alone. The fitter adapts
# numbers in statements that follow from a size, such as a product.
#
# If no proposal is accepted, each remaining size was queried at its minimum and reduced
# by one: together with all equal sizes, and alone unless a dim is declared for it.


class MinimizeSizes:
    """Propose all sizes at their minimum, parts of them, all at 2, then single ones.

    Equal numbers in statements follow. The size at which a dynamic program fails
    changes only in proposals for that size.
    """

    name = "minimize_sizes"
    kind = Kind.SIZES
    combines = False
    """The fitter tested each proposal with everything else unchanged."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        sizes = list_size_groups(view.listing, view.types)
        free = [group for group in sizes if group.run is not Run.FAILING]
        for rewrite in lower_to_goals(view.listing, view.types, dict.fromkeys(free, 1)):
            yield replace(rewrite, partly=True)
        for part in yield_parts(free):
            yield from lower_to_goals(view.listing, view.types, dict.fromkeys(part, 1))
        yield from lower_to_goals(view.listing, view.types, dict.fromkeys(free, 2))
        for group in sizes:
            yield from _alone(group, group.least)


class ShrinkSizes:
    """Propose less for each size, for equal sizes together or alone; then for pairs."""

    name = "shrink_sizes"
    kind = Kind.SIZES
    combines = False
    """The fitter tested each proposal with everything else unchanged."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        sizes = list_size_groups(view.listing, view.types)
        for group in sizes:
            for size in smaller_sizes(group.size, group.least):
                yield from lower_to_goals(view.listing, view.types, {group: size})
        for group in sizes:
            yield from _alone(group, group.size - 1)
        for pair in smaller_size_pairs([group for group in sizes if group.places]):
            yield from lower_to_goals(view.listing, view.types, pair)


def _alone(group: SizeGroup, size: int) -> Iterator[Rewrite]:
    """Propose a size for each undeclared dim of a group, with the others unchanged."""
    yield from (Rewrite((change,)) for change in group.resize_undeclared(size))


def smaller_sizes(size: int, least: int = 1) -> Iterator[int]:
    """Yield smaller sizes in the order of trying; most failures need 1, or any size.

    Code that works in blocks fails just above a block or at whole blocks. So 17 comes
    early, and so does the block of which the size is a multiple. Then come sizes closer
    and closer to the present one. They are the same for all sizes in the neighborhood,
    so that queries of an earlier search down to 1 are not repeated.
    """
    near = [((size - 2) >> k << k) + 1 for k in range(size.bit_length(), 0, -1)]
    if 1 in (size.bit_count(), (size - 1).bit_count()):
        near = [size // 2 + 1]
    block = size & -size if size.bit_count() > 1 else size // 2
    few = [1, 2, 3, 17] if size <= _MANY or size % 3 == 0 else [1, 17]
    order = dict.fromkeys([*few, block, *near, size - 1])
    yield from (each for each in order if least <= each < size)


_MANY = 64
"""Above this size, a threshold of 2 or 3 is unlikely, and 3 may be a divisor."""


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


# Remove dims of size 1.
#
#     x = torch.ones((1, 1, 17))           x = torch.ones((17,))
#     flip(x, [2])              becomes    flip(x, [0])
#
# A reader asks for each dim why it is there. The fitter adapts statements that name
# dims.


class DropDims:
    """Propose to remove all dims that can go together, then parts, then single dims.

    Of adjacent dims of size 1, only the first is proposed, because all give the same
    result.
    """

    name = "drop_dims"
    kind = Kind.SIZES
    combines = False
    """After one dim is removed, the others have other positions."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        dims = [Squeeze(name, dim) for name, dim in needless(view.listing)]
        if dims:
            yield Rewrite(tuple(dims), partly=True)
        first = [d for d in dims if Squeeze(d.name, d.dim - 1) not in dims]
        for part in yield_parts(first):
            yield Rewrite(tuple(part))
