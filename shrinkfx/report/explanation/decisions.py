"""What the compiler must decide for the failure to show: records, and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.by_number import (
    PARTS,
    ByHand,
    LeftOut,
    commands,
    counted,
    goes_away,
)
from shrinkfx.report.explanation.operators import Operator


@dataclass(frozen=True)
class Setting(Message):
    """A setting of Inductor that takes a decision of its away.

    Attributes:
        what: is done without it.
    """

    option: str
    value: bool | int | str
    what: str

    def __str__(self) -> str:
        return f"{self.option}={self.value}"


@dataclass(frozen=True)
class Switching(Message):
    """What was found by settings of Inductor.

    Attributes:
        tried: how many settings were made at once; ``settings`` are these.
        passes_with: settings with which it passes; without any one of them it does not.
            None of them, and nothing unknown: it fails alike with all that were tried.
        minimal: all of them were asked about, each alone in the end.
        compilations: that this took.
        missing: settings that this version of PyTorch does not have.
        fixed: settings that the interpreter makes itself.
        unknown: why nothing is known, or ''.
        only_shows: what these settings turn off is not at fault: an operator of the
            user's is, or how compiled code has worked out a size.
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
class NotNeeded(Message):
    """A part of the compiler that the failure does not need.

    Attributes:
        of: how many passes or lowerings it has; it fails alike without all of them.
    """

    subsystem: Subsystem
    of: int


@dataclass(frozen=True)
class Decisions(Message):
    """What the failure needs the compiler to decide.

    Attributes:
        not_needed: the parts of the compiler without any of which it fails alike.
        interpreted: its kernels ran on the interpreter: numbers may be others where
            AOTInductor compiles it.
        compilations: that finding it out took.
        unknown: what could not be told, and why.
    """

    switching: Switching | None = None
    left_out: tuple[LeftOut, ...] = ()
    interpreted: bool = False
    compilations: int = 0
    unknown: tuple[str, ...] = ()
    not_needed: tuple[NotNeeded, ...] = ()


def lines(found: Decisions, failure: Signature) -> list[str]:
    """Say what it goes away with, the plainest first, and then what it does not."""
    return [*avoiding(found, failure), *_beside_the_point(found)]


def avoiding(found: Decisions, failure: Signature) -> list[str]:
    """Say what the failure goes away with, and is of what is at fault."""
    told = [goes_away(one) for one in found.left_out if not one.only_shows]
    if found.switching is not None:
        told += _of_switching(found.switching, failure)
    return told


def _beside_the_point(found: Decisions) -> Iterator[str]:
    """Say what only hides the failure, and what was tried in vain."""
    yield from (goes_away(one) for one in found.left_out if one.only_shows)
    in_vain = []
    if found.not_needed:
        parts = [counted(part.of, PARTS[part.subsystem]) for part in found.not_needed]
        in_vain.append(f"without {_joined(parts)}")
    switching = found.switching
    if (
        switching
        and switching.tried
        and not (switching.passes_with or switching.unknown)
    ):
        in_vain.append(
            f"with {counted(switching.tried, 'Inductor option')} at conservative "
            "values (all at once)"
        )
    if in_vain:
        yield f"The failure is the same {_joined(in_vain)}."


def beside(
    found: Decisions,
    guilty: Sequence[Operator],
    left: Sequence[Operator],
    *,
    is_nobodys: bool = False,
) -> Decisions:
    """Tell decisions about the guilty from others, which are needed to show it.

    Args:
        left: all operators that are left; a lowering of what is none of them may be a
            part of any.
        is_nobodys: no operator is guilty; so any decision only shows it, as it does
            what an operator of the user's does.
    """
    others = {operator.operator for operator in left if operator not in guilty}
    others -= {operator.operator for operator in guilty}
    is_users = bool(guilty) and all(operator.is_custom for operator in guilty)
    not_compilers = is_nobodys or is_users
    left_out = []
    for one in found.left_out:
        of_another = bool(guilty) and (one.origin or one.name) in others
        left_out.append(replace(one, only_shows=not_compilers or of_another))
    if (switching := found.switching) is not None:
        switching = replace(switching, only_shows=not_compilers)
    return replace(found, left_out=tuple(left_out), switching=switching)


def by_hand(found: Decisions, script: str = "repro.py") -> list[ByHand]:
    """Say how to see it fail, and pass; not of what the interpreter runs."""
    return [] if found.interpreted else commands(found.left_out, script)


def _of_switching(found: Switching, failure: Signature) -> Iterator[str]:
    if found.unknown or not found.passes_with:
        return
    names = _joined([str(setting) for setting in found.passes_with])
    what = list(dict.fromkeys(setting.what for setting in found.passes_with))
    if not found.minimal:
        yield f"The program passes with {names}; some of these may not be needed."
    elif len(what) > 1:
        yield (
            f"The program passes with {names}: each of {_joined(what)} alone is enough "
            "to fail."
        )
    elif found.only_shows or _may_be_hidden(failure):
        yield f"The program passes with {names}: the failure needs {what[0]} to show."
    else:
        yield f"The program passes with {names}: {what[0]} {_is(what[0])} at fault."


def _may_be_hidden(failure: Signature) -> bool:
    """Tell whether what goes away with a decision need not be wrong with it.

    What lies beside a buffer decides whether a stray access shows; and what cannot be
    compiled may be right, and what should compile it at fault.
    """
    in_memory = failure.kind is Kind.IMA or failure.detail == MEMORY
    return in_memory or failure.stage is Stage.COMPILE


_OBJECT = re.compile(r" (?:of|that|taken|known|left|in|into|on|packed|as) .*| ahead")


def _is(what: str) -> str:
    return "are" if _OBJECT.sub("", what).endswith("s") else "is"


def _joined(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
