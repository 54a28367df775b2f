"""Dynamic dims of a printed program: sizes in each run, and other sizes to test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from shrinkfx.program.listing.changes import Change, Resize
from shrinkfx.program.listing.printed_program import (
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_specs import Constant, Opaque, TensorSpec
from shrinkfx.worker.listing.eager_statement import compile_expression

Recipes = Mapping[str, TensorSpec]
"""Tensor specs, by the name of the input or weight."""


class Contradiction(Exception):
    """The sizes of inputs contradict the declarations of dims."""


def runs_of(listing: PrintedProgram) -> list[Run]:
    """List the runs that the program must work in, the example first."""
    used = {run for entry in listing.given for run, _ in entry.recipes}
    return [run for run in Run if run in used or run is Run.EXAMPLE]


def recipes_in(listing: PrintedProgram, run: Run) -> Recipes:
    return {entry.name: entry.recipe(run) for entry in listing.given}


Outside = frozenset[tuple[Run, str]]
"""Dims that are out of their declared range in a run.

This may be why the program fails.
"""


def find_dims_out_of_range(listing: PrintedProgram) -> Outside:
    """Return the dims that are out of their declared range, with the run."""
    found = set()
    for run in runs_of(listing):
        sizes = compute_dim_sizes(listing, run)
        for dim in listing.dims:
            size = sizes.get(dim.name, dim.low)
            if size < dim.low or (dim.high is not None and size > dim.high):
                found.add((run, dim.name))
    return frozenset(found)


def require_declared(listing: PrintedProgram, outside: Outside = frozenset()) -> None:
    """Check that dims are in range in all runs, and that static sizes are equal.

    Args:
        outside: dims that were out of range before, and may stay so.

    Raises:
        Contradiction: a dim is out of range, static sizes differ between runs, or
            export would refuse a declaration.
    """
    for dim in listing.dims:
        if dim.high is not None and not dim.low < dim.high:  # export refuses others
            raise Contradiction(f"{dim.name} has the range {dim.low} to {dim.high}")
    for entry in listing.given:
        _require_static(entry)
    for entry, place, expr, _ in _declared(listing):
        if entry.recipe().shape[place] < 2:
            raise Contradiction(f"export takes the size of {expr} for no dynamic one")
    if more := sorted(find_dims_out_of_range(listing) - outside):
        run, name = more[0]
        size = compute_dim_sizes(listing, run)[name]
        raise Contradiction(f"{name} is {size} in the {run} run")


def _require_static(entry: InputOrWeight) -> None:
    dynamic = dict(entry.open_dims)
    shapes = set()
    for _, recipe in entry.recipes:
        if isinstance(recipe.fill, Opaque):
            return
        pairs = enumerate(recipe.shape)
        shapes.add(tuple(-1 if dim in dynamic else size for dim, size in pairs))
    if len(shapes) > 1:
        raise Contradiction(f"{entry.name} has other static sizes in other runs")


def compute_dim_sizes(listing: PrintedProgram, run: Run) -> dict[str, int]:
    """Compute the size of each declared dim in a run.

    Raises:
        Contradiction: a size does not fit its declaration, or two inputs imply
            different sizes of one dim.
    """
    sizes: dict[str, int] = {}
    for entry, dim, expr, name in _declared(listing):
        start, step = _at(expr, {name: 0}), _at(expr, {name: 1}) - _at(expr, {name: 0})
        size = entry.recipe(run).shape[dim]
        if step == 0 or (size - start) % step:
            raise Contradiction(f"{entry.name} has the size {size} for {expr}")
        if sizes.setdefault(name, (size - start) // step) != (size - start) // step:
            raise Contradiction(f"{name} is {sizes[name]}, and {entry.name} differs")
    return sizes


def _declared(listing: PrintedProgram) -> Iterator[tuple[InputOrWeight, int, str, str]]:
    """Yield the dims whose declaration reads exactly one named dim.

    Yields:
        The input, its dim, the declared expression, and the name in it.
    """
    known = {dim.name for dim in listing.dims}
    tensors = [g for g in listing.given if not isinstance(g.recipe().fill, Opaque)]
    for entry in tensors:
        for dim, expr in entry.open_dims:
            names = set(re.findall(r"[A-Za-z_]\w*", expr))
            if len(names) == 1 and names <= known:
                yield entry, dim, expr, names.pop()


def _at(expr: str, sizes: Mapping[str, int]) -> int:
    return int(eval(compile_expression(expr), {"__builtins__": {}}, dict(sizes)))


def propagate_resizes(
    listing: PrintedProgram, changes: Sequence[Change]
) -> tuple[Change, ...]:
    """Add resizes of all inputs that share a named dim with a resized input.

    Raises:
        Contradiction: the named dim cannot give the new size.
    """
    requested = {(c.name, c.dim) for c in changes if isinstance(c, Resize)}
    more: list[Change] = []
    declared = list(_declared(listing))
    for change in changes:
        if not isinstance(change, Resize):
            continue
        for name in [d[3] for d in declared if _is_of(change, d)]:
            expr = next(d[2] for d in declared if _is_of(change, d))
            size = _solved(expr, name, change.size)
            for entry, dim, other, named in declared:
                if named == name and (entry.name, dim) not in requested:
                    implied = _at(other, {name: size})
                    more.append(Resize(entry.name, dim, implied, change.run))
    return (*changes, *dict.fromkeys(more))


def _is_of(change: Resize, declared: tuple[InputOrWeight, int, str, str]) -> bool:
    return (declared[0].name, declared[1]) == (change.name, change.dim)


def _solved(expr: str, name: str, size: int) -> int:
    """Return the size of a named dim at which an expression has the given size."""
    start, step = _at(expr, {name: 0}), _at(expr, {name: 1}) - _at(expr, {name: 0})
    if step == 0 or (size - start) % step:
        raise Contradiction(f"{expr} cannot be {size}")
    return (size - start) // step


class OtherSizes(Enum):
    """Other sizes within the declared ranges.

    A program with the size of a dynamic dim hard-coded does not run at these sizes.
    """

    DISTINCT = "each dim larger, by its own number"
    ALIKE = "all dims larger by one"
    LEAST = "all dims as small as can be"


def make_specs_at_other_sizes(listing: PrintedProgram, kind: OtherSizes) -> Recipes:
    """Return tensor specs at other sizes of the declared ranges, with any values."""
    sizes_now = compute_dim_sizes(listing, Run.EXAMPLE)
    sizes = {}
    for place, dim in enumerate(dim for dim in listing.dims if dim.name in sizes_now):
        more = 1 + 2 * place if kind is OtherSizes.DISTINCT else 1
        size = 2 if kind is OtherSizes.LEAST else sizes_now[dim.name] + more
        sizes[dim.name] = _inside(dim, size)
    return _resize_specs(listing, sizes)


def _inside(dim: Dim, size: int) -> int:
    size = max(size, dim.low)
    return size if dim.high is None else min(size, dim.high)


def _resize_specs(listing: PrintedProgram, sizes: Mapping[str, int]) -> Recipes:
    specs = dict(recipes_in(listing, Run.EXAMPLE))
    for entry, dim, expr, name in _declared(listing):
        size = _at(expr, {name: sizes[name]})
        # Saved values cannot grow, and the values do not matter here.
        spec = replace(specs[entry.name], fill=Constant(0))
        specs[entry.name] = spec.resized(dim, size)
    return specs
