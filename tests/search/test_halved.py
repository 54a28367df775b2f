"""Changes to a listing: all at once, and then halves of what was refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Kind, LeafKind, Types
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.fitting import Unfitted
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose, select_strategies
from shrinkfx.testing import FakeOracle, chain, listed, listing, whole

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
