"""The form of a program that candidates are cut from."""

from __future__ import annotations

import logging
from dataclasses import replace

from shrinkfx.check.baseline.stock import describe
from shrinkfx.errors import LoadError, NotCuttable
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.run.context import Job
from shrinkfx.run.describing import Described, describe_program
from shrinkfx.run.subject import Subject
from shrinkfx.run.suspects import with_suspects

logger = logging.getLogger(__name__)


def in_a_form_that_fails(job: Job, subject: Subject, described: Described) -> Subject:
    """Choose the functional form, or else that with in-place operators.

    Without ``cond`` if it fails so: what a branch holds is one operator else. The form
    is what is searched, so the suspects are looked for in it.
    """
    known = list(job.lies), list(job.warnings)
    if found := _without_conds(job, subject, described):
        job.note("it fails without cond too: going on with the branches that it takes")
        return found
    job.lies[:], job.warnings[:] = known  # not what was said of that form
    seen: list[Verdict] = []
    if found := with_suspects(job, subject, described, seen):
        return found
    job.note("without in-place operators it does not fail so: keeping those")
    in_place = _in_form(job, subject, GraphForm.IN_PLACE)
    if found := with_suspects(job, *in_place, seen):
        return found
    fails = f"the program fails ({subject.target})"
    runs = [describe(v.observation) for v in seen]
    raise NotCuttable(subject.target.kind, fails, runs)


def _without_conds(job: Job, subject: Subject, described: Described) -> Subject | None:
    """Ask about the program with branches that it takes in the place of ``cond``."""
    program = described.skeleton
    if all(program.node(name).target != "cond" for name in program.operators):
        return None
    if job.budget.check_s > job.budget.share():
        return None  # it would be better to cut, and can be cut without that
    try:
        subject, opened = _in_form(job, subject, GraphForm.INLINED_COND)
    except LoadError as error:
        # What cannot be written without cond can still be cut with it.
        logger.debug("no form without cond: %s", error)
        return None
    if opened.skeleton.operators == program.operators:
        return None  # its branches differ from run to run
    return with_suspects(job, subject, opened, [])


def _in_form(job: Job, subject: Subject, form: GraphForm) -> tuple[Subject, Described]:
    """Take another form of the program."""
    compiler = subject.compiler.with_options(graph=form)
    compiler, described = describe_program(job, compiler)
    whole = Candidate.whole(described.skeleton)
    return replace(subject, compiler=compiler, whole=whole), described
