"""Suspects, and ever more around them."""

from __future__ import annotations

from collections.abc import Mapping

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.strategies.operators import KeepSuspects
from shrinkfx.testing import FakeOracle, chain, needs, skeleton, whole

NAMES = [f"n{i}" for i in range(40)]
LINE = whole(chain("x", *NAMES))


def kept(start: Candidate, suspects: Mapping[str, float]) -> list[set[str]]:
    edits = list(KeepSuspects().propose(View(start, suspects)))
    assert all(isinstance(edit, Drop) for edit in edits)
    return [set(start.keep - edit.nodes) for edit in edits]


def test_each_rung_keeps_more_operators_around_the_suspects() -> None:
    assert kept(LINE, {"n20": 1.0}) == [
        {"n20"},
        {"n19", "n20"},
        {"n18", "n19", "n20"},
        {"n19", "n20", "n21"},
        {f"n{i}" for i in range(16, 21)},
        {f"n{i}" for i in range(12, 21)},
        {f"n{i}" for i in range(12, 22)},
    ]


def test_last_rung_keeps_the_ancestors_of_the_suspects() -> None:
    assert kept(LINE, {"n19": 0.1})[-1] == {*NAMES[:20]}
    assert kept(LINE, {"n39": 0.1})[-1] == {*NAMES[31:]}


def test_ladder_proposes_nothing_without_suspects() -> None:
    assert kept(LINE, {}) == []
    assert kept(LINE, {"gone": 1.0}) == []


def test_ladder_proposes_nothing_if_most_operators_are_suspects() -> None:
    small = whole(chain("x", "a", "b", "c"))
    assert kept(small, {"a": 1.0}) == [{"a"}]
    assert kept(small, {"a": 1.0, "b": 0.2}) == []


def test_ladder_stops_at_the_smallest_rung_that_fails() -> None:
    oracle = FakeOracle(needs("n18", "n20"))
    reducer = Reducer(LINE, Asker(oracle), [KeepSuspects()], suspects={"n20": 1.0})
    assert reducer.run().keep == {"n18", "n19", "n20"}
    assert len(oracle.asked) == 3


def test_ladder_queries_each_rung_once_if_the_suspects_are_wrong() -> None:
    oracle = FakeOracle(needs("n39"))
    reducer = Reducer(LINE, Asker(oracle), [KeepSuspects()], suspects={"n10": 1.0})
    assert reducer.run() == LINE
    assert len(oracle.asked) == len(kept(LINE, {"n10": 1.0})) == 8


def test_ladder_climbs_through_each_branch() -> None:
    wide = {"x": "", **{f"a{i}": "x" for i in range(6)}}
    start = whole(skeleton({**wide, "add": "a0 a1", "b": "add", "c": "b"}))
    assert kept(start, {"add": 1.0}) == [
        {"add"},
        {"add", "a0", "a1"},
        {"add", "a0", "a1", "b"},
    ]
