"""Test whether a program fails because of bugs that are known from earlier runs.

The answer is causal, not textual: the operators of the known bug, cut out of the
program, fail as the program does, and the program passes without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.errors import BudgetExhausted, InvalidEdit
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.reduction import oracle_for
from shrinkfx.search.asker import Asker


@dataclass(frozen=True)
class KnownPart:
    """The part of a program's failure that is known.

    Attributes:
        bugs: the known bugs because of which the program fails.
        rest: the program without their operators, if it fails as the program does; None
            if it passes.
    """

    bugs: tuple[KnownBug, ...]
    rest: Subject | None


def find_known_bugs(program: Subject) -> KnownPart:
    """Find the known bugs because of which a program fails."""
    context = program.context
    asker = Asker(
        oracle_for(program),
        budget=context.budget,
        journal=context.journal,
        form=CandidateForm.PROGRAM,
        build=program.build,
    )
    found: list[KnownBug] = []
    try:
        for bug in _read_known_bugs(context, context.options.known):
            match _without(program, bug, asker):
                case Outcome.PASSED, _:
                    return KnownPart((*found, bug), None)
                case Outcome.REPRODUCED, Candidate() as rest:
                    found.append(bug)
                    program = replace(program, whole=rest)
                    context.note(f"{bug} is known; without its operators, {_REST}")
    except BudgetExhausted as error:
        context.note(f"not every known bug was tested: {error}")
    return KnownPart(tuple(found), program)


_REST = "the program fails in the same way: reducing what remains"


def _read_known_bugs(context: RunContext, folders: Sequence[str]) -> Iterator[KnownBug]:
    for folder in find_bug_folders(map(Path, folders)):
        try:
            yield KnownBug.read(folder)
        except (OSError, ValueError) as error:
            context.note(f"--known: {folder} is skipped: {error}")


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
