"""Make the sizes of large inputs smaller together, by bisection.

    x = torch.randn((4096, 1000))       becomes       x = torch.randn((256, 264))

Each check of a program with large inputs costs much, so this comes before all else that
makes a program plainer. Each size stays the same modulo the width of a tile, which many
failures depend on. It proposes nothing for a program that is given little: the other
strategies for sizes find the smallest ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.listing import Run
from shrinkfx.program.listing.sizes import changed_to, sizes_of, together
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class BisectSizes:
    """Propose all sizes at their least, then powers of two, the smallest first."""

    name = "bisect_sizes"
    kind = Kind.SIZES
    combines = False

    def propose(self, view: View) -> Iterator[Rewrite]:
        if view.listing.nbytes <= _LARGE:
            return
        sizes = sizes_of(view.listing, view.types)
        free = [group for group in sizes if group.run is not Run.FAILING]
        for goals in [dict.fromkeys(free, 1), *together(free)]:
            yield from changed_to(view.listing, view.types, goals)


_LARGE = 1 << 20
"""Bytes of inputs and weights."""
