"""Caveats: other possible causes of a failure than the compiler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from shrinkfx.protocol.operators import (
    FakeMismatch,
    OperatorFinding,
    differing_properties,
)
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class OtherCauses(Message):
    """Other possible causes of a failure than the compiler.

    Attributes:
        mismatches: fake-kernel mismatches of operators in the graph form that is
            reduced.
        examined: custom operators that violate their schema or fake kernel when they
            run alone.
        warnings: caveats that concern no operator.
    """

    mismatches: tuple[FakeMismatch, ...] = ()
    examined: tuple[OperatorFinding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def short(self) -> tuple[str, ...]:
        """Operators whose output storage is smaller than declared."""
        return tuple(dict.fromkeys(m.operator for m in self.mismatches if m.is_short))

    def with_warning(self, text: str) -> Self:
        """Add a warning, unless it is ''."""
        return replace(self, warnings=(*self.warnings, text)) if text else self

    def all(self) -> tuple[str, ...]:
        """Return all caveats as text, those about operators first."""
        examined = map(format_finding, self.examined)
        return (*merge_mismatch_lines(self.mismatches), *examined, *self.warnings)

    def faulty_among(self, targets: Iterable[str]) -> frozenset[str]:
        """Return those of ``targets`` that violate their declarations."""
        return self._operators() & frozenset(targets)

    def restricted_to(self, targets: Iterable[str]) -> Self:
        """Keep the caveats about operators in ``targets``, and all other warnings."""
        remaining = frozenset(targets)
        return replace(
            self,
            mismatches=tuple(m for m in self.mismatches if m.operator in remaining),
            examined=tuple(e for e in self.examined if e.operator in remaining),
        )

    def without_operator(self, operator: str) -> Self:
        """Remove the caveats about an operator, and about the check of its result."""
        remaining = self.restricted_to(self._operators() - {operator})
        others = tuple(t for t in self.warnings if not is_about_mismatch(t, operator))
        return replace(remaining, warnings=others)

    def _operators(self) -> frozenset[str]:
        names = {mismatch.operator for mismatch in self.mismatches}
        return frozenset(names | {found.operator for found in self.examined})


def format_finding(found: OperatorFinding) -> str:
    """Return the observation of a custom operator that ran alone, as a line."""
    return f"custom operator: {found.text}"


def is_about_mismatch(warning: str, operator: str) -> bool:
    """Return whether a warning is about an operator whose result is not as declared.

    The warning states the mismatch, or quotes a check of the result in generated code.
    """
    name = re.escape(operator)
    if re.search(rf"torch\.ops\.{name}(?![\w.]*\w)", warning):
        return True
    is_mismatch = (
        warning.startswith("fake-kernel mismatch: ")
        or " has a fake kernel that " in warning
    )
    return is_mismatch and f"({operator})" in warning


def strip_advice(warning: str) -> str:
    """Remove advice on what to type next, which needs the input program."""
    return _ADVICE.sub("", warning)


_ADVICE = re.compile(r"[.;] [^.;]*: --\w.*", re.DOTALL)


def merge_mismatch_lines(mismatches: Iterable[FakeMismatch]) -> list[str]:
    """Return one line for all calls of an operator with the same mismatch.

    mix (my.mix.default) has strides [1, 5], but its fake kernel declares [5, 1]
    mix_1 (my.mix.default) has strides [1, 7], but its fake kernel declares [7, 1]
    becomes the first of these, with (2 calls, at other sizes in some)
    """
    same: dict[tuple[object, ...], list[FakeMismatch]] = {}
    for mismatch in mismatches:
        same.setdefault(_without_sizes(mismatch), []).append(mismatch)
    return [
        f"fake-kernel mismatch: {some[0].text}{_calls(some)}" for some in same.values()
    ]


def _without_sizes(one: FakeMismatch) -> tuple[object, ...]:
    what = differing_properties(one.declared, one.made)
    kinds = [(t.dtype, t.device, len(t.shape)) for t in (one.declared, one.made)]
    return one.operator, one.place, what, *kinds


def _calls(some: Sequence[FakeMismatch]) -> str:
    if len(some) == 1:
        return ""
    differ = len({mismatch.difference_text for mismatch in some}) > 1
    return f" ({len(some)} calls{', some at other sizes' if differ else ''})"
