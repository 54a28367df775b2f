"""Bypasses to a value of another shape: they fit where every reader broadcasts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply, find_misfitting_readers, find_retyped_values
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Bypass, Drop, Replace
from shrinkfx.program.skeleton import Node, Role, TensorType
from shrinkfx.program.view import View
from shrinkfx.testing import (
    FLOATS,
    ROW,
    Nodes,
    candidates,
    edits_of,
    feed,
    operator,
    projection,
    size,
    skeleton,
    whole,
)


def row() -> Node:
    return Node("", Role.INPUT, value=ROW, storage=0)


def expand(of: str = "row", value: TensorType = FLOATS) -> Node:
    return operator(of, value=value, storage=0)


NORMED: Nodes = {
    "x": "",
    "row": row(),
    "expand": expand(),
    "div": operator("x expand", pointwise=True),
}
TO_ROW = Bypass("expand", "row")


def is_expand_kept(nodes: Nodes) -> bool:
    """Tell whether the expand of a program may not go, with the view agreed."""
    candidate = whole(skeleton(nodes))
    with pytest.raises(InvalidEdit):
        apply(candidate, [TO_ROW])
    return not View(candidate).can_bypass("expand", "row")


def test_expand_is_bypassed_when_all_readers_broadcast() -> None:
    candidate = whole(skeleton(NORMED))
    assert View(candidate).can_bypass("expand", "row")
    edited = apply(candidate, [TO_ROW])
    assert edited.operators == ("div",)
    assert edited.operands("div") == ["x", "row"]
    assert find_retyped_values(edited) == {"expand"}


def test_expand_stays_when_no_other_operand_has_full_shape() -> None:
    assert is_expand_kept({**NORMED, "neg": operator("expand", pointwise=True)})
    assert is_expand_kept({**NORMED, "div_1": operator("row expand", pointwise=True)})


def test_expand_stays_when_a_reader_does_not_broadcast() -> None:
    assert is_expand_kept({**NORMED, "mm": "x expand"})
    assert is_expand_kept({**NORMED, "n": size("expand")})
    both = operator("x expand", value=None, pointwise=True)
    assert is_expand_kept({**NORMED, "two": both, "one": projection("two")})


def test_expand_is_bypassed_when_non_broadcasting_reader_is_dropped() -> None:
    candidate = whole(skeleton({**NORMED, "mm": "x expand"}))
    assert apply(candidate, [Drop(frozenset({"mm"})), TO_ROW]).operators == ("div",)


def test_second_expand_of_same_reader_stays() -> None:
    nodes: Nodes = {
        "row": row(),
        "expand": expand(),
        "expand_1": expand(),
        "div": operator("expand expand_1", pointwise=True),
    }
    candidate = whole(skeleton(nodes))
    edited = apply(candidate, [TO_ROW])
    assert not View(edited).can_bypass("expand_1", "row")
    for start, edits in ((edited, []), (candidate, [TO_ROW])):
        with pytest.raises(InvalidEdit, match="div"):
            apply(start, [*edits, Bypass("expand_1", "row")])


def test_expand_stays_when_read_by_a_replacement_operator() -> None:
    nodes: Nodes = {**NORMED, "softmax": "div expand"}
    edited = apply(whole(skeleton(nodes)), [Replace("softmax", "expand")])
    assert not View(edited).can_bypass("expand", "row")
    with pytest.raises(InvalidEdit, match="softmax"):
        apply(edited, [TO_ROW])
    nodes = {**NORMED, "softmax": "div"}
    edited = apply(whole(skeleton(nodes)), [TO_ROW])
    with pytest.raises(InvalidEdit, match="softmax"):
        apply(edited, [Replace("softmax", "expand")])


def test_expand_stays_when_reader_behind_bypass_does_not_broadcast() -> None:
    # ``relu`` hands ``expand`` on to one that does not broadcast.
    nodes: Nodes = {**NORMED, "relu": "expand", "mm": "relu"}
    edited = apply(whole(skeleton(nodes)), [Bypass("relu", "expand")])
    assert not View(edited).can_bypass("expand", "row")
    with pytest.raises(InvalidEdit, match="mm"):
        apply(edited, [TO_ROW])


@pytest.mark.parametrize(
    "base",
    [
        Node("", Role.INPUT, value=ROW),  # other memory: a sum, not a view
        Node("", Role.INPUT, value=TensorType("int32", ("1", "3")), storage=0),
        Node("", Role.INPUT, value=TensorType("float32", ("2", "1", "3")), storage=0),
        Node("", Role.INPUT, value=TensorType("float32", ("3", "3")), storage=0),
        Node("", Role.INPUT, value=TensorType("float32", ()), storage=0),
    ],
)
def test_expand_is_bypassed_only_to_its_broadcastable_base(base: Node) -> None:
    assert is_expand_kept({**NORMED, "row": base})


def test_symbolic_size_broadcasts_with_one_and_with_itself() -> None:
    open_type = TensorType("float32", ("s", "8"))
    nodes: Nodes = {
        "x": feed(value=open_type),
        "row": Node("", Role.INPUT, value=TensorType("float32", ("s", "1")), storage=0),
        "expand": expand(value=open_type),
        "div": operator("x expand", value=open_type, pointwise=True),
    }
    assert apply(whole(skeleton(nodes)), [TO_ROW]).operators == ("div",)


@given(candidates(), st.data())
def test_candidates_have_no_misfitting_readers(
    candidate: Candidate, data: st.DataObject
) -> None:
    assert find_misfitting_readers(candidate) == []
    edits = data.draw(edits_of(candidate))
    try:
        edited = apply(candidate, edits)
    except InvalidEdit:
        return
    assert find_misfitting_readers(edited) == []


@given(candidates())
def test_bypass_allowed_by_view_is_accepted_by_apply(candidate: Candidate) -> None:
    view = View(candidate)
    for name in view.operators:
        for operand in view.operands(name):
            if view.can_bypass(name, operand) and len(view.operators) > 1:
                apply(candidate, [Bypass(name, operand)])
