"""What a child says of a candidate as statements, and of rewrites of these."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.listing import Listing
from shrinkfx.protocol.answers import Answer
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Listed(Answer):
    """A candidate as statements.

    Attributes:
        listing: with the very values that it is given; long ones lie in a file.
        seeded: what draws values from a seed instead, of inputs and weights that have
            no plain ones; of the same dtype and range.
        data: that file; '' where there is none.
    """

    listing: Listing
    seeded: Rewrite
    data: str


@dataclass(frozen=True)
class Typed(Message):
    """What a value of a listing is, at the sizes of its example.

    Attributes:
        block: of the statement that yields it, or whose argument it is.
    """

    block: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Fitted(Answer):
    """Which rewrites make a valid program, as far as fake tensors tell.

    Attributes:
        fits: for each rewrite that was asked about all changes that it takes, those
            included that follow from it; None where it makes no valid program.
        values: what the values of the listing are as it is.
        misfit: why fake tensors do not run it as it is, or ''. Then what changes no
            type fits, and nothing else.
    """

    fits: tuple[Rewrite | None, ...]
    values: tuple[Typed, ...]
    misfit: str = ""
