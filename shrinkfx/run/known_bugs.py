"""Test whether a program fails because of bugs that are known from earlier runs.

The answer is causal, not textual: the operators of the known bug, cut out of the
program, fail as the program does, and the program passes without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from weakref import WeakKeyDictionary

from shrinkfx.errors import BudgetExhausted, InvalidEdit
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import record_known_failure
from shrinkfx.run.reduction import oracle_for
from shrinkfx.search.asker import Asker


@dataclass(frozen=True)
class Unknown:
    """The part of a failing program that no known bug explains.

    Attributes:
        whole: the program after the operators of ``bugs`` were removed.
        bugs: the known bugs that the program has.
        notes: lines for the user.
    """

    whole: Candidate
    bugs: tuple[KnownBug, ...] = ()
    notes: tuple[str, ...] = ()

    def with_note(self, text: str) -> Self:
        return replace(self, notes=(*self.notes, text))

    def without(self, bug: KnownBug, rest: Candidate) -> Self:
        known = replace(self, whole=rest, bugs=(*self.bugs, bug))
        return known.with_note(f"the program has the known bug {bug}; {_REST}")


_REST = (
    "it still fails without that bug's operators, so shrinkfx reduces the rest of it"
)

_ANSWERS: WeakKeyDictionary[RunContext, dict[str, Unknown]] = WeakKeyDictionary()
"""What is known of the programs of a run, by their digests."""


def leave_out_known_bugs(program: Subject) -> Unknown:
    """Leave out the operators of known bugs, as long as the program fails without them.

    A second call for the same program runs no check.

    Raises:
        KnownFailure: the program passes without them.
    """
    context, whole = program.context, program.whole
    if not context.options.known:
        return Unknown(whole)
    answers = _ANSWERS.setdefault(context, {})
    if whole.digest not in answers:
        answers[whole.digest] = _test_known_bugs(program)
    return answers[whole.digest]


def _test_known_bugs(program: Subject) -> Unknown:
    context, target = program.context, program.target
    asker = Asker(
        oracle_for(program),
        budget=context.budget,
        journal=context.journal,
        form=CandidateForm.PROGRAM,
        build=program.build,
    )
    found = Unknown(program.whole)
    for folder in _folders_to_test(context):
        try:
            bug = KnownBug.read(folder)
        except (OSError, ValueError) as error:
            found = found.with_note(f"--known: {folder} is skipped: {error}")
            continue
        if not bug.may_be(target):
            continue
        try:
            match _without(found.whole, bug, asker):
                case Outcome.PASSED, _:
                    raise record_known_failure(context, (*found.bugs, bug))
                case Outcome.REPRODUCED, Candidate() as rest:
                    found = found.without(bug, rest)
        except BudgetExhausted as error:
            return found.with_note(f"not every known bug was tested: {error}")
    return found


_FACT = "folders of known bugs"


def _folders_to_test(context: RunContext) -> list[Path]:
    """Return the folders with known bugs, the same ones in each session of the run."""

    def list_folders() -> list[str]:
        found = find_bug_folders(map(Path, context.options.known))
        own = context.out.resolve()
        return [str(each) for each in found if each.resolve() != own]

    return [*map(Path, context.journal.get_or_compute(_FACT, list_folders))]


def _without(
    whole: Candidate, bug: KnownBug, asker: Asker
) -> tuple[Outcome, Candidate | None]:
    """Return the outcome of a program without the operators of a bug, and that program.

    The outcome is INVALID if these operators alone do not fail as the program does.
    """
    found = bug.pattern.find_in(whole)
    others = frozenset(whole.operators) - found
    try:
        if found and others:
            rest = apply(whole, [Drop(found)])
            if asker.ask("known", apply(whole, [Drop(others)])).reproduced:
                return asker.ask("known", rest).outcome, rest
        elif found:
            return Outcome.PASSED, None
    except InvalidEdit:
        pass  # one of the two is no program
    return Outcome.INVALID, None
