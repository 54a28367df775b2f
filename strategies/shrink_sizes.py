"""Reduce sizes, everywhere at once.

    x = torch.randn((2, 40))            x = torch.randn((1, 17))
    w = torch.randn((40, 40))           w = torch.randn((17, 17))
    view(x, [40, 2])        becomes     view(x, [17, 1])

Equal numbers change together as long as that works; then those in statements, as in
arange(975), without inputs and weights; then each one alone. The fitter adapts numbers
in statements that follow from a size, such as a product.

If no proposal is accepted, each remaining size was queried at its minimum and reduced
by one: together with all equal sizes, and alone unless a dim is declared for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.parts import yield_parts
from shrinkfx.program.listing.printed_program import Kind, Run
from shrinkfx.program.listing.sizes import (
    SizeGroup,
    list_size_groups,
    lower_to_goals,
    smaller_size_pairs,
    smaller_sizes,
)
from shrinkfx.program.view import View


class ShrinkSizes:
    """Propose all sizes at their minimum, then parts, single ones, less; then pairs.

    Equal numbers in statements follow. The size at which a dynamic program fails
    changes only in proposals for that size.
    """

    name = "shrink_sizes"
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
