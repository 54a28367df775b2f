"""Specialize dynamic sizes as far as the failure allows.

    x: (batch, length)      becomes        x: (1, length), length from 32 to 33
    x: (2*s0 + 1, 8)        becomes        x: (s1, 8)

For programs that fail at some sizes and pass at others.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Specialise
from shrinkfx.program.view import View


class SpecializeDims:
    """Propose for each dynamic size the specializations that it may have."""

    name = "specialize_dims"
    combines = False
    """There are few proposals; and of two dims that matter together, one may become
    static."""

    def propose(self, view: View) -> Iterator[Specialise]:
        for size, sizings in view.specialisations.items():
            for how in sizings:
                yield Specialise(size, how)
