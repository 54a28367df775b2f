"""Find the pass or lowering that the failure needs, by bisecting over their numbers.

This follows PyTorch's ``CompilerBisector``, but with checks as its runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.variants import Variants
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.decisions import (
    PARTS,
    Decisions,
    SkippedPart,
    UnneededSubsystem,
    counted,
)
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut
from shrinkfx.system import scratch

PASSES = (Subsystem.PRE_GRAD, Subsystem.JOINT, Subsystem.POST_GRAD)

_FEW = 8
"""Number of applications before the last needed one that are skipped one at a time."""

_MANY = 32
"""The same number if the program fails differently without all applications."""


def needed_applications(
    *variants: Variants, parts: Collection[Subsystem] = tuple(Subsystem)
) -> Decisions:
    """Find the passes and lowerings without which the program passes.

    Args:
        variants: variants of the compilation; the first one that fails is used.
        parts: the parts of the compiler to test.
    """
    skipped: list[SkippedPart] = []
    not_needed: list[UnneededSubsystem] = []
    unknown: list[str] = []
    with scratch.make_scratch_folder("applications") as folder:
        path = Path(folder) / "applications.jsonl"
        try:
            tests = [_ApplicationTests(w, path, unknown, not_needed) for w in variants]
            for one in _all(tests, parts):
                skipped.append(one)  # stays valid if time runs out later
        except BudgetExhausted as error:
            unknown.append(str(error))
    return Decisions(
        left_out=tuple(skipped), unknown=tuple(unknown), not_needed=tuple(not_needed)
    )


def _all(
    variants: Sequence[_ApplicationTests], parts: Collection[Subsystem]
) -> Iterator[SkippedPart]:
    fails = (variant for variant in variants if variant.ask(()) is Outcome.REPRODUCED)
    tests = next(fails, None)
    if tests is None:
        variants[0].unknown.append("the source form does not fail in every run")
        return
    applications = tests.applications()
    for subsystem in tests.that_may_matter(applications):
        if subsystem in parts:
            yield from _bisect_subsystem(tests, subsystem, applications[subsystem])


@dataclass
class _ApplicationTests:
    """Tests the reduced program without some applications, once or twice.

    Attributes:
        path: the file that lists the applications.
        unknown: questions without an answer.
        not_needed: parts of the compiler that the failure does not need at all.
    """

    variants: Variants
    path: Path
    unknown: list[str]
    not_needed: list[UnneededSubsystem]
    _known: dict[LeaveOut, list[Outcome]] = field(default_factory=dict)
    _required: set[LeaveOut] = field(default_factory=set)

    def ask(
        self,
        subsystems: tuple[Subsystem, ...],
        first: int = 0,
        last: int | None = None,
        *,
        times: int = 1,
    ) -> Outcome:
        """Test a variant until it has ``times`` outcomes; UNRESOLVED if they differ."""
        query = LeaveOut(str(self.path), subsystems, first, last)
        answers = self._known.setdefault(query, [])
        while len(answers) < times:
            variants = self.variants.with_stock_build() if answers else self.variants
            answers.append(variants.ask(leave_out=query))
            if variants.stopped[-1] and answers[-1] is Outcome.DIFFERENT:
                self._required.add(query)
        return answers[0] if len(set(answers)) == 1 else Outcome.UNRESOLVED

    def is_not_needed(self, subsystem: tuple[Subsystem, ...], number: int) -> bool:
        """Return whether it fails without one, or cannot be compiled without it."""
        query = LeaveOut(str(self.path), subsystem, number, number)
        return query in self._required or set(self._known.get(query, [])) == {
            Outcome.REPRODUCED
        }

    def known_to(
        self, outcome: Outcome, subsystems: tuple[Subsystem, ...], first: int
    ) -> bool:
        """Return whether a variant was tested, with this outcome."""
        query = LeaveOut(str(self.path), subsystems, first)
        return self._known.get(query, [])[:1] == [outcome]

    def applications(self) -> dict[Subsystem, list[Application]]:
        """Return the applications in the last compilation, by subsystem."""
        found: dict[Subsystem, list[Application]] = defaultdict(list)
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                application = Application.from_line(line)
                found[application.subsystem].append(application)
        return found

    def that_may_matter(
        self, applications: dict[Subsystem, list[Application]]
    ) -> list[Subsystem]:
        """Return the subsystems to test; without passes if the failure needs none."""
        present = [part for part in Subsystem if applications[part]]
        passes = tuple(part for part in present if part in PASSES)
        if len(passes) > 1 and self.ask(passes) is Outcome.REPRODUCED:
            self.not_needed += [
                UnneededSubsystem(part, len(applications[part])) for part in passes
            ]
            return [part for part in present if part not in passes]
        return present


def _bisect_subsystem(
    tests: _ApplicationTests,
    subsystem: Subsystem,
    applications: Sequence[Application],
) -> Iterator[SkippedPart]:
    """Yield the applications in one subsystem that the failure needs."""
    outcome = tests.ask((subsystem,))
    match outcome:
        case Outcome.REPRODUCED:
            tests.not_needed.append(UnneededSubsystem(subsystem, len(applications)))
            return
        case Outcome.PASSED:
            last = _last_needed(tests, subsystem, len(applications))
            # Later applications are not needed; some earlier ones may be.
            to_try = range(last, max(-1, last - _FEW), -1)
        case _:
            to_try = range(min(len(applications), _MANY))
    skipped = [_test_application(tests, applications, number) for number in to_try]
    yield from filter(None, skipped)
    none_is_needed = len(to_try) == len(applications) and all(
        tests.is_not_needed((subsystem,), number) for number in to_try
    )
    if not any(skipped) and not none_is_needed:
        count, part = len(applications), PARTS[subsystem]
        effect = "passes" if outcome is Outcome.PASSED else "does not fail so"
        alone = f"without one of them it does not pass each time ({len(to_try)} tried)"
        tests.unknown.append(
            f"without any of the {counted(count, part)} it {effect}, and {alone}"
            if count > 1
            else f"without the one {part} it {effect}, and does not pass each time"
        )


def _last_needed(tests: _ApplicationTests, subsystem: Subsystem, count: int) -> int:
    """Return the last application that the failure needs, by bisection."""
    passes, fails = -1, count - 1
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if tests.ask((subsystem,), middle + 1) is Outcome.REPRODUCED:
            fails = middle
        else:
            passes = middle
    return fails


def _test_application(
    tests: _ApplicationTests, applications: Sequence[Application], number: int
) -> SkippedPart | None:
    """Return the facts about an application that hold in two tests, or None."""
    one = applications[number]
    subsystem = (one.subsystem,)
    alone = tests.ask(subsystem, number, number) is Outcome.PASSED
    alone = alone and tests.ask(subsystem, number, number, times=2) is Outcome.PASSED
    onwards = _is_boundary(tests, subsystem, number, len(applications))
    if not alone and not onwards:
        return None
    place = one.subsystem, number, len(applications)
    about = one.name, one.node, one.origin
    return SkippedPart(*place, *about, alone=alone, onwards=onwards)


def _is_boundary(
    tests: _ApplicationTests,
    subsystem: tuple[Subsystem, ...],
    number: int,
    count: int,
) -> bool:
    """Return whether it fails with the applications up to this one, not before it."""
    is_last = number == count - 1  # no later applications to skip
    after = ((), 0) if is_last else (subsystem, number + 1)
    return (
        tests.known_to(Outcome.REPRODUCED, *after)
        and tests.known_to(Outcome.PASSED, subsystem, number)
        and tests.ask(subsystem, number, times=2) is Outcome.PASSED
        and tests.ask(*after, times=2) is Outcome.REPRODUCED
    )
