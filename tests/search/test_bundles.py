"""Bundles by probability, halves, and known rejections."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import Blame, Needles, make_case

from shrinkfx.events import Event, QueryAnswered
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit, Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Kind, LeafKind, Types
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.program.view import NO_SUSPECTS, View
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.bundles import EditProbabilities, Key, Probabilities, Subset
from shrinkfx.search.fitting import Unfitted
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.search_state import Rejections, SearchState, dropped_operators
from shrinkfx.search.strategy import choose, select_strategies
from shrinkfx.testing import (
    Answer,
    FakeOracle,
    chain,
    listed,
    listing,
    needs,
    skeleton,
    skeletons,
    whole,
)

# Any set, reduced as the operators of a program are.


ALL = [f"option{n}" for n in range(24)]


class OfNames(Probabilities[str]):
    def about(self, item: str) -> Iterable[Key]:
        return [("name", item)]


def search(needed: set[str], count: int = len(ALL)) -> tuple[list[str], int]:
    """Find what is needed of so many, and count the questions."""
    asked: list[frozenset[str]] = []

    def holds(part: list[str]) -> bool:
        assert frozenset(part) not in asked
        asked.append(frozenset(part))
        return needed <= set(part)

    found = Subset(ALL[:count], OfNames({}, count, guess=2), holds).run()
    return found, len(asked)


@pytest.mark.parametrize(
    ("needed", "median", "most"), [(1, 7, 10), (2, 15, 18), (3, 20, 26)]
)
def test_needed_items_are_found_in_few_queries(
    needed: int, median: int, most: int
) -> None:
    draw, counts = random.Random(0), []
    for _ in range(100):
        wanted = set(draw.sample(ALL, needed))
        found, questions = search(wanted)
        assert set(found) == wanted
        counts.append(questions)
    assert statistics.median(counts) <= median
    assert max(counts) <= most


def test_reduced_subset_keeps_its_order_and_may_be_the_full_set() -> None:
    assert search(set(ALL[:4]), 4) == (ALL[:4], 6)
    found, _ = search({ALL[9], ALL[2]})
    assert found == [ALL[2], ALL[9]]


@given(st.sets(st.frozensets(st.sampled_from(ALL[:8]), min_size=1), min_size=1))
def test_reduced_subset_is_minimal(wanted: set[frozenset[str]]) -> None:
    """Whatever it holds of: of any of several parts, at times of no larger one."""

    def holds(part: list[str]) -> bool:
        if len(part) == 8:
            return True
        if wanted == {frozenset(part)}:
            return True
        return any(one <= set(part) and len(part) % 3 for one in wanted)

    kept = Subset(ALL[:8], OfNames({}, 8, guess=2), holds).run()
    assert holds(kept)
    for name in kept:
        rest = [other for other in kept if other != name]
        assert not rest or not holds(rest)


# What is asked about next, after what was answered.


def drops(names: str) -> list[Edit]:
    return [Drop(frozenset(name)) for name in names]


def begun(
    operators: int, suspects: Mapping[str, float] = NO_SUSPECTS
) -> EditProbabilities:
    return EditProbabilities(suspects, operators)


def names(edits: list[Edit]) -> str:
    return "".join(n for e in edits if isinstance(e, Drop) for n in sorted(e.nodes))


ALL_ODDS = drops("abcdefghijklmnopqrstuvwx")


@pytest.mark.parametrize(
    ("operators", "bundle"), [(8, "abc"), (24, "abcde"), (40, "abcdefghi")]
)
def test_first_bundle_is_a_quarter_of_the_program_or_less(
    operators: int, bundle: str
) -> None:
    assert names(begun(operators).choose_bundle(ALL_ODDS)) == bundle


def test_rejected_edits_come_last_in_smaller_bundles() -> None:
    odds, left = begun(24), drops("abcdefgh")
    sizes = []
    for _ in range(6):
        bundle = odds.choose_bundle(left)
        sizes.append(names(bundle))
        odds.record_rejected(bundle)
    assert sizes == ["abcde", "fgha", "bcd", "efg", "ha", "b"]


def test_remaining_edit_of_a_rejected_bundle_is_the_likely_culprit() -> None:
    odds = begun(24)
    odds.record_rejected(drops("abcde"))
    odds.record_rejected(drops("fghij"))
    assert names(odds.choose_bundle(drops("ef")))[0] == "e"
    odds.record_accepted(drops("abcd"))
    assert names(odds.choose_bundle(drops("ef")))[0] == "f"


def test_bundles_grow_while_edits_are_accepted() -> None:
    odds = begun(40)
    before = odds.choose_bundle(ALL_ODDS)
    odds.record_accepted(drops("z"))
    assert len(odds.choose_bundle(ALL_ODDS)) > len(before)
    odds.start_round(40)
    assert odds.choose_bundle(ALL_ODDS) == before


def test_suspects_come_last_in_order_of_suspicion() -> None:
    odds = begun(8, {"a": 1.0, "b": 0.9})
    left, order = drops("abcd"), ""
    while left:
        bundle = odds.choose_bundle(left)
        order += names(bundle) + " "
        left = [edit for edit in left if edit not in bundle]
    assert order == "cdb a "


def test_probabilities_are_separate_for_each_kind_of_edit() -> None:
    odds = begun(8)
    odds.record_rejected(drops("a"))
    bypasses: list[Edit] = [Bypass("a", "x"), Bypass("b", "x")]
    assert odds.choose_bundle(bypasses)[0] == bypasses[0]
    assert names(odds.choose_bundle(drops("ab")))[0] == "b"


# Changes to a listing: all at once, and then halves of what was refused.


Place = tuple[str, int]


class Zeros:
    """Write each number as 0."""

    name = "zeros"
    combines = True
    kind = Kind.ARGUMENTS

    def propose(self, view: View) -> Iterator[Rewrite]:
        for block, line in view.listing.operators():
            for leaf in line.leaves:
                if leaf.kind is LeafKind.NUMBER and leaf.text != "0":
                    yield Rewrite((Write(block.name, line.name, leaf.number, "0"),))


class Fussy:
    """Fits what is even, and nothing with two changes of one statement."""

    def __init__(self) -> None:
        self.asked = 0

    def types(self, candidate: Candidate) -> Types:
        return {}

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> list[Rewrite | None]:
        self.asked += len(rewrites)
        return [rewrite if self._fits(rewrite) else None for rewrite in rewrites]

    def ahead(self) -> Fussy:
        return self

    def _fits(self, rewrite: Rewrite) -> bool:
        writes = [c for c in rewrite.changes if isinstance(c, Write)]
        lines = [write.statement for write in writes]
        even = all(write.leaf % 2 == 0 for write in writes)
        return even and len(lines) == len({*lines})


def program(lines: int = 5, numbers: int = 6) -> Candidate:
    """Make a chain of operators that are called with numbers."""
    texts, last = [], "x"
    for line in range(lines):
        told = ", ".join(str(10 + number) for number in range(numbers))
        texts.append(f"op{line} = torch.ops.aten.op{line}.default({last}, {told})")
        last = f"op{line}"
    return listed(listing("\n".join([*texts, f"return {last}"])))


def numbers_left(candidate: Candidate) -> set[Place]:
    assert candidate.listing is not None
    return {
        (line.name, leaf.number)
        for _, line in candidate.listing.operators()
        for leaf in line.leaves
        if leaf.kind is LeafKind.NUMBER and leaf.text != "0"
    }


OTHERS = select_strategies(whole(chain("x", "relu")), choose(None))
PLACES = sorted(numbers_left(program()))


def searched(needed: set[Place], fitter: Fussy | None = None) -> tuple[Reducer, int]:
    oracle = FakeOracle(lambda candidate: needed <= numbers_left(candidate))
    strategies = [Zeros(), *OTHERS]
    fits = fitter or Unfitted()
    reducer = Reducer(program(), Asker(oracle), strategies, fitter=fits)
    reducer.run()
    return reducer, len(oracle.asked)


@settings(max_examples=15)
@given(st.sets(st.sampled_from(PLACES)))
def test_only_the_needed_numbers_remain(needed: set[Place]) -> None:
    reducer, _ = searched(needed)
    assert numbers_left(reducer.best) == needed
    costs = [candidate.cost for candidate in reducer.history]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("needed", "most"), [(0, 1), (1, 7), (2, 14), (3, 21), (5, 33)]
)
def test_needed_numbers_are_found_in_few_queries(needed: int, most: int) -> None:
    dice = random.Random(1)
    for _ in range(5):
        assert searched(set(dice.sample(PLACES, needed)))[1] <= most


def test_rewrites_that_do_not_fit_are_never_queried() -> None:
    fitter = Fussy()
    reducer, asked = searched({("op1", 2)}, fitter)
    left = numbers_left(reducer.best)
    assert left == {place for place in PLACES if place[1] % 2} | {("op1", 2)}
    assert asked <= 12
    assert fitter.asked > asked


# What rejected edits say about bigger ones.


START = whole(chain("x", "a", "b", "c", "d", "e"))


def drop(nodes: str) -> Drop:
    return Drop(frozenset(nodes))


def rejected(*edits: Edit, outcome: Outcome = Outcome.PASSED) -> Rejections:
    rejections = Rejections()
    rejections.note(edits, apply(START, edits), outcome)
    return rejections


def rules_out(rejections: Rejections, *edits: Edit) -> bool:
    return rejections.rule_out(edits, apply(START, edits))


def test_superset_of_a_rejected_drop_is_ruled_out() -> None:
    rejections = rejected(drop("b"), drop("c"))
    assert rules_out(rejections, drop("bcd"))
    assert rules_out(rejections, drop("cd"), drop("b"))
    assert rules_out(rejections, drop("bc"))
    assert not rules_out(rejections, drop("cde"))


def test_drop_of_a_single_operator_is_never_ruled_out() -> None:
    rejections = rejected(drop("b"))
    assert rules_out(rejections, drop("bc"))
    assert not rules_out(rejections, drop("b"))


def test_drop_that_only_overlaps_a_rejected_drop_is_not_ruled_out() -> None:
    assert not rules_out(rejected(drop("bc")), drop("bd"))


@pytest.mark.parametrize(
    "outcome", [Outcome.DIFFERENT, Outcome.INVALID, Outcome.UNRESOLVED]
)
def test_only_a_passed_verdict_rules_out_larger_drops(outcome: Outcome) -> None:
    assert not rules_out(rejected(drop("b"), outcome=outcome), drop("bc"))


def test_rejection_does_not_apply_to_candidates_with_other_outputs() -> None:
    nodes = {"x": "", "a": "x", "b": "a", "c": "b", "d": "c"}
    start = whole(skeleton(nodes, "a b c d"))
    fewer, more = apply(start, [drop("d")]), apply(start, [drop("cd")])
    rejections = Rejections()
    rejections.note([drop("d")], fewer.returning(Outputs.SINKS), Outcome.PASSED)
    assert rejections.rule_out([drop("cd")], more.returning(Outputs.SINKS))
    assert more.outputs is Outputs.ORIGINAL
    assert not rejections.rule_out([drop("cd")], more)


def test_bypasses_neither_rule_out_nor_are_ruled_out() -> None:
    assert dropped_operators([drop("b"), Bypass("c", "b")]) == frozenset()
    assert not rules_out(rejected(Bypass("b", "a")), drop("bc"))
    assert not rules_out(rejected(drop("b")), Bypass("b", "a"), Bypass("c", "b"))


# Whether what a search says of its rest comes true.


CASES = [(50, 3), (50, 8), (200, 8)]


def errors(blame: Blame, operators: int, needed: int, number: int) -> list[float]:
    """Compare estimates with what came, a second each: powers of two too much."""
    case = make_case(number, operators, needed, Needles.NEAR, blame)
    oracle, told = FakeOracle(case.answer), []
    budget = Budget(clock=lambda: float(len(oracle.asked)))

    def listen(event: Event) -> None:
        if isinstance(event, QueryAnswered):
            assert event.expected_s is not None
            told.append(event.expected_s)

    start = whole(case.program)
    Reducer(
        start,
        Asker(oracle, budget=budget),
        choose(None),
        listener=listen,
        suspects=case.suspects,
    ).run()
    total = len(told)
    moments = [int(part * total) for part in (0.0, 0.1, 0.25, 0.5, 0.75)]
    return [math.log2((told[at] + 1) / (total - at)) for at in moments]


@pytest.mark.parametrize(("operators", "needed"), CASES)
@pytest.mark.parametrize("blame", [Blame.NONE, Blame.GOOD])
def test_estimate_of_the_remaining_time_is_accurate(
    blame: Blame, operators: int, needed: int
) -> None:
    found = [error for n in range(6) for error in errors(blame, operators, needed, n)]
    assert abs(statistics.median(found)) < 0.6
    within = [abs(error) < 1 for error in found]
    assert sum(within) / len(within) > 0.6


@pytest.mark.parametrize(("operators", "needed"), [(50, 3), (200, 8)])
def test_first_estimate_accounts_for_suspects(operators: int, needed: int) -> None:
    first = [errors(Blame.GOOD, operators, needed, n)[0] for n in range(8)]
    assert abs(statistics.median(first)) < 1


# Where a search stands, as a value that can be copied.


STRATEGIES = choose(None)
SOME = [Outcome.REPRODUCED, Outcome.PASSED, Outcome.INVALID]


def next_digests(course: SearchState, answer: Answer, most: int = 1000) -> list[str]:
    """Answer the next questions; list their candidates."""
    asked: list[str] = []
    while len(asked) < most and (question := course.next_query()):
        asked.append(question.candidate.digest)
        failed = answer(question.candidate)
        course.answer(Outcome.REPRODUCED if failed else Outcome.PASSED)
    return asked


@given(skeletons(), st.data())
def test_verdicts_for_a_copy_do_not_change_the_search_state(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    needed = data.draw(st.sets(st.sampled_from(start.operators), min_size=1))
    suspects = data.draw(
        st.dictionaries(st.sampled_from(start.operators), st.just(1.0))
    )
    dice = data.draw(st.randoms(use_true_random=False))
    plain, watched = (SearchState(start, STRATEGIES, suspects) for _ in range(2))
    expected = next_digests(plain, needs(*needed))
    for digest in expected:
        wander(watched.copy(), dice)
        assert next_digests(watched, needs(*needed), 1) == [digest]
        wander(watched.copy(), dice)
    assert watched.next_query() is None
    assert watched.best == plain.best


def wander(course: SearchState, dice: random.Random) -> None:
    """Give a course a few answers of no meaning."""
    for _ in range(3):
        if course.next_query():
            course.answer(dice.choice(SOME))


def test_search_state_advances_only_to_failing_candidates() -> None:
    start: Candidate = whole(chain("x", "a", "b", "c", "d"))
    course = SearchState(start, STRATEGIES)
    question = course.next_query()
    assert question
    for outcome in (Outcome.DIFFERENT, Outcome.UNRESOLVED, Outcome.INVALID):
        assert not course.copy().answer(outcome)
    assert course.best is start
    assert course.answer(Outcome.REPRODUCED)
    assert course.best is question.candidate
