"""The first half of the operators."""

from __future__ import annotations

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import CutPrefix
from shrinkfx.testing import chain, check_strategy, whole

NAMES = [f"n{i}" for i in range(64)]


def test_cut_prefix_proposes_the_first_half() -> None:
    view = View(whole(chain("x", *NAMES)))
    assert list(CutPrefix().propose(view)) == [Drop(frozenset(NAMES[:32]))]


def test_cut_prefix_leaves_small_programs_alone() -> None:
    assert list(CutPrefix().propose(View(whole(chain("x", *NAMES[:15]))))) == []


def test_cut_prefix_obeys_the_strategy_laws() -> None:
    check_strategy(CutPrefix(), whole(chain("x", *NAMES)))


def test_cut_prefix_leaves_a_suspect_half_alone() -> None:
    start = whole(chain("x", *NAMES))
    assert list(CutPrefix().propose(View(start, {"n31": 0.1}))) == []
    assert len(list(CutPrefix().propose(View(start, {"n32": 0.1})))) == 1
