"""After the operators: what is left is made smaller and plainer, as people read it.

operators -> a listing of them, with values from a seed if it fails so -> the strategies
for listings -> the smallest listing that fails, which is verified like another result

What can be told without a compiler is: fake tensors say which rewrites make a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.listing import FakeTensors, list_candidate
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.signature import Stage
from shrinkfx.journal.ahead import Ahead
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.claims import (
    KEPT,
    MINIMAL,
    OPERATORS,
    PLAINEST,
    not_asked,
)
from shrinkfx.program.listing.listing import Listing
from shrinkfx.program.listing.order import in_order_of_use
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.namespaces import PYTORCHS
from shrinkfx.program.words import first_line
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.listed import Listed
from shrinkfx.protocol.operators import What
from shrinkfx.run.context import RunContext
from shrinkfx.run.judging import confirm_plainly, fails_plainly
from shrinkfx.run.oracles import asking_ahead, oracle_for
from shrinkfx.run.reduction import SearchResult, measure_result, stopping
from shrinkfx.run.same_cause import restore_cause
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import Rewriter, choose
from shrinkfx.search.unstaged import Unstaged

VALUES = "given.pt"
"""In the output folder: values that a listing has by their keys alone."""

_MOST = 60
"""Checks that this may take, those included that it begins with."""

_LEAST = 4
"""Checks that there must be time for."""


def with_values(client: CheckClient, folder: Path) -> CheckClient:
    """Have checks find the values of listings that a run has left in a folder."""
    path = folder / VALUES
    return client.with_options(data=str(path.resolve()) if path.exists() else None)


def reduce_listing(
    context: RunContext, subject: Subject, found: SearchResult, reserve_s: float
) -> SearchResult:
    """Make a result smaller and plainer, if it fails as a listing.

    Returns:
        The search of listings; or what was found before, that says why there is none.
    """
    strategies = rewriters(context)
    found.short_of = _why_not(context, found, strategies)
    found.is_short = found.short_of == _NO_TIME
    if found.short_of:
        return found
    context.budget.reserve_s, context.budget.overtime_s = reserve_s, 0.0
    listed = found
    with stopping(context, found):
        try:
            listed = _searched(context, subject, found, strategies)
        except BudgetExhausted as reason:  # its operators are minimal all the same
            found.cut_short(reason)
    if listed is not found:
        _tell(context, listed)
    return listed


_NO_TIME = "not enough time left"


def rewriters(context: RunContext) -> list[Rewriter]:
    """Choose the strategies for what may be changed."""
    options = context.options
    chosen = choose(options.strategies)
    found = [each for each in chosen if isinstance(each, Rewriter)]
    return [each for each in found if each.kind not in options.keep]


def _why_not(
    context: RunContext, found: SearchResult, strategies: Sequence[Rewriter]
) -> str:
    """Say why a result is not made plainer, or ''."""
    if found.stopped:
        return found.stopped
    if not strategies:
        return "no strategy for this was selected"
    if not found.printable:
        return "the printed program does not fail"
    if not context.budget.has(_LEAST * context.budget.pace_s):
        return _NO_TIME
    return ""


def _searched(
    context: RunContext,
    subject: Subject,
    found: SearchResult,
    strategies: Sequence[Rewriter],
) -> SearchResult:
    """Search among the listings of a result, from the first one that fails."""
    subject = subject.built_as(found.reducer.asker.build)
    subject = subject.with_options(form=CandidateForm.SOURCE, calls=found.calls)
    subject = _failing_by_the_same(subject, found)
    data = context.out / VALUES
    told, why = list_candidate(subject.client, found.reducer.best, data.resolve())
    if told is None:
        found.short_of = f"the reduced program cannot be printed as source: {why}"
        context.note(found.short_of)
        return found
    subject = subject.with_options(data=told.data or None)
    starts = _starts(found.reducer.best, told)
    listed = _begun(context, subject, found, starts, strategies)
    # What it asks was asked, whatever becomes of it.
    found.beside = [*found.beside, listed]
    if not _begins_where_it_fails(listed.reducer, starts):
        found.short_of = "the printed program does not fail"
        context.note(f"{found.short_of}: the repro keeps sizes and values")
        return found
    context.note(_BEGINS)
    reserve_s = context.budget.reserve_s
    with stopping(context, listed):
        listed.search.find()
    if not listed.stopped:
        context.budget.reserve_s = reserve_s
        with stopping(context, listed):
            restore_cause(context, subject, listed)
    return _confirmed(context, subject, listed)


_BEGINS = "simplifying the reduced program: sizes, values, arguments"


def _failing_by_the_same(subject: Subject, found: SearchResult) -> Subject:
    """Have what is wrong of a listing's results be what is of those of the operators.

    While operators go, wrong shapes become wrong values, and the other way round. What
    stays the same and is given less does that by another fault alone: at a size of one
    an operator may have a shape of its own, say. So what an operator is wrong about
    stays the same as well, where it is part of the result.
    """
    best = found.reducer.best
    target = subject.target.differing_as(found.reducer.asker.shown_by(best))
    subject = replace(subject, target=target)
    if target.stage not in (Stage.RUN, Stage.COMPARE):
        return subject
    left = (m for m in subject.other_causes.mismatches if m.within in best.keep)
    subject = subject.with_options(lies=tuple(dict.fromkeys(m.about for m in left)))
    return _within_bounds(subject, best)


def _within_bounds(subject: Subject, best: Candidate) -> Subject:
    """Have operators read only what they are given, if those of the original do.

    Less is given to what stays the same: it may fail by what lies beside that alone.
    """
    targets = {best.target(name) for name in best.operators}
    custom = {each for each in targets if each.partition(".")[0] not in PYTORCHS}
    astray = {
        found.operator
        for found in subject.other_causes.examined
        if found.what is What.STRAYS
    }
    return subject.with_options(bounded=tuple(sorted(custom - astray)))


def _begun(
    context: RunContext,
    subject: Subject,
    found: SearchResult,
    starts: Sequence[Candidate],
    strategies: Sequence[Rewriter],
) -> SearchResult:
    """Make the search of listings, in the form of source and in the result's build."""
    ahead = Ahead(context.journal, CandidateForm.SOURCE, subject.build)
    asker = Asker(
        asking_ahead(oracle_for(subject), found.forks, ahead),
        budget=context.budget,
        journal=context.journal,
        form=CandidateForm.SOURCE,
        build=subject.build,
        most=_MOST,
    )
    fitter, listener = FakeTensors(subject.client), context.listener
    reducer = Reducer(starts[0], asker, strategies, listener=listener, fitter=fitter)
    return replace(
        found,
        search=Unstaged(reducer, starts[-1:]),
        made_of=found,
        beside=list(found.beside),
        known={},
        data=subject.client.options.data,
        fitter=fitter,
    )


def _starts(candidate: Candidate, told: Listed) -> list[Candidate]:
    """List what it may begin with: as much as possible drawn from a seed."""
    exact = candidate.listed(in_order_of_use(told.listing))
    inputs = {given.name for given in told.listing.inputs}
    drawn = [c for c in told.seeded.changes if isinstance(c, Refill)]
    of_inputs = [change for change in drawn if change.name in inputs]
    of_weights = [change for change in drawn if change.name not in inputs]
    some: list[list[Refill]] = [drawn, of_weights, of_inputs, []]
    made = (apply(exact, [Rewrite(tuple(changes))]) for changes in some)
    return list({start.digest: start for start in made}.values())


def _begins_where_it_fails(reducer: Reducer, starts: Sequence[Candidate]) -> bool:
    """Have a search begin with the first of some candidates that fails."""
    for start in starts:
        reducer.restart(start)
        if reducer.ask("listing", start).reproduced:
            reducer.restart(start)
            return True
    return False


def _confirmed(
    context: RunContext, subject: Subject, listed: SearchResult
) -> SearchResult:
    """Have the result fail without guard pages if it must, and measure how often."""
    found = listed.made_of
    assert found is not None
    if listed.stopped:
        return listed
    with stopping(context, listed):
        asked = context, subject, listed.search
        refused = listed.without_guard_pages and not fails_plainly(*asked)
        if refused and not confirm_plainly(*asked):
            return without_listing(
                listed, "no printed program fails without guard pages"
            )
        measure_result(context, subject, listed)
    return listed


def without_listing(listed: SearchResult, why: str) -> SearchResult:
    """Go back to what was found before, though its listings have been searched."""
    found = listed.made_of
    assert found is not None
    found.short_of = why
    found.stopped = found.stopped or listed.stopped
    listed.made_of = None
    return found


def _tell(context: RunContext, listed: SearchResult) -> None:
    """Say in a line what was made smaller."""
    assert listed.made_of is not None
    first, last = (c.listing for c in (listed.search.history[0], listed.reducer.best))
    assert first is not None
    assert last is not None
    context.note(f"{_given(first)}; now {_given(last)}")


def _given(listing: Listing) -> str:
    """Count what a listing is given, in words."""
    inputs, weights = (
        sum(recipe.nbytes for each in some for _, recipe in each.recipes)
        for some in (listing.inputs, listing.weights)
    )
    return f"inputs {inputs:,} bytes, weights {weights:,} bytes"


def say_what_is_minimal(context: RunContext, found: SearchResult) -> None:
    """Say of each kind of thing whether the result is 1-minimal in it.

    What that claims of each kind is told in ``docs/rooms/run.md``.
    """
    known: dict[Kind, bool] = {}
    refused = unseen = ""
    if found.made_of is not None:
        try:
            known = found.reducer.minimal_kinds
        except (ShrinkfxError, OSError) as reason:  # its repro is there all the same
            refused = first_line(str(reason))
    if found.fitter is not None:
        refused = refused or found.fitter.refused
        unseen = found.fitter.unseen
    why = found.short_of or found.stopped or refused or "some checks were inconclusive"
    said = {OPERATORS: MINIMAL if found.minimal else not_asked(why)}
    for kind in Kind:
        if kind in context.options.keep:
            said[kind] = KEPT
        elif unseen and kind is not Kind.VALUES and known.get(kind):
            said[kind] = not_asked(
                f"the program does not run with fake tensors: {unseen}"
            )
        elif kind is Kind.OPERANDS and context.options.strategies and known.get(kind):
            said[kind] = not_asked(_NOT_BYPASSED)
        elif known.get(kind) and not refused:
            said[kind] = PLAINEST if kind in _OF_NUMBERS else MINIMAL
        elif found.made_of is not None and known and kind not in known:
            said[kind] = not_asked("no strategy for this was selected")
        else:
            said[kind] = not_asked(why)
    found.kinds = said


_OF_NUMBERS = (Kind.VALUES, Kind.WEIGHTS)

_NOT_BYPASSED = "only some strategies for operators were selected"
"""``redirect_operands`` leaves out what drops, bypasses and merges were answered."""
