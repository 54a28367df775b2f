"""A pass or lowering that is skipped by its bisection number, and its commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class SkippedPart(Message):
    """A pass or lowering without which the program passes.

    Attributes:
        number: from 0, as ``TORCH_BISECT_MAX`` counts.
        of: the total number of passes or lowerings of the subsystem.
        name: the name of the pass, or the target of the lowered operator.
        node: the operator's name in Inductor's graph, or ''.
        origin: the operator that it was decomposed from, or ''.
        alone: the program passes if only this one is skipped.
        onwards: the program passes without this one and all later ones, and fails
            without the later ones only.
        only_shows: the error is elsewhere: in another operator, in one of the user's,
            or in no operator.
    """

    subsystem: Subsystem
    number: int
    of: int
    name: str
    node: str = ""
    origin: str = ""
    alone: bool = False
    onwards: bool = False
    only_shows: bool = False


PARTS = {
    Subsystem.PRE_GRAD: "pre-grad pass",
    Subsystem.JOINT: "joint pass",
    Subsystem.POST_GRAD: "post-grad pass",
    Subsystem.LOWERINGS: "lowering",
}


def format_skipped(one: SkippedPart) -> str:
    """State what was skipped, and what the failure therefore needs."""
    name = f"{one.name}, from {one.origin}" if one.origin else one.name
    part, lowers = PARTS[one.subsystem], one.subsystem is Subsystem.LOWERINGS
    which = f"{part} {one.number} ({name})"
    if one.alone:
        gone = f"{which} {FALLS_BACK if lowers else 'is skipped'}"
    else:
        all_parts = f"all {counted(one.of, part)}"
        those = f"{which} and all after it" if one.number else all_parts
        gone = f"{those} {FALL_BACK if lowers else 'are skipped'}"
        gone += f" ({which} alone is not enough)"
    takes = _needed_effect(one, lowers=lowers)
    if one.only_shows:
        return (
            f"The failure does not show when {gone}: it needs {takes} to show, but "
            "that is not its cause."
        )
    return f"The failure disappears when {gone}: it needs {takes}."


FALLS_BACK, FALL_BACK = (
    "falls back to the eager kernel",
    "fall back to the eager kernels",
)


def _needed_effect(one: SkippedPart, *, lowers: bool) -> str:
    """Name the code or change that is missing if ``one`` is skipped."""
    if lowers:
        which = "it" if one.alone else "some of these"
        return f"the code that Inductor generates for {which}"
    which = "this pass makes" if one.alone else "some of these passes make"
    return f"the change that {which} to the graph"


@dataclass(frozen=True)
class BisectorCommand:
    """A shell command, and what the compiler and the script do under it."""

    does: str
    command: str

    def __str__(self) -> str:
        return f"{self.does}: {self.command}"


def bisector_commands(
    left_out: Sequence[SkippedPart], script: str
) -> list[BisectorCommand]:
    """Return commands that show failure and success with PyTorch's bisector."""
    return [
        BisectorCommand(
            f"{side} {_left_in(one, most)}",
            f"TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM={one.subsystem} "
            f"TORCH_BISECT_MAX={most} python {script}",
        )
        for one in left_out
        if one.onwards
        for side, most in (("fails", one.number), ("passes", one.number - 1))
    ]


def _left_in(one: SkippedPart, most: int) -> str:
    """Describe what Inductor does if the numbers above ``most`` are skipped."""
    part, lowers = PARTS[one.subsystem], one.subsystem is Subsystem.LOWERINGS
    out = "run by the eager kernels" if lowers else "skipped"
    all_parts = f"all {counted(one.of, part)}" if one.of > 1 else f"the one {part}"
    if most < 0:
        return f"with {all_parts} {out}"
    if most >= one.of - 1:
        return f"with {all_parts}"
    remaining = f"{part} 0" if most == 0 else f"{_plural(part)} 0 to {most}"
    return f"with {remaining}, and later ones {out}"


def counted(number: int, what: str) -> str:
    """Return a number and a noun, in the plural if needed."""
    return f"1 {what}" if number == 1 else f"{number} {_plural(what)}"


def _plural(what: str) -> str:
    return f"{what}{'es' if what.endswith('s') else 's'}"
