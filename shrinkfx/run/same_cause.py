"""Check that a program that was made smaller still fails for the same reason.

Small sizes are compiled to other code, which may hide one failure and bring another
(``docs/packages/run.md``). Two tests find this:

- A setting of Inductor disables each decision that depends on sizes. If one of two
  programs passes with the setting and the other fails, there are two reasons.
- If a program fails with large sizes and with small ones, and passes with sizes between
  them, there are two reasons as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from shrinkfx.check.oracle import make_oracle
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import Run
from shrinkfx.program.listing.sizes import SizeGroup, list_size_groups, lower_to_goals
from shrinkfx.program.listing.tensor_specs import TensorSpec
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.run.context import RunContext
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.fitting import Fitter

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
