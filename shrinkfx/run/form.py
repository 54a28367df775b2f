"""Choose the graph form from which candidates are cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from shrinkfx.check.baseline.whole_candidate import WholeCandidate
from shrinkfx.errors import LoadError, NotCuttable
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.run.attempt import Attempt
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described, describe_program, is_eager_warning
from shrinkfx.run.subject import Subject
from shrinkfx.run.suspects import attempt

logger = logging.getLogger(__name__)


def choose_graph_form(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None = None,
) -> Subject:
    """Choose the functional form if it fails, else the form with in-place operators.

    The form with inlined ``cond`` comes first, because a ``cond`` counts as one
    operator, whatever its branches hold. Suspects are computed in the chosen form, and
    facts about the other forms are dropped.

    Args:
        in_one: the failure of the whole candidate in the functional form, if it is
            known.

    Raises:
        NotCuttable: the program fails in no form.
    """
    runs = []
    for tried in _attempts(context, program, described, in_one):
        if tried.subject is not None:
            return tried.subject
        if tried.form is not GraphForm.INLINED_COND:  # that form may pass
            runs += [verdict.observation.in_words for verdict in tried.seen]
    fails = f"the program fails ({program.target})"
    raise NotCuttable(program.target.kind, fails, runs)


def _attempts(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None,
) -> Iterator[Attempt]:
    """Try one form after the other, the form that is best to cut first."""
    yield from _attempt_inlined_cond(context, program, described)
    yield attempt(context, program, described, in_one)
    context.note("the program does not fail without in-place operators: keeping them")
    yield attempt(context, *_convert_to_form(context, program, GraphForm.IN_PLACE))


def _attempt_inlined_cond(
    context: RunContext, program: Subject, described: Described
) -> Iterator[Attempt]:
    """Try the program with each ``cond`` replaced by the branch that it takes."""
    skeleton = described.skeleton
    if all(skeleton.node(name).target != "cond" for name in skeleton.operators):
        return
    if context.budget.check_s > context.budget.share():
        return  # this form is better to cut, but the others work, too
    try:
        program, inlined = _convert_to_form(context, program, GraphForm.INLINED_COND)
    except LoadError as error:
        # A program that cannot be written without cond can still be cut with it.
        logger.debug("no form without cond: %s", error)
        return
    if inlined.skeleton.operators == skeleton.operators:
        return  # no cond was inlined, because its branch differs between runs
    tried = attempt(context, program, inlined)
    if tried.subject is not None:
        context.note(
            "the program also fails without cond: continuing with the branches that "
            "it takes"
        )
    yield tried


def _convert_to_form(
    context: RunContext, program: Subject, form: GraphForm
) -> tuple[Subject, Described]:
    """Return the program in another graph form, and the description of that form."""
    known = program.other_causes
    client = program.client.with_options(graph=form)
    client, described = describe_program(context, client, known.mismatches)
    here = described.other_causes
    retained = [text for text in known.warnings if not is_eager_warning(text)]
    warnings = [*here.warnings, *retained]
    causes = replace(here, examined=known.examined, warnings=tuple(warnings))
    candidate = Candidate.from_skeleton(described.skeleton)
    before = replace(program.before, operators=candidate.cost[0])  # counts of one form
    converted = replace(
        program, client=client, whole=candidate, before=before, other_causes=causes
    )
    return converted, described
