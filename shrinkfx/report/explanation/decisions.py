"""What the compiler must decide for the failure to show: records, and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message
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
        tried: settings that were set at once.
        passes_with: settings with which it passes; without any one of them it does not.
            None of them, and nothing unknown: it fails alike with all that were tried.
        minimal: all of them were asked about, each alone in the end.
        compilations: that this took.
        missing: settings that this version of PyTorch does not have.
        fixed: settings that the interpreter makes itself.
        unknown: why nothing is known, or ''.
    """

    tried: int = 0
    passes_with: tuple[Setting, ...] = ()
    minimal: bool = False
    compilations: int = 0
    missing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class LeftOut(Message):
    """A pass or a lowering without which it passes.

    Attributes:
        number: from 0, as ``TORCH_BISECT_MAX`` counts.
        of: how many of them there are.
        name: of the pass; or what the lowered operator calls.
        node: the operator's in Inductor's graph, or ''.
        origin: what that was before it was decomposed, or ''.
        alone: it passes without this one alone.
        onwards: it passes without this one and all that come after, and fails without
            those that come after.
        only_shows: it is of another operator than the guilty ones.
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


@dataclass(frozen=True)
class Decisions(Message):
    """What the failure needs the compiler to decide.

    Attributes:
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


def lines(found: Decisions, failure: Signature) -> list[str]:
    """Say it, the plainest first."""
    told = [_of_left_out(one) for one in found.left_out if not one.only_shows]
    if found.switching is not None:
        told += _of_switching(found.switching, failure)
    return told + [_of_left_out(one) for one in found.left_out if one.only_shows]


def beside(
    found: Decisions,
    guilty: Sequence[Operator],
    left: Sequence[Operator],
    *,
    is_nobodys: bool = False,
) -> Decisions:
    """Tell lowerings of the guilty from those of others, which are needed to show it.

    Args:
        left: all operators that are left; a lowering of what is none of them may be a
            part of any.
        is_nobodys: no operator is guilty; so any lowering only shows it.
    """
    others = {operator.operator for operator in left if operator not in guilty}
    others -= {operator.operator for operator in guilty}
    left_out = []
    for one in found.left_out:
        of_another = bool(guilty) and (one.origin or one.name) in others
        left_out.append(replace(one, only_shows=is_nobodys or of_another))
    return replace(found, left_out=tuple(left_out))


def by_hand(found: Decisions, script: str = "repro.py") -> list[str]:
    """Say how to see it fail, and pass, by the variables of PyTorch's own bisector."""
    if found.interpreted:
        return []
    return [
        f"{side}: TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM={one.subsystem} "
        f"TORCH_BISECT_MAX={most} python {script}"
        for one in found.left_out
        if one.onwards
        for side, most in (("fails", one.number), ("passes", one.number - 1))
    ]


def _of_switching(found: Switching, failure: Signature) -> Iterator[str]:
    if found.unknown:
        return
    if not found.passes_with:
        yield (
            f"Fails with all of {found.tried} options of Inductor at careful values: "
            "it needs none of these decisions."
        )
        return
    names = _joined([str(setting) for setting in found.passes_with])
    what = list(dict.fromkeys(setting.what for setting in found.passes_with))
    if not found.minimal:
        yield f"Passes with {names}; not all of these may be needed."
    elif len(what) > 1:
        yield f"Passes with {names}: any one of {_joined(what)} is enough to fail."
    elif _may_be_hidden(failure):
        yield f"Passes with {names}: it shows only with {what[0]}."
    else:
        yield f"Passes with {names}: {what[0]} {_is(what[0])} at fault."


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


PARTS = {
    Subsystem.PRE_GRAD: "pre-grad pass",
    Subsystem.JOINT: "joint pass",
    Subsystem.POST_GRAD: "post-grad pass",
    Subsystem.LOWERINGS: "lowering",
}


def _of_left_out(one: LeftOut) -> str:
    name = f"{one.name} of {one.origin}" if one.origin else one.name
    which = f"{PARTS[one.subsystem]} {one.number}, {name},"
    lowers = one.subsystem is Subsystem.LOWERINGS
    if one.only_shows:
        return f"It shows only where {which} does not fall back."
    if one.alone:
        return f"Goes away when {which} {'falls back' if lowers else 'is skipped'}."
    done = "fall back" if lowers else "are skipped"
    return f"Goes away when {which} and those after it {done}; alone it does not do."


def _joined(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
