"""The identity of a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from shrinkfx.program.words import LINE, cut, cut_apart


class Kind(StrEnum):
    """Kinds of failure, the most specific that fits."""

    IMA = "ima"
    ASSERT = "assert"
    CRASH = "crash"
    NAN = "nan"
    MISMATCH = "mismatch"
    CHECK_INPUTS = "check-inputs"
    COMPILE_ERROR = "compile-error"
    LOAD_ERROR = "load-error"
    EXCEPTION = "exception"
    HANG = "hang"
    OOM = "oom"
    CHECK = "check"
    """Not a kind to ask for: a command of the user's says that it fails."""


ANY = "any"
"""``--until any``: take whatever failure the baseline shows."""

UNTIL = (*(kind.value for kind in Kind if kind is not Kind.CHECK), ANY)

MEANING = {
    Kind.IMA: "illegal memory access, heap corruption",
    Kind.ASSERT: "index-bounds or other run-time assertion",
    Kind.CRASH: "killed by a signal, without a more specific message",
    Kind.NAN: "non-finite values where eager's values are finite",
    Kind.MISMATCH: "dtype, shape or values differ from eager",
    Kind.CHECK_INPUTS: "the compiled program checks its inputs and refuses them",
    Kind.COMPILE_ERROR: "AOTInductor or the C++ compiler raises",
    Kind.LOAD_ERROR: "the compiled package does not load",
    Kind.EXCEPTION: "any other exception at run time",
    Kind.HANG: "does not end within --timeout",
    Kind.OOM: "requests more memory than is available",
}


class Stage(StrEnum):
    """How far a check came. The worker notes each before entering it."""

    START = "start"
    REBUILD = "rebuild"
    EAGER = "eager"
    COMPILE = "compile"
    LOAD = "load"
    PASSING = "passing"
    """On the inputs on which the original passes; it must, before it may fail."""
    RUN = "run"
    COMPARE = "compare"
    DONE = "done"

    @property
    def place(self) -> str:
        """Where that is, in words."""
        passing = self is Stage.PASSING
        return "at the sizes that must pass" if passing else f"in {self.value}"


_TEXT = 2 * LINE

MEMORY = "memory fault"
"""Detail of every death by a memory fault: the same overrun shows as SIGSEGV,
SIGBUS, ``double free`` or ``malloc(): invalid size``, as the heap lies."""


@dataclass(frozen=True)
class Signature:
    """What failed, where, and how, without what drifts while a program shrinks.

    Attributes:
        detail: the normalised cause; part of the identity.
        text: what a person reads; numbers and names in it drift, so it is not.
        match: a regular expression that the text of the same failure holds.
        operators: what the faulting kernel computes, where that is known: of two
            such kernels one of the same failure shares an operator with the other.
            Its fellows in the kernel go as the program shrinks.
        beside_nan: of a wrong result: other outputs are not finite, which is another
            failure then.
        differs: of a wrong result: what of it is not eager's: its ``shape``, say.
        only: what that is in the same failure; '' where that may be anything.
    """

    kind: Kind
    stage: Stage
    detail: str = ""
    text: str = field(default="", compare=False)
    match: str = field(default="", compare=False)
    operators: tuple[str, ...] = field(default=(), compare=False)
    beside_nan: bool = field(default=False, compare=False)
    differs: str = field(default="", compare=False)
    only: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Bound what others wrote, wherever it is shown."""
        object.__setattr__(self, "text", cut(self.text, _TEXT))
        object.__setattr__(self, "detail", cut_apart(self.detail))

    @property
    def is_vague(self) -> bool:
        """Tell whether other bugs may well have the same signature: it has no text
        that is part of the identity."""
        if self.kind is Kind.CHECK:
            return False
        return self.kind is Kind.CRASH or self.detail in ("", MEMORY)

    def with_match(self, pattern: str) -> Signature:
        """Require of the same failure that its text holds a regular expression."""
        return replace(self, match=pattern)

    def differing_as(self, seen: Signature | None) -> Signature:
        """Require of the same failure that what differs is what does in another."""
        return replace(self, only=seen.differs if seen else "")

    @property
    def alone(self) -> Signature:
        """The same failure where the run that must pass is the only one."""
        if self.stage is not Stage.PASSING:
            return self
        compared = self.kind in (Kind.MISMATCH, Kind.NAN)
        return replace(self, stage=Stage.COMPARE if compared else Stage.RUN)

    def says(self, pattern: str) -> bool:
        """Tell whether the text holds a regular expression."""
        return bool(re.search(pattern, self.text))

    def admits(self, seen: Signature | None) -> bool:
        """Tell whether ``seen`` is the failure that this signature names."""
        if seen is None or not seen.says(self.match):
            return False
        if self.only and seen.differs != self.only:
            return False
        faults = [s.detail == MEMORY for s in (self, seen)]
        # What the interpreter says in more words, a device calls a memory fault.
        if all(faults) or (any(faults) and self.kind is seen.kind is Kind.IMA):
            return self.stage is seen.stage
        if self.operators and seen.operators:
            return self == seen and not set(self.operators).isdisjoint(seen.operators)
        if {self.kind, seen.kind} <= {Kind.NAN, Kind.MISMATCH}:
            drifts = self.kind is Kind.MISMATCH and not self.beside_nan
            takes = drifts or seen.kind is self.kind
            return takes and self.stage is seen.stage
        return self == seen

    def shows_in(self, seen: Signature | None) -> bool:
        """Tell whether ``seen`` is this failure, be it on the inputs that must pass.

        What else fails is by-catch: a result of another shape, too, where values were.
        """
        if seen is None:
            return False
        at_passing = seen.stage is Stage.PASSING
        return self.admits(seen.alone) and (at_passing or seen.differs == self.differs)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``asdict`` made of one."""
        named = {name: data[name] for name in ("detail", "text", "match")}
        named |= {name: data.get(name, "") for name in ("differs", "only")}
        operators = tuple(data.get("operators", ()))
        kind, stage = Kind(data["kind"]), Stage(data["stage"])
        beside_nan = bool(data.get("beside_nan"))
        return cls(kind, stage, **named, operators=operators, beside_nan=beside_nan)

    def __str__(self) -> str:
        if self.kind is Kind.CHECK:
            return f"--check {self.text}"
        return f"{self.kind} {self.stage.place}: {self.text or self.detail}"


def asked_for(until: str, seen: Signature) -> bool:
    """Tell whether ``--until`` takes this baseline failure as the target."""
    if seen.stage is Stage.PASSING:
        return False  # of all places, there it was said to pass
    if until == ANY or until == seen.kind:
        return True
    if until in (Kind.IMA, Kind.CRASH):
        return seen.detail == MEMORY
    return until == Kind.MISMATCH and seen.kind is Kind.NAN


def change_of_form(before: Signature, after: Signature) -> str:
    """Describe how a wrong result has become wrong in another way; '' if it has not."""
    if not (before.differs and after.differs) or before.differs == after.differs:
        return ""
    return (
        f"the input program has wrong {before.differs}, and the reduced program has "
        f"wrong {after.differs}"
    )


_WITH_A_MESSAGE = (
    *(Kind.ASSERT, Kind.CHECK_INPUTS, Kind.COMPILE_ERROR),
    *(Kind.LOAD_ERROR, Kind.EXCEPTION),
)


def looks_alike(asked: str, seen: str) -> bool:
    """Tell whether a user may take one kind of failure for another.

    These are errors with a message: only its stage decides which kind it is.
    """
    return asked in _WITH_A_MESSAGE and seen in _WITH_A_MESSAGE


def why_another_word(asked: str, seen: Kind) -> str:
    """Say in a sentence why what is asked for goes by another kind; '' if it does not.

    Args:
        asked: what ``--until`` said, or '' where it said nothing.
    """
    return _ANOTHER_WORD.get((asked, seen), "") if asked != seen else ""


_ANOTHER_WORD: Mapping[tuple[str, Kind], str] = {
    (Kind.IMA, Kind.CRASH): (
        "on a CPU, an illegal memory access shows as a segmentation fault (or death by "
        "another signal); shrinkfx calls this kind crash, and --until ima accepts it"
    ),
    (Kind.CRASH, Kind.IMA): (
        "the process reported an illegal memory access before it died; shrinkfx calls "
        "this kind ima, and --until crash accepts it"
    ),
    (Kind.MISMATCH, Kind.NAN): (
        "the result is not finite where eager's is; shrinkfx calls this kind nan, and "
        "--until mismatch accepts it"
    ),
}
