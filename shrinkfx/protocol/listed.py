"""Answers about printed programs and rewrites of them."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.protocol.answers import Answer
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Listed(Answer):
    """A candidate as a printed program.

    Attributes:
        listing: the printed program with its exact input values; long ones are in a
            file.
        seeded: a rewrite that draws inputs and weights without simple values from a
            seed instead, with the same dtype and range.
        data: the path of that file; '' if there is none.
    """

    listing: PrintedProgram
    seeded: Rewrite
    data: str


@dataclass(frozen=True)
class Typed(Message):
    """The type of a value in a printed program, at the sizes of its example.

    Attributes:
        block: the block of the statement that returns the value, or whose argument it
            is.
    """

    block: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Fitted(Answer):
    """Which rewrites make a valid program, as far as fake tensors can show.

    Attributes:
        fits: for each requested rewrite, all changes that it needs, including the
            changes that follow from it; None if it makes no valid program.
        values: the types of the unchanged printed program's values.
        misfit: the reason why the unchanged printed program does not run with fake
            tensors, or ''. If it does not, exactly the rewrites that change no type
            fit.
    """

    fits: tuple[Rewrite | None, ...]
    values: tuple[Typed, ...]
    misfit: str = ""
