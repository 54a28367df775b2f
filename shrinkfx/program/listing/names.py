"""Names in a listing: which are known where, and short ones at the very end.

    add_13 = torch.ops.aten.add.Tensor(arg7_1, self.p_a_0_b)    becomes
    add = torch.ops.aten.add.Tensor(x, self.weight)
"""

from __future__ import annotations

import builtins

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.listing import Listing

_BUILT_IN = frozenset(dir(builtins))


def require_defined(listing: Listing) -> None:
    """Have each statement read only what stands before it.

    Raises:
        InvalidEdit: one does not.
    """
    weights = {given.spelling for given in listing.weights}
    for block in listing.blocks:
        known = {*block.arguments, *(f"self.{name}" for name, _ in block.members)}
        known |= weights if block is listing.main else set()
        for statement in block.statements:
            if unknown := sorted(statement.reads - known - _BUILT_IN):
                raise InvalidEdit(f"nothing before {statement.name} is {unknown[0]}")
            known.add(statement.name)
