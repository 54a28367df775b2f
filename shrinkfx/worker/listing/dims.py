"""Dynamic dims of a listing: what they are in a run, and where else it must run."""

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
"""By name of an input or weight."""


class Contradiction(Exception):
    """Sizes are not what is declared of them."""


def runs_of(listing: Listing) -> list[Run]:
    """List the runs that the program must take: the example first."""
    own = {run for given in listing.given for run, _ in given.recipes}
    return [run for run in Run if run in own or run is Run.EXAMPLE]


def recipes_in(listing: Listing, run: Run) -> Recipes:
    return {given.name: given.recipe(run) for given in listing.given}


Outside = frozenset[tuple[Run, str]]
"""Dims that are outside of their ranges in a run: what fails may be just that."""


def outside_of(listing: Listing) -> Outside:
    """List the dims that are outside of what is declared of them, by run."""
    found = set()
    for run in runs_of(listing):
        sizes = sizes_in(listing, run)
        for dim in listing.dims:
            size = sizes.get(dim.name, dim.low)
            if size < dim.low or (dim.high is not None and size > dim.high):
                found.add((run, dim.name))
    return frozenset(found)


def require_declared(listing: Listing, outside: Outside = frozenset()) -> None:
    """See that each dim is in its range in all runs, and a static one the same.

    Args:
        outside: what was outside before, and may stay so.

    Raises:
        Contradiction: one is not.
    """
    for dim in listing.dims:
        if dim.high is not None and not dim.low < dim.high:  # export takes no other
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
    """Work out what each declared dim is.

    Raises:
        Contradiction: two sizes say different things of one.
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
    """Go through the dims that are declared by the name of one."""
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
    """Add to changes the sizes of all that share a dim with what they resize.

    Raises:
        Contradiction: the new size is none that its dim can have.
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
    start, step = _at(how, {name: 0}), _at(how, {name: 1}) - _at(how, {name: 0})
    if step == 0 or (size - start) % step:
        raise Contradiction(f"{how} cannot be {size}")
    return (size - start) // step


class Way(Enum):
    """Another point of the declared ranges.

    A program that has a dynamic dim's size written into it does not run there.
    """

    APART = "each dim larger, by its own number"
    ALIKE = "all dims larger by one"
    LEAST = "all dims as small as can be"


def elsewhere(listing: Listing, way: Way) -> Recipes:
    """Make recipes at other sizes of the declared ranges, of whatever values."""
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
        # No more is saved of its values than there are.
        tensor = replace(made[given.name], fill=Constant(0))
        made[given.name] = tensor.resized(dim, size)
    return made
