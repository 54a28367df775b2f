"""Simplify the reduced program as a printed program, once no operator can be removed.

    operators
    -> their printed program, with seeded values if it fails so
    -> the strategies for printed programs
    -> the smallest printed program that fails, which is verified as any other result

Fake tensors tell which rewrites make a valid program, without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.listing import FakeTensors, list_candidate
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.signature import Stage
from shrinkfx.journal.speculative_checks import SpeculativeChecks
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.claims import (
    KEPT,
    MINIMAL,
    OPERATORS,
    PLAINEST,
    claim_not_tested,
)
from shrinkfx.program.listing.order import sort_by_use
from shrinkfx.program.listing.printed_program import InputOrWeight
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.namespaces import PYTORCH_NAMESPACES
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.listed import Listed
from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.run.context import RunContext
from shrinkfx.run.judging import confirm_without_guard_pages, fails_without_guard_pages
from shrinkfx.run.oracles import oracle_for, with_speculation
from shrinkfx.run.reduction import SearchResult, measure_result, stop_on_errors
from shrinkfx.run.same_cause import restore_cause
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import Rewriter, choose
from shrinkfx.search.unstaged import UnstagedSearch

VALUES = "given.pt"
"""The file in the output folder with values that a printed program names only by
key.
"""

_MOST = 60
"""Number of checks that the simplification may take, with those of its start."""

_LEAST = 4
"""Number of checks for which there must be time."""


def with_values(client: CheckClient, folder: Path) -> CheckClient:
    """Return a client that finds the values of printed programs in a run's folder."""
    path = folder / VALUES
    return client.with_options(data=str(path.resolve()) if path.exists() else None)


def reduce_listing(
    context: RunContext, program: Subject, state: SearchResult, reserve_s: float
) -> SearchResult:
    """Simplify a result, if it fails as a printed program.

    Returns:
        The search among printed programs; or ``state``, with the reason why there is
        none.
    """
    strategies = rewriters(context)
    state.short_of = _why_not(context, state, strategies)
    state.is_short = state.short_of == _NO_TIME
    if state.short_of:
        return state
    context.budget.reserve_s, context.budget.overtime_s = reserve_s, 0.0
    listed = state
    with stop_on_errors(context, state):
        try:
            listed = _search_listings(context, program, state, strategies)
        except BudgetExhausted as reason:  # the operators are minimal all the same
            state.cut_short(reason)
    if listed is not state:
        _tell(context, listed)
    return listed


_NO_TIME = "not enough time left"


def rewriters(context: RunContext) -> list[Rewriter]:
    """Return the selected strategies for the kinds that the user does not keep."""
    options = context.options
    chosen = choose(options.strategies)
    selected = [each for each in chosen if isinstance(each, Rewriter)]
    return [each for each in selected if each.kind not in options.keep]


def _why_not(
    context: RunContext, state: SearchResult, strategies: Sequence[Rewriter]
) -> str:
    """Return why a result is not simplified, or ''."""
    if state.stopped:
        return state.stopped
    if not strategies:
        return "no strategy for this was selected"
    if not state.printable:
        return "the printed program does not fail"
    if not context.budget.has(_LEAST * context.budget.pace_s):
        return _NO_TIME
    return ""


def _search_listings(
    context: RunContext,
    program: Subject,
    state: SearchResult,
    strategies: Sequence[Rewriter],
) -> SearchResult:
    """Search among the printed programs of a result, from the first one that fails."""
    program = program.built_as(state.reducer.asker.build)
    program = program.with_options(form=CandidateForm.SOURCE, calls=state.calls)
    program = _require_same_difference(program, state)
    data = context.out / VALUES
    printed, why = list_candidate(program.client, state.reducer.best, data.resolve())
    if printed is None:
        state.short_of = f"the reduced program cannot be printed as source: {why}"
        context.note(state.short_of)
        return state
    program = program.with_options(data=printed.data or None)
    starts = _starts(state.reducer.best, printed)
    listed = _begun(context, program, state, starts, strategies)
    # Its queries count even if the search fails.
    state.unused_searches = [*state.unused_searches, listed]
    if not _begins_where_it_fails(listed.reducer, starts):
        state.short_of = "the printed program does not fail"
        context.note(f"{state.short_of}: the repro keeps sizes and values")
        return state
    context.note(_SIMPLIFYING)
    reserve_s = context.budget.reserve_s
    with stop_on_errors(context, listed):
        listed.search.find()
    if not listed.stopped:
        context.budget.reserve_s = reserve_s
        with stop_on_errors(context, listed):
            restore_cause(context, program, listed)
    return _confirmed(context, program, listed)


_SIMPLIFYING = "simplifying the reduced program: sizes, values, arguments"


def _require_same_difference(program: Subject, state: SearchResult) -> Subject:
    """Require programs to fail with the same difference and fake-kernel mismatch.

    While operators are removed, wrong shapes may turn into wrong values, and the
    reverse. Now the operators stay and their inputs get smaller, so such a change shows
    another fault: at size 1, for example, an operator may return a shape of its own.
    For the same reason, an operator with a fake-kernel mismatch must keep that
    mismatch.
    """
    reduced = state.reducer.best
    target = program.target.require_same_difference(
        state.reducer.asker.find_signature(reduced)
    )
    program = replace(program, target=target)
    if target.stage not in (Stage.RUN, Stage.COMPARE):
        return program
    remaining = (m for m in program.other_causes.mismatches if m.within in reduced.keep)
    program = program.with_options(
        mismatches=tuple(dict.fromkeys(m.about for m in remaining))
    )
    return _require_bounded_reads(program, reduced)


def _require_bounded_reads(program: Subject, reduced: Candidate) -> Subject:
    """Forbid operators to read outside their arguments, unless the input program's do.

    Inputs get smaller, so a program could fail only because of adjacent memory.
    """
    targets = {reduced.target(name) for name in reduced.operators}
    custom = {
        each for each in targets if each.partition(".")[0] not in PYTORCH_NAMESPACES
    }
    unbounded = {
        finding.operator
        for finding in program.other_causes.examined
        if finding.what is Misbehavior.STRAYS
    }
    return program.with_options(bounded=tuple(sorted(custom - unbounded)))


def _begun(
    context: RunContext,
    program: Subject,
    state: SearchResult,
    starts: Sequence[Candidate],
    strategies: Sequence[Rewriter],
) -> SearchResult:
    """Return a search among printed programs, built as the result was."""
    ahead = SpeculativeChecks(context.journal, CandidateForm.SOURCE, program.build)
    cache = Asker(
        with_speculation(oracle_for(program), state.forks, ahead),
        budget=context.budget,
        journal=context.journal,
        form=CandidateForm.SOURCE,
        build=program.build,
        most=_MOST,
    )
    fitter, listener = FakeTensors(program.client), context.listener
    reducer = Reducer(starts[0], cache, strategies, listener=listener, fitter=fitter)
    return replace(
        state,
        search=UnstagedSearch(reducer, starts[-1:]),
        made_of=state,
        unused_searches=list(state.unused_searches),
        known={},
        data=program.client.options.data,
        fitter=fitter,
    )


def _starts(candidate: Candidate, printed: Listed) -> list[Candidate]:
    """Return the programs to start from; the first has the most seeded values."""
    exact = candidate.with_listing(sort_by_use(printed.listing))
    inputs = {spec.name for spec in printed.listing.inputs}
    drawn = [c for c in printed.seeded.changes if isinstance(c, Refill)]
    of_inputs = [change for change in drawn if change.name in inputs]
    of_weights = [change for change in drawn if change.name not in inputs]
    choices: list[list[Refill]] = [drawn, of_weights, of_inputs, []]
    made = (apply(exact, [Rewrite(tuple(changes))]) for changes in choices)
    return list({start.digest: start for start in made}.values())


def _begins_where_it_fails(reducer: Reducer, starts: Sequence[Candidate]) -> bool:
    """Start a search at the first candidate that fails; return False if none does."""
    for start in starts:
        reducer.restart(start)
        if reducer.ask("listing", start).reproduced:
            reducer.restart(start)
            return True
    return False


def _confirmed(
    context: RunContext, program: Subject, listed: SearchResult
) -> SearchResult:
    """Require the result to fail without guard pages if it must; measure its rate."""
    state = listed.made_of
    assert state is not None
    if listed.stopped:
        return listed
    with stop_on_errors(context, listed):
        args = context, program, listed.search
        refused = listed.without_guard_pages and not fails_without_guard_pages(*args)
        if refused and not confirm_without_guard_pages(*args):
            return drop_listing(listed, "no printed program fails without guard pages")
        measure_result(context, program, listed)
    return listed


def drop_listing(listed: SearchResult, why: str) -> SearchResult:
    """Return the result before the search among printed programs, with the reason."""
    state = listed.made_of
    assert state is not None
    state.short_of = why
    state.stopped = state.stopped or listed.stopped
    listed.made_of = None
    return state


def _tell(context: RunContext, listed: SearchResult) -> None:
    """Note the sizes of inputs and weights before and after the simplification."""
    assert listed.made_of is not None
    first, last = (c.listing for c in (listed.search.history[0], listed.reducer.best))
    assert first is not None
    assert last is not None
    inputs, weights = (
        f"{_count_bytes(before):,} -> {_count_bytes(after):,} bytes"
        for before, after in zip(
            (first.inputs, first.weights), (last.inputs, last.weights), strict=True
        )
    )
    context.note(f"inputs: {inputs}; weights: {weights}")


def _count_bytes(tensors: Sequence[InputOrWeight]) -> int:
    """Return the bytes of a printed program's inputs or weights."""
    return sum(recipe.nbytes for each in tensors for _, recipe in each.recipes)


def record_minimal_kinds(context: RunContext, state: SearchResult) -> None:
    """Record for each kind of simplification whether the result is 1-minimal.

    ``docs/packages/run.md`` states what that claims for each kind.
    """
    known: dict[Kind, bool] = {}
    refused = unseen = ""
    if state.made_of is not None:
        try:
            known = state.reducer.minimal_kinds
        except (ShrinkfxError, OSError) as reason:  # the repro is written already
            refused = first_line(str(reason))
    if state.fitter is not None:
        refused = refused or state.fitter.refused
        unseen = state.fitter.unseen
    why = state.short_of or state.stopped or refused or "some checks were inconclusive"
    claims = {OPERATORS: MINIMAL if state.minimal else claim_not_tested(why)}
    for kind in Kind:
        if kind in context.options.keep:
            claims[kind] = KEPT
        elif unseen and kind is not Kind.VALUES and known.get(kind):
            claims[kind] = claim_not_tested(
                f"the program does not run with fake tensors: {unseen}"
            )
        elif kind is Kind.OPERANDS and context.options.strategies and known.get(kind):
            claims[kind] = claim_not_tested(_NOT_BYPASSED)
        elif known.get(kind) and not refused:
            claims[kind] = PLAINEST if kind in _OF_NUMBERS else MINIMAL
        elif state.made_of is not None and known and kind not in known:
            claims[kind] = claim_not_tested("no strategy for this was selected")
        else:
            claims[kind] = claim_not_tested(why)
    state.kinds = claims


_OF_NUMBERS = (Kind.VALUES, Kind.WEIGHTS)

_NOT_BYPASSED = "only some strategies for operators were selected"
"""``redirect_operands`` skips what drops, bypasses and merges have tested already."""
