"""Rewrites of dynamic dims: static, with a small range, or just outside a range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Declare, Fix, Refill, Resize
from shrinkfx.program.listing.printed_program import (
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.sizes import SizeGroup, sizes_in

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
