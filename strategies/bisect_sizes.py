"""Reduce the sizes of large inputs together, by bisection.

    x = torch.randn((4096, 1000))       becomes       x = torch.randn((256, 264))

Checks of programs with large inputs are slow, so this strategy runs before the others
for printed programs. Each size keeps its remainder modulo the width of a tile, because
many failures depend on it. Programs with at most 1 MiB of inputs and weights are left
to shrink_sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import Kind, Run
from shrinkfx.program.listing.sizes import (
    bisected_sizes,
    list_size_groups,
    lower_to_goals,
)
from shrinkfx.program.view import View


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
