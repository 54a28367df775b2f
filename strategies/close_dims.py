"""Have dims be static, or of no more range than need be.

    x: (n, 8), n from 2 to 4096      becomes      x: (33, 8)
                                     or           x: (n, 8), any n

A static program has the size at which the dynamic one fails, and one input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Declare, Fix, Refill, Resize
from shrinkfx.program.listing.listing import Dim, Given, Listing, Run
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class CloseDims:
    """Propose a static program, then each dim static, then ranges: none, or small."""

    name = "close_dims"
    kind = Kind.SIZES
    combines = False
    """There are few; and of two that matter together one may become static."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        opened = [given for given in listing.inputs if given.open_dims]
        if not opened:
            return
        fills = [f for given in listing.inputs for f in _as_it_fails(given)]
        yield Rewrite((*_closed(opened, ""), *fills))
        for name in _names(opened):
            yield Rewrite((*_closed(opened, name),))
        plain = [Declare(dim.name, 0, None) for dim in listing.dims]
        if any(dim.low or dim.high is not None for dim in listing.dims):
            yield Rewrite((*plain,))
        for dim, change in zip(listing.dims, plain, strict=True):
            yield Rewrite((change,))
            if ends := _ends(listing, dim):
                yield Rewrite((Declare(dim.name, dim.low, ends[1]),))
                yield Rewrite((Declare(dim.name, *ends),))


def _names(opened: Iterable[Given]) -> list[str]:
    """List what dims are declared by."""
    told = (how for given in opened for _, how in given.open_dims)
    return [*dict.fromkeys(word for how in told for word in _words(how))]


def _words(how: str) -> list[str]:
    return re.findall(r"[A-Za-z_][\w.]*", how.partition("(")[0])


def _closed(opened: Iterable[Given], name: str) -> Iterator[Change]:
    """Yield what makes dims that are declared by a name static, or all for ''."""
    for given in opened:
        fails = given.recipe(Run.FAILING).shape
        for dim, how in given.open_dims:
            if not name or name in _words(how):
                yield Fix(given.name, dim)
                for run, recipe in given.recipes:
                    if recipe.shape[dim] != fails[dim]:
                        yield Resize(given.name, dim, fails[dim], run)


def _as_it_fails(given: Given) -> Iterator[Change]:
    """Yield what gives an input the values that it fails with in all runs."""
    if len(given.recipes) > 1:
        yield Refill(given.name, given.recipe(Run.FAILING).fill)


def _ends(listing: Listing, dim: Dim) -> tuple[int, int] | None:
    """Find the smallest and the greatest size in use."""
    used = [
        recipe.shape[place]
        for given in listing.inputs
        for place, how in given.open_dims
        if how == dim.name
        for _, recipe in given.recipes
    ]
    return (min(used), max(used)) if used else None
