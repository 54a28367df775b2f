"""Test whether a program fails because of bugs that are known from earlier runs.

The answer is causal, not textual: the operators of the known bug, cut out of the
program, fail as the program does, and the program passes without them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from shrinkfx.errors import BudgetExhausted, InvalidEdit
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.run.context import Subject
from shrinkfx.run.folder import record_known_failure
from shrinkfx.run.reduction import oracle_for
from shrinkfx.search.asker import Asker


@dataclass(frozen=True)
class Unknown:
    """What known bugs do not explain of a program's failure.

    Attributes:
        program: the program without the operators of the known bugs that it has.
        bugs: these bugs.
        notes: lines for the user.
    """

    program: Subject
    bugs: tuple[KnownBug, ...] = ()
    notes: tuple[str, ...] = ()

    def without(self, bug: KnownBug, rest: Candidate) -> Self:
        note = f"{bug} is known; without its operators, {_REST}"
        program = replace(self.program, whole=rest)
        return replace(
            self, program=program, bugs=(*self.bugs, bug), notes=(*self.notes, note)
        )


_REST = "the program fails in the same way: reducing what remains"


def leave_out_known_bugs(program: Subject) -> Unknown:
    """Leave out the operators of known bugs, as long as the program fails without them.

    A second call for the same program is answered by the journal.

    Raises:
        KnownFailure: the program passes without them.
    """
    context = program.context
    asker = Asker(
        oracle_for(program),
        budget=context.budget,
        journal=context.journal,
        form=CandidateForm.PROGRAM,
        build=program.build,
    )
    found = Unknown(program)
    for folder in find_bug_folders(map(Path, context.options.known)):
        try:
            bug = KnownBug.read(folder)
            match _without(found.program, bug, asker):
                case Outcome.PASSED, _:
                    raise record_known_failure(context, (*found.bugs, bug))
                case Outcome.REPRODUCED, Candidate() as rest:
                    found = found.without(bug, rest)
        except (OSError, ValueError) as error:
            text = f"--known: {folder} is skipped: {error}"
            found = replace(found, notes=(*found.notes, text))
        except BudgetExhausted as error:
            text = f"not every known bug was tested: {error}"
            return replace(found, notes=(*found.notes, text))
    return found


def _without(
    program: Subject, bug: KnownBug, asker: Asker
) -> tuple[Outcome, Candidate | None]:
    """Return the outcome of a program without the operators of a bug, and that program.

    The outcome is INVALID if these operators alone do not fail as the program does.
    """
    whole = program.whole
    found = bug.pattern.find_in(whole) if bug.may_be(program.target) else frozenset()
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
