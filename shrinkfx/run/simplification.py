"""Simplify the reduced program as a printed program, once no operator can be removed.

    operators
    -> their printed program, with seeded values if it fails so
    -> the strategies for printed programs
    -> the smallest printed program that fails, which is verified as any other result

Fake tensors tell which rewrites make a valid program, without a compiler.

Check that a program that was made smaller still fails for the same reason. Small sizes
are compiled to other code, which may hide one failure and bring another
(``docs/packages/run.md``). Two tests find this:

- A setting of Inductor disables each decision that depends on sizes. If one of two
  programs passes with the setting and the other fails, there are two reasons.
- If a program fails with large sizes and with small ones, and passes with sizes between
  them, there are two reasons as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from shrinkfx.check.listing import FakeTensors, list_candidate
from shrinkfx.check.oracle import CheckClient, make_oracle
from shrinkfx.errors import BudgetExhausted, ShrinkfxError
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.names import sort_by_use
from shrinkfx.program.listing.printed_program import (
    KEPT,
    MINIMAL,
    OPERATORS,
    PLAINEST,
    Kind,
    PrintedProgram,
    Run,
    claim_not_tested,
)
from shrinkfx.program.listing.sizes import SizeGroup, list_size_groups, lower_to_goals
from shrinkfx.program.listing.tensor_specs import TensorSpec
from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES
from shrinkfx.protocol.answers import Listed
from shrinkfx.protocol.choices import CandidateForm, InductorOptions
from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.reduction import (
    SearchResult,
    confirm_without_guard_pages,
    fails_without_guard_pages,
    measure_result,
    oracle_for,
    stop_on_errors,
    with_speculation,
)
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.fitting import Fitter
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import UnstagedSearch
from shrinkfx.search.strategy import Rewriter, choose

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
        return "the program does not fail as Python source"
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
        state.short_of = "the program does not fail as Python source"
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
    cache = Asker(
        with_speculation(oracle_for(program), state.forks),
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
        args = program, listed.search
        refused = listed.without_guard_pages and not fails_without_guard_pages(*args)
        if refused and not confirm_without_guard_pages(*args):
            return drop_listing(listed, "no printed program fails without guard pages")
        measure_result(program, listed)
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
    before, after = map(_count_bytes, (first, last))
    context.note(f"simplification: {before:,} -> {after:,} bytes of inputs and weights")


def _count_bytes(listing: PrintedProgram) -> int:
    """Return the bytes of a printed program's inputs and weights."""
    tensors = (*listing.inputs, *listing.weights)
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


_INLINED = 8
"""Elements up to which Inductor writes a 1-D weight into the kernel
(``torch/_inductor/graph.py``: ``get_attr``)."""

_VECTORISED = (4, 16)
"""Elements of float32 from which on a loop is vectorised, and fills a vector of AVX-512
(``torch/_inductor/codegen/cpp.py``: ``select_tiling``)."""


def restore_cause(context: RunContext, program: Subject, listed: SearchResult) -> None:
    """Go back to a step that fails for the reason of the first, and continue there.

    Raises:
        BudgetExhausted: too little time is left.
    """
    target = program.target
    compared = target.stage in (Stage.RUN, Stage.COMPARE) and target.is_vague
    if not compared or program.rate < 1.0 or program.command:
        return
    _restore_decisions(context, program, listed)
    judge = _Judge(_asker(context, program, listed.search.reducer.asker, {}), context)
    for _ in range(_MAX_BACKTRACKS):
        if not _restore_sizes(context, judge, listed):
            return


def _restore_decisions(
    context: RunContext, program: Subject, listed: SearchResult
) -> None:
    """Go back if a setting of Inductor tells the first step and the last one apart.

    Compiles both with the settings of the limits that a size has crossed. If both pass
    with two settings, tests each setting alone.
    """
    search = listed.search
    first, reduced = search.reducer.history[0], search.reducer.best
    settings = dict(_settings_to_test(first, reduced))
    if not settings:
        return
    alone = [{name: value} for name, value in settings.items()]
    for tested in [settings, *(alone if len(alone) > 1 else [])]:
        judge = _Judge(_asker(context, program, search.reducer.asker, tested), context)
        before, after = (judge.verdict(each).outcome for each in (first, reduced))
        if before is after is Outcome.REPRODUCED:
            return
        if {before, after} == {Outcome.REPRODUCED, Outcome.PASSED}:
            named = ", ".join(f"{name}={value}" for name, value in tested.items())
            verbs = _VERBS[before], _VERBS[after]
            context.note(_OTHER_CAUSE.format(named, *verbs, reduced.digest[:12]))
            _go_back(listed, _SameOutcome(judge, before, search.reducer.asker))
            return


_NAME = "same cause"
_OTHER_CAUSE = (
    "the smaller program seems to fail for another reason: with {}, the program {} "
    "before its sizes became smaller, and {} after (--candidate {}); continuing from a "
    "step that behaves as before"
)
_VERBS = {Outcome.REPRODUCED: "still failed", Outcome.PASSED: "passed"}


def _settings_to_test(
    first: Candidate, reduced: Candidate
) -> Iterator[tuple[str, bool | int]]:
    """List the settings that disable decisions which changed with the sizes."""
    if first.listing is None or reduced.listing is None:
        return
    after = {each.name: each.recipe(Run.FAILING) for each in reduced.listing.given}
    both = [each for each in first.listing.given if each.name in after]
    pairs = [(each, each.recipe(Run.FAILING), after[each.name]) for each in both]
    if any(
        not each.is_input
        and len(old.shape) == 1
        and old.elements > _INLINED >= new.elements
        for each, old, new in pairs
    ):
        yield "always_keep_tensor_constants", True
    if any(old.device == "cpu" and _crosses(old, new) for _, old, new in pairs):
        yield "cpp.simdlen", 1


def _crosses(old: TensorSpec, new: TensorSpec) -> bool:
    """Tell whether a size fell below one of the limits of vectorised code."""
    sizes = [(old.elements, new.elements)]
    if len(old.shape) == len(new.shape):
        sizes += zip(old.shape, new.shape, strict=True)
    return any(was >= limit > now for was, now in sizes for limit in _VECTORISED)


def _restore_sizes(context: RunContext, judge: _Judge, listed: SearchResult) -> bool:
    """Go back if the program passes with sizes between those of two steps.

    Returns:
        Whether the search continued from an earlier step.
    """
    reducer, fitter = listed.search.reducer, listed.fitter
    assert fitter is not None
    for before, after in pairwise(reducer.history):
        between = list(_between(before, after, fitter))
        verdicts = (judge.verdict(each.candidate) for each in between)
        if between and all(each.outcome is Outcome.PASSED for each in verdicts):
            sizes = [[group.size for group in between[0].sizes]]
            sizes += [list(each.sizes.values()) for each in between]
            sizes += [[_size(after, group) for group in between[0].sizes]]
            texts = [" x ".join(map(str, each)) for each in sizes]
            passing = " and ".join(texts[1:-1])
            digest = reducer.best.digest[:12]
            context.note(_SIZES_PASS.format(texts[0], passing, texts[-1], digest))
            return _go_back(listed, _Larger(between[-1].sizes, reducer.asker))
    return False


_MAX_BACKTRACKS = 4
"""How often a search may go back because of sizes; each time it is for other sizes."""

_SIZES_PASS = (
    "the smaller program seems to fail for another reason: the program fails with size "
    "{}, passes with {}, and fails with {} (--candidate {}); continuing with the large "
    "size"
)

_WIDEST = 16
"""Elements of the widest vector; with sizes between, a loop has a tile and a
remainder.
"""


@dataclass(frozen=True)
class _Between:
    """A program with sizes between those of two steps.

    Attributes:
        sizes: the new size of each group of equal sizes.
    """

    candidate: Candidate
    sizes: dict[SizeGroup, int]


def _between(before: Candidate, after: Candidate, fitter: Fitter) -> Iterator[_Between]:
    """Yield programs like two steps, with sizes from 16 to 31.

    Empty unless sizes of at least 32 became smaller than 16. The first program keeps
    the remainder modulo 16 of the large sizes, and the second one of the small sizes.
    """
    assert before.listing is not None
    types = fitter.types(before)
    groups = [g for g in list_size_groups(before.listing, types) if g.places]
    goals = {group: _size(after, group) for group in groups}
    large = [g for g in groups if g.size >= 2 * _WIDEST and goals[g] < _WIDEST]
    alike_before = {group: _WIDEST + group.size % _WIDEST for group in large}
    alike_after = {group: _WIDEST + goals[group] % _WIDEST for group in large}
    for sizes in (alike_before, alike_after) if large else ():
        rewrites = list(lower_to_goals(before.listing, types, goals | sizes))
        for fit in fitter.fit(before, rewrites):
            if fit is not None:
                yield _Between(apply(before, [fit]), sizes)


def _size(candidate: Candidate, group: SizeGroup) -> int:
    """Return the size of the first place of a group that a program still has."""
    assert candidate.listing is not None
    specs = {each.name: each for each in candidate.listing.given}
    for place in group.places:
        if place.name in specs:
            shape = specs[place.name].recipe(group.run or Run.EXAMPLE).shape
            return shape[place.dim] if place.dim < len(shape) else max(shape, default=1)
    return group.size


@dataclass(frozen=True)
class _Larger:
    """Accepts candidates that fail, with a size above those that pass.

    Attributes:
        sizes: sizes that pass, by the size groups of an earlier step.
        fails: answers whether a candidate fails.
    """

    sizes: dict[SizeGroup, int]
    fails: Asker

    def check(self, candidate: Candidate) -> Verdict:
        large = any(_size(candidate, group) > n for group, n in self.sizes.items())
        if large and self.fails.has_reproduced(candidate):
            return Verdict(Outcome.REPRODUCED)
        return Verdict(Outcome.PASSED)


def _go_back(listed: SearchResult, wanted: Oracle) -> bool:
    """Continue the search from a step that an oracle accepts, and accept no other."""
    confirmation = Confirmation(_NAME, Asker(wanted), _ANOTHER_REASON)
    if not listed.search.confirm(confirmation):
        return False
    listed.search.continue_search()
    return True


_ANOTHER_REASON = "it seems to fail for another reason"


@dataclass(frozen=True)
class _Judge:
    """Tests candidates with other settings.

    Attributes:
        asker: the query cache; it repeats no check, in a resumed run either.
    """

    asker: Asker
    context: RunContext

    def verdict(self, candidate: Candidate) -> Verdict:
        """Return the verdict on a candidate with these settings.

        Raises:
            BudgetExhausted: too little time is left.
        """
        known = self.asker.find_verdict(candidate)
        budget = self.context.budget
        if known is None and not budget.has(budget.pace_s):
            raise BudgetExhausted("not enough time left")
        return self.asker.ask(_NAME, candidate)


@dataclass(frozen=True)
class _SameOutcome:
    """Accepts candidates that fail, and that have the wanted outcome with the settings.

    Attributes:
        fails: answers whether a candidate fails without the settings.
    """

    judge: _Judge
    wanted: Outcome
    fails: Asker

    def check(self, candidate: Candidate) -> Verdict:
        if not self.fails.has_reproduced(candidate):
            return Verdict(Outcome.PASSED)
        verdict = self.judge.verdict(candidate)
        alike = verdict.outcome is self.wanted
        outcome = Outcome.REPRODUCED if alike else Outcome.DIFFERENT
        return replace(verdict, outcome=outcome)


def _asker(
    context: RunContext, program: Subject, like: Asker, settings: InductorOptions
) -> Asker:
    """Return a query cache for the candidates of another one, with more settings."""
    # The adaptive time limit follows the search's checks, and not these.
    client = replace(program.client, patience=None)
    client = client.with_options(inductor={**client.options.inductor, **settings})
    return Asker(
        make_oracle(client, program.target, program.rate),
        journal=context.journal,
        form=like.form,
        build=f"{like.build}, {dict(settings)}",
        again=True,
    )
