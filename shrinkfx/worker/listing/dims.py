"""Dynamic dims of a printed program: sizes in each run, and other sizes to test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from shrinkfx.program.listing.changes import Change, Resize
from shrinkfx.program.listing.listing import Dim, Given, Listing, Run
from shrinkfx.program.listing.recipes import Constant, Opaque, Recipe
from shrinkfx.worker.listing.scope import compiled

Recipes = Mapping[str, Recipe]
"""Tensor specs, by the name of the input or weight."""


class Contradiction(Exception):
    """The sizes of inputs contradict the declarations of dims."""


def runs_of(listing: Listing) -> list[Run]:
    """List the runs that the program must work in, the example first."""
    own = {run for given in listing.given for run, _ in given.recipes}
    return [run for run in Run if run in own or run is Run.EXAMPLE]


def recipes_in(listing: Listing, run: Run) -> Recipes:
    return {given.name: given.recipe(run) for given in listing.given}


Outside = frozenset[tuple[Run, str]]
"""Dims that are out of their declared range in a run.

This may be why the program fails.
"""


def outside_of(listing: Listing) -> Outside:
    """Return the dims that are out of their declared range, with the run."""
    found = set()
    for run in runs_of(listing):
        sizes = sizes_in(listing, run)
        for dim in listing.dims:
            size = sizes.get(dim.name, dim.low)
            if size < dim.low or (dim.high is not None and size > dim.high):
                found.add((run, dim.name))
    return frozenset(found)


def require_declared(listing: Listing, outside: Outside = frozenset()) -> None:
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
    for given in listing.given:
        _require_static(given)
    for given, place, how, _ in _declared(listing):
        if given.recipe().shape[place] < 2:
            raise Contradiction(f"export takes the size of {how} for no dynamic one")
    if more := sorted(outside_of(listing) - outside):
        run, name = more[0]
        size = sizes_in(listing, run)[name]
        raise Contradiction(f"{name} is {size} in the {run} run")


def _require_static(given: Given) -> None:
    dynamic = dict(given.open_dims)
    shapes = set()
    for _, recipe in given.recipes:
        if isinstance(recipe.fill, Opaque):
            return
        pairs = enumerate(recipe.shape)
        shapes.add(tuple(-1 if dim in dynamic else size for dim, size in pairs))
    if len(shapes) > 1:
        raise Contradiction(f"{given.name} has other static sizes in other runs")


def sizes_in(listing: Listing, run: Run) -> dict[str, int]:
    """Compute the size of each declared dim in a run.

    Raises:
        Contradiction: a size does not fit its declaration, or two inputs imply
            different sizes of one dim.
    """
    sizes: dict[str, int] = {}
    for given, dim, how, name in _declared(listing):
        start, step = _at(how, {name: 0}), _at(how, {name: 1}) - _at(how, {name: 0})
        size = given.recipe(run).shape[dim]
        if step == 0 or (size - start) % step:
            raise Contradiction(f"{given.name} has the size {size} for {how}")
        if sizes.setdefault(name, (size - start) // step) != (size - start) // step:
            raise Contradiction(f"{name} is {sizes[name]}, and {given.name} differs")
    return sizes


def _declared(listing: Listing) -> Iterator[tuple[Given, int, str, str]]:
    """Yield the dims whose declaration reads exactly one named dim.

    Yields:
        The input, its dim, the declared expression, and the name in it.
    """
    known = {dim.name for dim in listing.dims}
    tensors = [g for g in listing.given if not isinstance(g.recipe().fill, Opaque)]
    for given in tensors:
        for dim, how in given.open_dims:
            names = set(re.findall(r"[A-Za-z_]\w*", how))
            if len(names) == 1 and names <= known:
                yield given, dim, how, names.pop()


def _at(how: str, sizes: Mapping[str, int]) -> int:
    return int(eval(compiled(how), {"__builtins__": {}}, dict(sizes)))


def followed(listing: Listing, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Add resizes of all inputs that share a named dim with a resized input.

    Raises:
        Contradiction: the named dim cannot give the new size.
    """
    asked = {(c.name, c.dim) for c in changes if isinstance(c, Resize)}
    more: list[Change] = []
    declared = list(_declared(listing))
    for change in changes:
        if not isinstance(change, Resize):
            continue
        for name in [d[3] for d in declared if _is_of(change, d)]:
            how = next(d[2] for d in declared if _is_of(change, d))
            size = _solved(how, name, change.size)
            for given, dim, other, named in declared:
                if named == name and (given.name, dim) not in asked:
                    there = _at(other, {name: size})
                    more.append(Resize(given.name, dim, there, change.run))
    return (*changes, *dict.fromkeys(more))


def _is_of(change: Resize, declared: tuple[Given, int, str, str]) -> bool:
    return (declared[0].name, declared[1]) == (change.name, change.dim)


def _solved(how: str, name: str, size: int) -> int:
    """Return the size of a named dim at which an expression has the given size."""
    start, step = _at(how, {name: 0}), _at(how, {name: 1}) - _at(how, {name: 0})
    if step == 0 or (size - start) % step:
        raise Contradiction(f"{how} cannot be {size}")
    return (size - start) // step


class Way(Enum):
    """Other sizes within the declared ranges.

    A program with the size of a dynamic dim hard-coded does not run at these sizes.
    """

    APART = "each dim larger, by its own number"
    ALIKE = "all dims larger by one"
    LEAST = "all dims as small as can be"


def elsewhere(listing: Listing, way: Way) -> Recipes:
    """Return tensor specs at other sizes of the declared ranges, with any values."""
    here = sizes_in(listing, Run.EXAMPLE)
    sizes = {}
    for place, dim in enumerate(dim for dim in listing.dims if dim.name in here):
        more = 1 + 2 * place if way is Way.APART else 1
        size = 2 if way is Way.LEAST else here[dim.name] + more
        sizes[dim.name] = _inside(dim, size)
    return _resized(listing, sizes)


def _inside(dim: Dim, size: int) -> int:
    size = max(size, dim.low)
    return size if dim.high is None else min(size, dim.high)


def _resized(listing: Listing, sizes: Mapping[str, int]) -> Recipes:
    made = dict(recipes_in(listing, Run.EXAMPLE))
    for given, dim, how, name in _declared(listing):
        size = _at(how, {name: sizes[name]})
        # Saved values cannot grow, and the values do not matter here.
        tensor = replace(made[given.name], fill=Constant(0))
        made[given.name] = tensor.resized(dim, size)
    return made
