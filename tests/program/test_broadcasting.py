"""Bypasses to a value of another shape: they fit where every reader broadcasts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.broadcasting import find_misfitting_readers, find_retyped_values
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


def refused(nodes: Nodes) -> bool:
    """Tell whether the expand of a program may not go, with the view agreed."""
    candidate = whole(skeleton(nodes))
    with pytest.raises(InvalidEdit):
        apply(candidate, [TO_ROW])
    return not View(candidate).can_bypass("expand", "row")


def test_what_an_expand_repeats_is_read_where_all_readers_broadcast() -> None:
    candidate = whole(skeleton(NORMED))
    assert View(candidate).can_bypass("expand", "row")
    edited = apply(candidate, [TO_ROW])
    assert edited.operators == ("div",)
    assert edited.operands("div") == ["x", "row"]
    assert find_retyped_values(edited) == {"expand"}


def test_full_shape_must_come_from_another_operand() -> None:
    assert refused({**NORMED, "neg": operator("expand", pointwise=True)})
    assert refused({**NORMED, "div_1": operator("row expand", pointwise=True)})


def test_reader_that_does_not_broadcast_keeps_the_expand() -> None:
    assert refused({**NORMED, "mm": "x expand"})
    assert refused({**NORMED, "n": size("expand")})
    both = operator("x expand", value=None, pointwise=True)
    assert refused({**NORMED, "two": both, "one": projection("two")})


def test_reader_that_is_gone_keeps_nothing() -> None:
    candidate = whole(skeleton({**NORMED, "mm": "x expand"}))
    assert apply(candidate, [Drop(frozenset({"mm"})), TO_ROW]).operators == ("div",)


def test_one_of_two_expands_stays() -> None:
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


def test_plain_operator_reads_no_other_shape() -> None:
    nodes: Nodes = {**NORMED, "softmax": "div expand"}
    edited = apply(whole(skeleton(nodes)), [Replace("softmax", "expand")])
    assert not View(edited).can_bypass("expand", "row")
    with pytest.raises(InvalidEdit, match="softmax"):
        apply(edited, [TO_ROW])
    nodes = {**NORMED, "softmax": "div"}
    edited = apply(whole(skeleton(nodes)), [TO_ROW])
    with pytest.raises(InvalidEdit, match="softmax"):
        apply(edited, [Replace("softmax", "expand")])


def test_reader_behind_another_bypass_counts() -> None:
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
def test_only_what_is_repeated_stands_for_it(base: Node) -> None:
    assert refused({**NORMED, "row": base})


def test_symbols_broadcast_with_one_and_with_themselves() -> None:
    open_type = TensorType("float32", ("s", "8"))
    nodes: Nodes = {
        "x": feed(value=open_type),
        "row": Node("", Role.INPUT, value=TensorType("float32", ("s", "1")), storage=0),
        "expand": expand(value=open_type),
        "div": operator("x expand", value=open_type, pointwise=True),
    }
    assert apply(whole(skeleton(nodes)), [TO_ROW]).operators == ("div",)


@given(candidates(), st.data())
def test_no_candidate_reads_what_does_not_fit(
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
def test_view_promises_what_apply_grants(candidate: Candidate) -> None:
    view = View(candidate)
    for name in view.operators:
        for operand in view.operands(name):
            if view.can_bypass(name, operand) and len(view.operators) > 1:
                apply(candidate, [Bypass(name, operand)])
