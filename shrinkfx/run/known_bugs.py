"""Test whether a program fails because of bugs that are known from earlier runs.

The answer is causal, not textual: the operators of the known bug, cut out of the
program, fail as the program does. If the program passes without them, it has no other
bug; if it still fails, in a way that the options accept, the rest of it is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from weakref import WeakKeyDictionary

from shrinkfx.errors import BudgetExhausted, InvalidEdit
from shrinkfx.failure.signature import Signature, Stage, is_until_target
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.decisions import counted
from shrinkfx.findings.known_bugs import KnownBug, find_bug_folders
from shrinkfx.options.options import Options
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
        target: how it fails.
        bugs: the known bugs that the program has.
        notes: lines for the user.
    """

    whole: Candidate
    target: Signature
    bugs: tuple[KnownBug, ...] = ()
    notes: tuple[str, ...] = ()

    def with_note(self, text: str) -> Self:
        return replace(self, notes=(*self.notes, text))

    def without(self, bug: KnownBug, rest: Candidate, failure: Signature) -> Self:
        """Return what remains without a bug: a program that also fails."""
        how, target = "in the same way", self.target
        if not target.admits(failure):
            how, target = f"in another way ({failure})", failure
        bugs = *self.bugs, bug
        known = replace(self, whole=rest, target=target, bugs=bugs)
        return known.with_note(_REST.format(bug, how))

    def in_program(self, program: Subject) -> Subject:
        """Return this part of the program, to be reduced."""
        program = replace(program, whole=self.whole)
        if program.target.admits(self.target):
            return program
        seen = replace(program, target=self.target, rate=1.0, suspects=())
        return seen.with_options(sought=self.target.kind, only=None)


_REST = (
    "the program has the known bug {}; without that bug's operators it still fails "
    "{}, so shrinkfx reduces the rest of it"
)

_ANSWERS: WeakKeyDictionary[RunContext, dict[str, Unknown]] = WeakKeyDictionary()
"""What is known of the programs of a run, by their digests."""


def leave_out_known_bugs(program: Subject) -> Unknown:
    """Leave out the operators of known bugs, as long as the program fails without them.

    A second call for the same program runs no check.

    Raises:
        KnownFailure: the program passes without them, or fails in a way that the
            options do not accept.
    """
    context, whole = program.context, program.whole
    if not context.options.known:
        return Unknown(whole, program.target)
    answers = _ANSWERS.setdefault(context, {})
    if whole.digest not in answers:
        answers[whole.digest] = _test_known_bugs(program)
    return answers[whole.digest]


def _test_known_bugs(program: Subject) -> Unknown:
    context = program.context
    found = Unknown(program.whole, program.target)
    bugs: list[KnownBug] = []
    for folder in _folders_to_test(context):
        try:
            bugs.append(KnownBug.read(folder))
        except (OSError, ValueError) as error:
            found = found.with_note(f"--known: {folder} is skipped: {error}")
    waiting = [*bugs]
    while waiting:
        bug = waiting.pop(0)
        if not bug.may_be(found.target):
            continue
        try:
            rest = _run_without(bug, found, program)
        except BudgetExhausted as error:
            return found.with_note(f"not every known bug was tested: {error}")
        if rest is None:
            continue
        candidate, failure = rest
        if failure is None or not _is_requested(failure, found.target, context.options):
            raise record_known_failure(context, (*found.bugs, bug))
        before, found = found, found.without(bug, candidate, failure)
        if not before.target.admits(found.target):
            waiting = [each for each in bugs if each not in found.bugs]
    return found


def _is_requested(failure: Signature, target: Signature, options: Options) -> bool:
    """Return whether to reduce the rest of a program.

    Args:
        failure: how the rest fails.
        target: how the program failed before.
    """
    if target.admits(failure):
        return True
    if options.match or options.check or failure.stage is Stage.PASSING:
        return False
    alike = failure.kind is target.kind
    return alike or not options.until or is_until_target(options.until, failure)


_FACT = "folders of known bugs"


def _folders_to_test(context: RunContext) -> list[Path]:
    """Return the folders with known bugs, the same ones in each session of the run."""

    def list_folders() -> list[str]:
        found = find_bug_folders(map(Path, context.options.known))
        own = context.out.resolve()
        return [str(each) for each in found if each.resolve() != own]

    return [*map(Path, context.journal.get_or_compute(_FACT, list_folders))]


def _run_without(
    bug: KnownBug, unknown: Unknown, program: Subject
) -> tuple[Candidate, Signature | None] | None:
    """Run a part of a program without the operators of a bug.

    Returns:
        That part without the operators, and its failure, None if it passes. If the
        operators alone do not fail as the part does, or the check of the rest has no
        verdict, None instead of both.
    """
    whole = unknown.whole
    found = bug.pattern.find_in(whole)
    others = frozenset(whole.operators) - found
    if not found:
        return None
    if not others:
        return whole, None
    program = unknown.in_program(program)
    whole_run = program.with_options(only=None)  # the rest may fail in a later step
    try:
        rest = apply(whole, [Drop(found)])
        alone = apply(whole, [Drop(others)])
        if not _make_asker(program, unknown.bugs).ask("known", alone).reproduced:
            return None
    except InvalidEdit:
        return None  # one of the two is no program
    verdict = _make_asker(whole_run, unknown.bugs).ask("known", rest)
    if verdict.outcome in (Outcome.UNRESOLVED, Outcome.INVALID):
        return None
    return rest, verdict.observation.signature


def _make_asker(program: Subject, without: Sequence[KnownBug]) -> Asker:
    """Return a query cache.

    The journal distinguishes its verdicts by the target, which depends on the bugs that
    were left out, and by the tested step.
    """
    step = program.client.options.only or "all steps"
    return Asker(
        oracle_for(program),
        budget=program.context.budget,
        journal=program.context.journal,
        form=CandidateForm.PROGRAM,
        build=f"{program.build}, {step}, without {counted(len(without), 'known bug')}",
    )
