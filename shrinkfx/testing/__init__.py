"""Test doubles for strategies: programs, an oracle, and the laws of a strategy.

No compiler runs and torch is not imported, so a test takes microseconds::

    from shrinkfx.testing import chain, check_strategy, whole

    def test_my_strategy_proposes_the_last_operator_first():
        view = View(whole(chain("x", "relu", "tanh")))
        assert next(MyStrategy().propose(view)) == Drop(frozenset({"tanh"}))

    @given(candidates())
    def test_my_strategy_keeps_the_laws(candidate):
        check_strategy(MyStrategy(), candidate)

To measure the effect of a strategy on a search, pass ``Asker(FakeOracle(...))`` to a
``Reducer``, and compare the results and the numbers of queries, ``len(oracle.asked)``.
"""

from __future__ import annotations

from shrinkfx.testing.drawn import candidates, edits_of, skeletons
from shrinkfx.testing.laws import check_strategy
from shrinkfx.testing.listings import ROWS, listed, listing, listings, types_of
from shrinkfx.testing.oracle import OTHER, PLANTED, Answer, FakeOracle, calls, needs
from shrinkfx.testing.programs import (
    DYNAMIC,
    FLOATS,
    FREE,
    HALVES,
    ROW,
    Nodes,
    chain,
    feed,
    inner,
    operator,
    projection,
    size,
    skeleton,
    subgraph,
    whole,
)

__all__ = [
    "DYNAMIC",
    "FLOATS",
    "FREE",
    "HALVES",
    "OTHER",
    "PLANTED",
    "ROW",
    "ROWS",
    "Answer",
    "FakeOracle",
    "Nodes",
    "calls",
    "candidates",
    "chain",
    "check_strategy",
    "edits_of",
    "feed",
    "inner",
    "listed",
    "listing",
    "listings",
    "needs",
    "operator",
    "projection",
    "size",
    "skeleton",
    "skeletons",
    "subgraph",
    "types_of",
    "whole",
]
