"""Remove dims of size 1.

    x = torch.ones((1, 1, 17))           x = torch.ones((17,))
    flip(x, [2])              becomes    flip(x, [0])

A reader asks for each dim why it is there. The fitter adapts statements that name dims.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Squeeze, needless
from shrinkfx.program.listing.parts import yield_parts
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.view import View


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
