"""The last half of the operators."""

from __future__ import annotations

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import CutSuffix
from shrinkfx.testing import chain, check_strategy, whole

NAMES = [f"n{i}" for i in range(64)]


def test_cut_suffix_proposes_the_last_half() -> None:
    view = View(whole(chain("x", *NAMES)))
    assert list(CutSuffix().propose(view)) == [Drop(frozenset(NAMES[-32:]))]


def test_cut_suffix_leaves_small_programs_alone() -> None:
    assert list(CutSuffix().propose(View(whole(chain("x", *NAMES[:15]))))) == []


def test_cut_suffix_obeys_the_strategy_laws() -> None:
    check_strategy(CutSuffix(), whole(chain("x", *NAMES)))


def test_cut_suffix_leaves_a_suspect_half_alone() -> None:
    start = whole(chain("x", *NAMES))
    assert list(CutSuffix().propose(View(start, {"n32": 0.1}))) == []
    assert len(list(CutSuffix().propose(View(start, {"n31": 0.1})))) == 1
