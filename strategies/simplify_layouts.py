"""Make inputs and weights contiguous.

torch.ones(32).as_strided((4, 4), (8, 1))     becomes     torch.ones((4, 4))
torch.ones(32).as_strided((4, 4), (1, 8))     or
torch.ones(16).as_strided((4, 4), (1, 4))
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Straighten
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.program.listing.tensor_specs import Saved
from shrinkfx.program.view import View


class SimplifyLayouts:
    """Propose to make each tensor contiguous; a tensor in a file keeps its layout."""

    name = "simplify_layouts"
    kind = Kind.LAYOUTS
    combines = True

    def propose(self, view: View) -> Iterator[Rewrite]:
        for tensor in view.listing.given:
            strided = [r for _, r in tensor.recipes if r.stride is not None]
            if strided and not any(isinstance(r.fill, Saved) for r in strided):
                yield Rewrite((Straighten(tensor.name),))
                packed = {r.contiguous(in_order=True).stride for r in strided}
                if None not in packed and packed != {r.stride for r in strided}:
                    yield Rewrite((Straighten(tensor.name, in_order=True),))
