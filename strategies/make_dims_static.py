"""Make dynamic dims static, or give them a simpler range.

    x: (n, 8), n from 2 to 4096      becomes      x: (33, 8)
                                     or           x: (n, 8), any n

A static program has the sizes at which the dynamic one fails, and one set of inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Declare
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.listing.sizes import (
    make_dims_static,
    move_just_outside,
    names_in,
    narrow_to_used_sizes,
    use_failing_values,
)
from shrinkfx.program.view import View


class MakeDimsStatic:
    """Propose a static program, then each dim static, then no range or a small one.

    A size that fails outside of its range stays outside, just beyond the limit.
    """

    name = "make_dims_static"
    kind = Kind.SIZES
    combines = False
    """There are few proposals; and of two dims that matter together, one may become
    static."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        opened = [tensor for tensor in listing.inputs if tensor.open_dims]
        if not opened:
            return
        fills = [f for tensor in listing.inputs for f in use_failing_values(tensor)]
        yield Rewrite((*make_dims_static(opened, ""), *fills))
        for name in names_in(opened):
            yield Rewrite((*make_dims_static(opened, name),))
        plain = [Declare(dim.name, 0, None) for dim in listing.dims]
        if any(dim.low or dim.high is not None for dim in listing.dims):
            yield Rewrite((*plain,))
        for dim, change in zip(listing.dims, plain, strict=True):
            yield Rewrite((change,))
            yield from move_just_outside(listing, dim)
            yield from narrow_to_used_sizes(listing, dim)
