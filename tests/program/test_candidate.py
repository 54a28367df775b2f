"""The normal form: one meaning, one digest."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.view import View
from shrinkfx.testing import (
    HALVES,
    Nodes,
    candidates,
    chain,
    edits_of,
    feed,
    operator,
    projection,
    size,
    skeleton,
    whole,
)

ABCD = chain("x", "a", "b", "c", "d")


def drop(*nodes: str) -> Drop:
    return Drop(frozenset(nodes))


def meaning(candidate: Candidate) -> list[object]:
    """Spell out what the worker would build from a candidate."""
    return [(name, candidate.operands(name)) for name in candidate.operators]


# --- what an edit does


def test_candidate_drops_and_feeds_the_users_from_outside() -> None:
    candidate = whole(ABCD).edit([drop("b")])
    assert candidate.operators == ("a", "c", "d")
    assert candidate.feeds == ("x", "b")
    assert candidate.sinks == ("a", "d")
    assert candidate.cost == (3, 2)


def test_candidate_bypasses_and_stays_connected() -> None:
    candidate = whole(ABCD).edit([Bypass("b", "a")])
    assert candidate.operands("c") == ["a"]
    assert candidate.feeds == ("x",)
    assert candidate.sinks == ("d",)
    assert candidate.cost == (3, 1)


def test_candidate_follows_a_chain_of_bypasses_to_its_end() -> None:
    candidate = whole(ABCD).edit([Bypass("b", "a"), Bypass("c", "b")])
    assert candidate.bypass == {"c": "a"}
    assert candidate.operands("d") == ["a"]
    assert candidate.edit([Bypass("a", "x")]).bypass == {"c": "x"}


def test_candidate_feeds_what_a_bypass_hands_on_once_it_is_dropped() -> None:
    candidate = whole(ABCD).edit([Bypass("b", "a")]).edit([drop("a")])
    assert candidate.operators == ("c", "d")
    assert candidate.feeds == ("a",)


def test_candidate_forgets_bypasses_that_nobody_takes() -> None:
    candidate = whole(ABCD).edit([Bypass("b", "a"), drop("c")])
    assert candidate.bypass == {}
    assert candidate == whole(ABCD).edit([drop("b", "c")])


def test_candidate_takes_the_earliest_of_rival_bypasses() -> None:
    program = skeleton({"x": "", "a": "x", "b": "a x", "c": "b"})
    rivals: list[Edit] = [Bypass("b", "a"), Bypass("b", "x")]
    for edits in (rivals, rivals[::-1]):
        assert whole(program).edit(edits).operands("c") == ["x"]


def test_candidate_prefers_the_bypass_where_a_node_is_dropped_too() -> None:
    both: list[Edit] = [drop("b"), Bypass("b", "a")]
    for edits in (both, both[::-1]):
        assert whole(ABCD).edit(edits) == whole(ABCD).edit([Bypass("b", "a")])


def test_candidate_bypasses_only_the_values_of_the_type_handed_on() -> None:
    program = skeleton(
        {
            "x": "",
            "two": operator("x", value=None),
            "same": projection("two"),
            "half": projection("two", HALVES),
            "add": "same half",
        }
    )
    candidate = whole(program).edit([Bypass("two", "x")])
    assert candidate.operands("add") == ["x", "half"]
    assert candidate.feeds == ("x", "half")


def test_candidate_drops_what_has_neither_value_nor_user_nor_effect() -> None:
    nodes: Nodes = {
        "x": "",
        "a": "x",
        "check": operator("a", value=None),
        "n": size("check"),
    }
    program = skeleton({**nodes, "b": "a n"})
    assert whole(program).operators == ("a", "check", "b")
    assert whole(program).edit([drop("b")]).operators == ("a",)


def test_candidate_keeps_what_has_an_effect() -> None:
    check = operator("a", value=None, impure=True)
    program = skeleton({"x": "", "a": "x", "check": check, "b": "a"})
    assert whole(program).edit([drop("b")]).operators == ("a", "check")


# --- what an edit may not do


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop("e", "f"), "not in the candidate: e, f"),
        (drop("x"), "not in the candidate: x"),
        (drop("a", "b", "c", "d"), "nothing would be left"),
        (Bypass("e", "a"), "not in the candidate: e"),
        (Bypass("b", "nowhere"), "nowhere is no value of the type of b"),
        (Bypass("b", "h"), "h is no value of the type of b"),
        (Bypass("b", "c"), "c does not come before b"),
        (Bypass("b", "b"), "b does not come before b"),
    ],
)
def test_candidate_refuses_an_edit_that_does_not_fit(edit: Edit, message: str) -> None:
    nodes: Nodes = {
        "x": "",
        "h": feed(value=HALVES),
        "a": "x",
        "b": "a",
        "c": "b",
        "d": "c",
    }
    with pytest.raises(InvalidEdit, match=message):
        whole(skeleton(nodes)).edit([edit])


def test_candidate_refuses_to_remove_an_operator_twice() -> None:
    with pytest.raises(InvalidEdit, match="not in the candidate: b"):
        whole(ABCD).edit([drop("b")]).edit([Bypass("b", "a")])


def test_candidate_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        whole(ABCD).keep = frozenset()  # type: ignore[misc]


# --- outputs


def test_outputs_are_original_only_where_that_returns_more_than_sinks() -> None:
    assert whole(ABCD).outputs is Outputs.SINKS
    inner = skeleton({"x": "", "a": "x", "b": "a"}, "a b")
    assert whole(inner).outputs is Outputs.ORIGINAL
    assert whole(inner).edit([drop("b")]).outputs is Outputs.SINKS
    assert whole(inner).edit([drop("a")]).outputs is Outputs.SINKS


def test_outputs_that_differ_make_another_digest() -> None:
    candidate = whole(skeleton({"x": "", "a": "x", "b": "a"}, "a b"))
    fewer = candidate.returning(Outputs.SINKS)
    assert fewer.digest != candidate.digest
    assert fewer.cost == candidate.cost
    assert fewer.returning(Outputs.ORIGINAL) == candidate


def test_outputs_of_a_projection_count_for_its_operator() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    program = skeleton({**nodes, "other": projection("two"), "b": "one"}, "other b")
    assert whole(program).outputs is Outputs.ORIGINAL
    assert whole(program).sinks == ("b",)


# --- feeds, inputs, sizes, cost


def test_feeds_leave_sizes_out_and_inputs_leave_weights_out() -> None:
    weights = {"w": feed(Role.PARAMETER), "k": feed(Role.CONSTANT)}
    nodes: Nodes = {"x": "", **weights, "a": "x", "n": size("a"), "view": "w k x n"}
    candidate = whole(skeleton(nodes)).edit([drop("a")])
    assert candidate.feeds == ("x", "w", "k")
    assert candidate.inputs == ("x",)
    assert candidate.cost == (1, 1)


def test_sizes_count_as_use_of_the_operator_they_are_read_from() -> None:
    nodes: Nodes = {
        "x": "",
        "a": "x",
        "n": size("a"),
        "twice": size("n n"),
        "b": "x twice",
    }
    candidate = whole(skeleton(nodes))
    assert candidate.producers("b") == {"a"}
    assert candidate.sinks == ("b",)


def test_cost_counts_the_operators_inside_higher_order_ones() -> None:
    cond = operator("x", operators=5)
    assert whole(skeleton({"x": "", "cond": cond, "a": "cond"})).cost == (6, 1)


# --- the view


def test_view_finds_what_only_one_sink_needs() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "a", "c": "both"}
    view = View(whole(skeleton(nodes)))
    assert view.sinks == ("b", "c")
    assert view.only_for("b") == {"a", "b"}
    assert view.only_for("c") == {"c"}


def test_view_compares_types_with_every_value_of_an_operator() -> None:
    nodes: Nodes = {
        "x": "",
        "two": operator("x", value=None),
        "half": projection("two"),
    }
    program = skeleton({**nodes, "h": operator("half", value=HALVES), "n": size("h")})
    view = View(whole(program))
    assert view.same_value_type("two", "x")
    assert not view.same_value_type("h", "x")
    assert not view.same_value_type("two", "two")
    assert not view.same_value_type("two", "n")


# --- laws


@given(candidates())
def test_candidate_survives_json(candidate: Candidate) -> None:
    data = json.loads(json.dumps(candidate.to_json()))
    again = Candidate.from_json(candidate.skeleton, data)
    assert again == candidate
    assert again.digest == candidate.digest
    assert again.cost == candidate.cost


@given(candidates())
def test_candidate_is_its_own_normal_form(candidate: Candidate) -> None:
    assert candidate.edit([]) == candidate
    assert candidate.returning(candidate.outputs) == candidate


@given(candidates(), st.data())
def test_edits_mean_the_same_in_any_order(
    candidate: Candidate, data: st.DataObject
) -> None:
    edits = data.draw(edits_of(candidate))
    shuffled = data.draw(st.permutations(edits))
    assert edited(candidate, edits) == edited(candidate, shuffled)


@given(candidates(), st.data())
def test_equal_meaning_has_an_equal_digest(
    candidate: Candidate, data: st.DataObject
) -> None:
    one = edited(candidate, data.draw(edits_of(candidate)))
    two = edited(candidate, data.draw(edits_of(candidate)))
    if one is not None and two is not None and one.outputs is two.outputs:
        assert (meaning(one) == meaning(two)) == (one.digest == two.digest)


@given(candidates(), st.data())
def test_bundle_means_what_its_edits_mean_in_turn(
    candidate: Candidate, data: st.DataObject
) -> None:
    nodes = data.draw(st.lists(st.sampled_from(candidate.operators), unique=True))
    edits = [shorten(candidate, n) for n in nodes]
    in_turn: Candidate | None = candidate
    for edit in edits:
        in_turn = in_turn and edited(in_turn, [edit])
    together = edited(candidate, edits)
    if together is not None and in_turn is not None:
        assert meaning(together) == meaning(in_turn)


def shorten(candidate: Candidate, node: str) -> Edit:
    """Bypass an operator if one of its operands will do, else drop it."""
    view = View(candidate)
    for operand in view.operands(node):
        if view.same_value_type(node, operand):
            return Bypass(node, operand)
    return drop(node)


def edited(candidate: Candidate, edits: list[Edit]) -> Candidate | None:
    try:
        return candidate.edit(edits)
    except InvalidEdit:
        return None


def test_digest_tells_programs_apart() -> None:
    program: Skeleton = chain("x", "a", "b", "c", "e")
    assert whole(program).digest != whole(ABCD).digest
    assert whole(ABCD).digest == whole(chain("x", "a", "b", "c", "d")).digest
