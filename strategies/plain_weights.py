"""Have weights be inputs, and plain: a program of gigabytes becomes one of lines.

    self.w = Parameter(data["w"])        becomes    w = torch.ones((4, 4))
    add(self.w, self.v)                  becomes    add(self.w, self.w)

An input takes a line less than a weight. What has to be a weight may still be a
constant, or the same as another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Convert, Refill, Write
from shrinkfx.program.listing.fills import plainer_fills
from shrinkfx.program.listing.listing import Given, Listing
from shrinkfx.program.listing.recipes import Opaque, Recipe
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class PlainWeights:
    """Propose for each weight a plain input, then a plain weight, then less."""

    name = "plain_weights"
    kind = Kind.WEIGHTS
    combines = True

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        tensors = {w.name: w.recipe() for w in listing.weights if _is_tensor(w)}
        fills = {name: plainer_fills(recipe) for name, recipe in tensors.items()}
        for name, found in fills.items():
            plain = (Refill(name, fill) for fill in found[:1])
            yield Rewrite((Convert(name, "input"), *plain))
        for name, found in fills.items():
            for fill in found[:1]:
                yield Rewrite((Refill(name, fill),))
        for other, name in pairwise(tensors):
            if _are_alike(tensors[other], tensors[name]):
                yield Rewrite((*_shared(listing, name, other),))
        for name in tensors:
            yield Rewrite((Convert(name, "input"),))
        for name, found in fills.items():
            for fill in found[1:]:
                yield Rewrite((Refill(name, fill),))


def _is_tensor(weight: Given) -> bool:
    return not isinstance(weight.recipe().fill, Opaque)


def _are_alike(one: Recipe, other: Recipe) -> bool:
    """Tell whether an operator that takes one would take the other."""
    return replace(one, fill=other.fill) == other


def _shared(listing: Listing, name: str, other: str) -> Iterator[Write]:
    """Yield what reads another weight in the place of one."""
    for line in listing.main.statements:
        for leaf in line.leaves:
            if leaf.text == listing.find(name).spelling:
                spelling = listing.find(other).spelling
                yield Write(listing.main.name, line.name, leaf.number, spelling)
