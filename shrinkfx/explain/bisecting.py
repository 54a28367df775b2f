"""Without which pass or lowering the minimum passes, found by its number.

As PyTorch's ``CompilerBisector`` does it; its runs are ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.explain.variants import Variants
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut
from shrinkfx.report.explanation.decisions import LeftOut

_PASSES = (Subsystem.PRE_GRAD, Subsystem.JOINT, Subsystem.POST_GRAD)

_FEW = 8
"""Applications that are left out one by one, where none at all is another failure."""


def needed_applications(variants: Variants) -> tuple[tuple[LeftOut, ...], str]:
    """Find the passes and lowerings without which it passes.

    Returns:
        Them, and why nothing is known if so.

    Raises:
        BudgetExhausted: minutes are short.
    """
    with scratch.folder("applications") as folder:
        numbers = _Numbers(variants, Path(folder) / "applications.jsonl")
        if numbers.ask(()) is not Outcome.REPRODUCED:
            return (), "it does not fail in each run of what is counted"
        applications = numbers.applications()
        found = [
            one
            for subsystem in numbers.that_may_matter(applications)
            if (one := _in(numbers, subsystem, applications[subsystem]))
        ]
    return tuple(found), ""


@dataclass
class _Numbers:
    """Asks what the minimum does without some applications; twice where told to."""

    variants: Variants
    path: Path
    _known: dict[LeaveOut, list[Outcome]] = field(default_factory=dict)

    def ask(
        self,
        subsystems: tuple[Subsystem, ...],
        first: int = 0,
        last: int | None = None,
        *,
        times: int = 1,
    ) -> Outcome:
        """Ask so many times in all; UNRESOLVED where the answers differ."""
        asked = LeaveOut(str(self.path), subsystems, first, last)
        answers = self._known.setdefault(asked, [])
        while len(answers) < times:
            variants = self.variants.built_stock() if answers else self.variants
            answers.append(variants.ask(leave_out=asked))
        return answers[0] if len(set(answers)) == 1 else Outcome.UNRESOLVED

    def applications(self) -> dict[Subsystem, list[Application]]:
        """List what there was to apply in the last compilation."""
        found: dict[Subsystem, list[Application]] = defaultdict(list)
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                told = Application.from_line(line)
                found[told.subsystem].append(told)
        return found

    def that_may_matter(
        self, applications: dict[Subsystem, list[Application]]
    ) -> list[Subsystem]:
        """Leave out what was not applied, and all passes if it fails without any."""
        there = [part for part in Subsystem if applications[part]]
        passes = tuple(part for part in there if part in _PASSES)
        if len(passes) > 1 and self.ask(passes) is Outcome.REPRODUCED:
            return [part for part in there if part not in passes]
        return there


def _in(
    numbers: _Numbers, subsystem: Subsystem, applications: Sequence[Application]
) -> LeftOut | None:
    """Find the one application of a part of the compiler that the failure needs."""
    match numbers.ask((subsystem,)):
        case Outcome.REPRODUCED:
            return None
        case Outcome.PASSED:
            number = _last_needed(numbers, subsystem, len(applications))
            return _told(numbers, applications, number)
    for application in applications[:_FEW]:
        told = _told(numbers, applications, application.number)
        if told is not None:
            return told
    return None


def _last_needed(numbers: _Numbers, subsystem: Subsystem, count: int) -> int:
    """Find a number up to which it fails, and without which it does not."""
    passes, fails = -1, count - 1
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if numbers.ask((subsystem,), middle + 1) is Outcome.REPRODUCED:
            fails = middle
        else:
            passes = middle
    return fails


def _told(
    numbers: _Numbers, applications: Sequence[Application], number: int
) -> LeftOut | None:
    """Say what holds of an application, each asked twice; None if nothing does."""
    one = applications[number]
    subsystem = (one.subsystem,)
    alone = numbers.ask(subsystem, number, number) is Outcome.PASSED
    alone = alone and numbers.ask(subsystem, number, number, times=2) is Outcome.PASSED
    onwards = numbers.ask(subsystem, number) is Outcome.PASSED and _differ_twice(
        numbers, subsystem, number, len(applications)
    )
    if not alone and not onwards:
        return None
    about = one.name, one.node, one.origin
    return LeftOut(
        *(one.subsystem, number, len(applications), *about),
        alone=alone,
        onwards=onwards,
    )


def _differ_twice(
    numbers: _Numbers, subsystem: tuple[Subsystem, ...], number: int, count: int
) -> bool:
    """Tell whether the two sides are what they seem to be a second time."""
    passes = numbers.ask(subsystem, number, times=2) is Outcome.PASSED
    last = number == count - 1  # nothing is left out then
    failing = numbers.ask(() if last else subsystem, 0 if last else number + 1, times=2)
    return passes and failing is Outcome.REPRODUCED
