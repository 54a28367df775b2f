"""Leave no more open of a program's sizes than the failure needs.

    x: (batch, length)      becomes        x: (1, length), length from 32 to 33
    x: (2*s0 + 1, 8)        becomes        x: (s1, 8)

For programs that were found to fail at some sizes and to pass at others.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Specialise
from shrinkfx.program.view import View


class SpecialiseDims:
    """Propose for each open size what it may be settled as."""

    name = "specialise_dims"
    combines = False
    """There are few; and of two dims that matter together one may become static."""

    def propose(self, view: View) -> Iterator[Specialise]:
        for size, sizings in view.specialisations.items():
            for how in sizings:
                yield Specialise(size, how)
