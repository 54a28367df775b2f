"""What else than the compiler may be the cause of a failure, in lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class OtherCauses:
    """What else than the compiler may be the cause of a failure.

    Attributes:
        mismatches: operators whose results are not what their fake kernels say, in the
            form of the program that is cut.
        short: what is called of these whose results end before they are declared to.
        examined: custom operators that do what their schemas and fake kernels do not
            say, seen in a run of their own.
        warnings: of anything but an operator.
    """

    mismatches: tuple[str, ...] = ()
    examined: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def with_warning(self, text: str) -> Self:
        """Add a warning, unless it is ''."""
        return replace(self, warnings=(*self.warnings, text)) if text else self

    def of_operators(self) -> tuple[str, ...]:
        """List those that are about an operator; of several calls, what they share."""
        lying = (f"lying operator: {told}" for told in in_one(self.mismatches))
        return (*lying, *self.examined)

    def all(self) -> tuple[str, ...]:
        """List all, those about an operator first."""
        return (*self.of_operators(), *self.warnings)

    def wrong_among(self, targets: Iterable[str]) -> frozenset[str]:
        """Name those of some operators that are not what they declare."""
        told = self.of_operators()
        return frozenset(t for t in targets if any(f"({t})" in text for text in told))

    def left_in(self, targets: Sequence[str]) -> tuple[str, ...]:
        """List those that concern a program which calls no more than ``targets``."""
        wrong = self.wrong_among(targets)
        told = self.of_operators()
        left = (text for text in told if any(f"({t})" in text for t in wrong))
        return (*left, *self.warnings)


def without_advice(warning: str) -> str:
    """Leave out what to type next: that is for whoever has the original."""
    return _ADVICE.sub("", warning)


_ADVICE = re.compile(r"[.;] [^.;]*: --\w.*", re.DOTALL)

_LIE = re.compile(r"\S+ (?P<result>\(\S+\)\S*) (?P<said>.*)", re.DOTALL)
"""A node, what it calls, which of the results is meant, and what is otherwise in it."""

_SIZES = re.compile(r"\[[\d, ]*\]|\d+")


def in_one(lies: Sequence[str]) -> list[str]:
    """Tell in a line what several calls of an operator have in common.

    mix (my.mix.default) has strides [1, 5], its metadata says [5, 1]
    mix_1 (my.mix.default) has strides [1, 7], its metadata says [7, 1]
    becomes the first of these, with (2 calls, at other sizes in some)
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for lie in lies:
        result, said = _told(lie)
        alike.setdefault((result, _SIZES.sub("", said)), []).append(lie)
    return [some[0] + _calls(some) for some in alike.values()]


def _told(lie: str) -> tuple[str, str]:
    found = _LIE.fullmatch(lie)
    return (found["result"], found["said"]) if found else (lie, "")


def _calls(some: Sequence[str]) -> str:
    if len(some) == 1:
        return ""
    others = ", at other sizes in some" if len(set(map(_told, some))) > 1 else ""
    return f" ({len(some)} calls{others})"
