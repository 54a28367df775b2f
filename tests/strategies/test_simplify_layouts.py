"""Strides that do not matter."""

from __future__ import annotations

from dataclasses import replace

from support.listings import given, listing
from support.small import drawn, reduced, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Straighten
from shrinkfx.program.listing.tensor_specs import Saved, TensorSpec
from shrinkfx.strategies.tensors import SimplifyLayouts

ADD = "add = aten.add.Tensor(x, y)\nreturn add"
TURNED = replace(drawn(4, 8), stride=(1, 4))


def test_all_inputs_become_contiguous_in_one_query() -> None:
    spread = replace(drawn(4, 8), stride=(0, 1))
    program = listing(ADD, given("x", TURNED), given("y", spread))
    best, questions = reduced(program, lambda p: True, ["simplify_layouts"])
    assert [g.recipe().stride for g in best.given] == [None, None]
    assert questions == 1


def test_relevant_layout_is_kept() -> None:
    program = listing(ADD, given("x", TURNED), given("y", TURNED))
    best, questions = reduced(
        program, lambda p: p.find("y").recipe().stride is not None, ["simplify_layouts"]
    )
    assert [g.recipe().stride for g in best.given] == [None, (1, 4)]
    assert questions <= 3


def test_irrelevant_gaps_are_removed_from_a_relevant_stride_order() -> None:
    apart = replace(drawn(4, 8), stride=(1, 6))
    best, questions = reduced(
        listing(ADD, given("x", apart), given("y", drawn(4, 8))),
        lambda p: p.find("x").recipe().stride is not None,
        ["simplify_layouts"],
    )
    assert best.find("x").recipe().stride == (1, 4)
    assert questions <= 4


def test_contiguous_and_saved_inputs_are_not_changed() -> None:
    saved = TensorSpec((4, 8), "float32", Saved("y"), (1, 4))
    program = listing(ADD, given("x", drawn(4, 8)), given("y", saved))
    assert list(SimplifyLayouts().propose(view(program))) == []
    program = listing(ADD, given("x", TURNED), given("y", saved))
    assert list(SimplifyLayouts().propose(view(program))) == [
        Rewrite((Straighten("x"),))
    ]
