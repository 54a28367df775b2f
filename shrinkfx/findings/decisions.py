"""The compiler decisions that the failure needs: records, sentences and commands.

A pass or lowering is skipped by its bisection number, an optimization by an option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.operators import Operator
from shrinkfx.program.display_text import join_words
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
        gone += f", but not when only {which} {'does' if lowers else 'is'}"
    takes = _needed_effect(one, lowers=lowers)
    if one.only_shows:
        return (
            f"The failure does not show when {gone}. It is exposed, but not caused, by "
            f"{takes}."
        )
    return f"The failure disappears when {gone}: the failure needs {takes}."


FALLS_BACK = "falls back to the eager kernel"
FALL_BACK = "fall back to the eager kernels"


def _needed_effect(one: SkippedPart, *, lowers: bool) -> str:
    """Name the code or change that is missing if ``one`` is skipped."""
    if lowers:
        which = "this operator" if one.alone else "some of these operators"
        return f"Inductor's code for {which}"
    which = "this pass makes" if one.alone else "some of these passes make"
    return f"the change that {which} to the graph"


@dataclass(frozen=True)
class BisectorCommand:
    """A shell command, and what the compiler and the script do under it."""

    does: str
    command: str

    def __str__(self) -> str:
        return f"{self.does}: {self.command}"


def by_hand(found: Decisions, script: str = "repro.py") -> list[BisectorCommand]:
    """Return commands that show failure and success with PyTorch's bisector.

    There are none for interpreted kernels.
    """
    return [
        BisectorCommand(
            f"{side} {_left_in(one, most)}",
            f"TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM={one.subsystem} "
            f"TORCH_BISECT_MAX={most} python {script}",
        )
        for one in found.left_out
        if one.onwards and not found.interpreted
        for side, most in (("fails", one.number), ("passes", one.number - 1))
    ]


def _left_in(one: SkippedPart, most: int) -> str:
    """Describe what Inductor does if the numbers above ``most`` are skipped."""
    part, lowers = PARTS[one.subsystem], one.subsystem is Subsystem.LOWERINGS
    out = "replaced by eager kernels" if lowers else "skipped"
    all_parts = f"all {counted(one.of, part)}" if one.of > 1 else f"the one {part}"
    if most < 0:
        return f"with {all_parts} {out}"
    if most >= one.of - 1:
        return f"with {all_parts}"
    remaining = f"{part} 0" if most == 0 else f"{_plural(part)} 0 to {most}"
    return f"with only {remaining}; the later ones are {out}"


def counted(number: int, what: str) -> str:
    """Return a number and a noun, in the plural if needed."""
    return f"1 {what}" if number == 1 else f"{number} {_plural(what)}"


def _plural(what: str) -> str:
    return f"{what}{'es' if what.endswith('s') else 's'}"


@dataclass(frozen=True)
class Setting(Message):
    """An option of Inductor that disables one of its decisions.

    Attributes:
        what: the optimization that the setting disables.
    """

    option: str
    value: bool | int | str
    what: str

    def __str__(self) -> str:
        return f"{self.option}={self.value}"


@dataclass(frozen=True)
class OptionSearch(Message):
    """The result of a test with options of Inductor.

    Attributes:
        tried: how many options were set at once; ``settings`` lists them.
        passes_with: the settings with which the program passes. Empty, with ``unknown``
            empty too, means that it fails in the same way with all of them.
        minimal: the program fails without any one of ``passes_with``.
        compilations: the number of compilations of the test.
        missing: options that this version of PyTorch does not have.
        fixed: options that the interpreter sets itself.
        unknown: why there is no result, or ''.
        only_shows: the disabled optimizations are not at fault, but an operator of the
            user's.
    """

    tried: int = 0
    passes_with: tuple[Setting, ...] = ()
    minimal: bool = False
    compilations: int = 0
    missing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    unknown: str = ""
    settings: tuple[Setting, ...] = ()
    only_shows: bool = False


@dataclass(frozen=True)
class UnneededSubsystem(Message):
    """A subsystem of the compiler that the failure does not need.

    Attributes:
        of: the number of its passes or lowerings; the program fails in the same way
            without all of them.
    """

    subsystem: Subsystem
    of: int


@dataclass(frozen=True)
class Decisions(Message):
    """The compiler decisions that the failure needs.

    Attributes:
        left_out: passes and lowerings without which the program passes.
        not_needed: the subsystems without which the program fails in the same way.
        interpreted: the kernels ran on Triton's interpreter; bisection numbers may
            differ where AOTInductor compiles the program.
        compilations: the number of compilations of the analysis.
        unknown: what could not be determined, and why.
    """

    switching: OptionSearch | None = None
    left_out: tuple[SkippedPart, ...] = ()
    interpreted: bool = False
    compilations: int = 0
    unknown: tuple[str, ...] = ()
    not_needed: tuple[UnneededSubsystem, ...] = ()


def format_decisions(found: Decisions, failure: Signature) -> list[str]:
    """Return sentences on what avoids the failure, then on what does not."""
    return [*format_avoiding(found, failure), *_format_irrelevant(found)]


def format_avoiding(decisions: Decisions, failure: Signature) -> list[str]:
    """Return sentences on decisions that avoid the failure and may be at fault."""
    texts = [format_skipped(one) for one in decisions.left_out if not one.only_shows]
    if decisions.switching is not None:
        texts += _of_switching(decisions.switching, failure)
    return texts


def _format_irrelevant(found: Decisions) -> Iterator[str]:
    """Yield sentences on decisions that only hide the failure or do not matter."""
    yield from (format_skipped(one) for one in found.left_out if one.only_shows)
    in_vain = []
    if found.not_needed:
        parts = [counted(part.of, PARTS[part.subsystem]) for part in found.not_needed]
        in_vain.append(f"without {join_words(parts)}")
    tried = found.switching
    if tried and tried.tried and not (tried.passes_with or tried.unknown):
        options = counted(tried.tried, "Inductor option")
        in_vain.append(f"with {options} at conservative values, all at once")
    yield from (f"The failure is the same {what}." for what in in_vain)


def mark_only_shows(
    decisions: Decisions,
    culprits: Sequence[Operator],
    all_ops: Sequence[Operator],
) -> Decisions:
    """Mark the decisions that the failure only needs to show, as others are at fault.

    Args:
        culprits: the culprit operators.
        all_ops: all operators of the reduced program. A lowering of an operator that is
            not among them may belong to any of them.
    """
    others = {operator.operator for operator in all_ops if operator not in culprits}
    others -= {operator.operator for operator in culprits}
    is_users = bool(culprits) and all(operator.is_custom for operator in culprits)
    left_out = []
    for one in decisions.left_out:
        of_another = bool(culprits) and (one.origin or one.name) in others
        left_out.append(replace(one, only_shows=is_users or of_another))
    if (switching := decisions.switching) is not None:
        switching = replace(switching, only_shows=is_users)
    return replace(decisions, left_out=tuple(left_out), switching=switching)


def _of_switching(found: OptionSearch, failure: Signature) -> Iterator[str]:
    if found.unknown or not found.passes_with:
        return
    names = join_words([str(setting) for setting in found.passes_with])
    what = list(dict.fromkeys(setting.what for setting in found.passes_with))
    if not found.minimal:
        yield f"The program passes with {names}; some of these may not be needed."
    elif len(what) > 1:
        yield (
            f"The program passes with {names}: each of {join_words(what)} is enough to "
            "make it fail."
        )
    elif found.only_shows or _may_be_hidden(failure):
        yield f"The program passes with {names}: the failure shows only with {what[0]}."
    else:
        yield f"The program passes with {names}: {what[0]} {_is(what[0])} at fault."


def _may_be_hidden(failure: Signature) -> bool:
    """Return whether a decision that avoids the failure may still be correct.

    The memory next to a buffer decides whether an out-of-bounds access shows. And code
    that cannot be compiled may be correct, with the fault in its compiler.
    """
    in_memory = failure.kind is Kind.IMA or failure.detail == MEMORY_FAULT
    return in_memory or failure.stage is Stage.COMPILE


_OBJECT = re.compile(
    r" (?:of|that|between|taken|known|left|in|into|on|packed|as) .*| ahead"
)


def _is(what: str) -> str:
    return "are" if _OBJECT.sub("", what).endswith("s") else "is"
