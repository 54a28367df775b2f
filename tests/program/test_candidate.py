"""The normal form: one meaning, one digest."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs, is_expensive
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.program.skeleton import Role, Skeleton, TensorType
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
    return [
        (name, candidate.target(name), candidate.operands(name))
        for name in candidate.operators
    ]


# --- what an edit does


def test_dropped_operator_becomes_feed_of_its_users() -> None:
    candidate = apply(whole(ABCD), [drop("b")])
    assert candidate.operators == ("a", "c", "d")
    assert candidate.feeds == ("x", "b")
    assert candidate.sinks == ("a", "d")
    assert candidate.cost == (3, 3, 2, 0)


def test_bypassed_operator_leaves_candidate_connected() -> None:
    candidate = apply(whole(ABCD), [Bypass("b", "a")])
    assert candidate.operands("c") == ["a"]
    assert candidate.feeds == ("x",)
    assert candidate.sinks == ("d",)
    assert candidate.cost == (3, 3, 1, 0)


def test_chained_bypasses_resolve_to_the_end() -> None:
    candidate = apply(whole(ABCD), [Bypass("b", "a"), Bypass("c", "b")])
    assert candidate.bypass == {"c": "a"}
    assert candidate.operands("d") == ["a"]
    assert apply(candidate, [Bypass("a", "x")]).bypass == {"c": "x"}


def test_dropped_bypass_target_becomes_feed() -> None:
    candidate = apply(apply(whole(ABCD), [Bypass("b", "a")]), [drop("a")])
    assert candidate.operators == ("c", "d")
    assert candidate.feeds == ("a",)


def test_bypass_without_users_is_removed() -> None:
    candidate = apply(whole(ABCD), [Bypass("b", "a"), drop("c")])
    assert candidate.bypass == {}
    assert candidate == apply(whole(ABCD), [drop("b", "c")])


def test_earliest_target_wins_among_rival_bypasses() -> None:
    program = skeleton({"x": "", "a": "x", "b": "a x", "c": "b"})
    rivals: list[Edit] = [Bypass("b", "a"), Bypass("b", "x")]
    for edits in (rivals, rivals[::-1]):
        assert apply(whole(program), edits).operands("c") == ["x"]


def test_bypass_is_preferred_over_drop_of_same_node() -> None:
    both: list[Edit] = [drop("b"), Bypass("b", "a")]
    for edits in (both, both[::-1]):
        assert apply(whole(ABCD), edits) == apply(whole(ABCD), [Bypass("b", "a")])


def test_bypass_applies_only_to_values_of_same_type() -> None:
    program = skeleton(
        {
            "x": "",
            "two": operator("x", value=None),
            "same": projection("two"),
            "half": projection("two", HALVES),
            "add": "same half",
        }
    )
    candidate = apply(whole(program), [Bypass("two", "x")])
    assert candidate.operands("add") == ["x", "half"]
    assert candidate.feeds == ("x", "half")


def test_node_without_value_user_or_effect_is_dropped() -> None:
    nodes: Nodes = {
        "x": "",
        "a": "x",
        "check": operator("a", value=None),
        "n": size("check"),
    }
    program = skeleton({**nodes, "b": "a n"})
    assert whole(program).operators == ("a", "check", "b")
    assert apply(whole(program), [drop("b")]).operators == ("a",)


def test_operator_with_effect_is_kept() -> None:
    check = operator("a", value=None, impure=True)
    program = skeleton({"x": "", "a": "x", "check": check, "b": "a"})
    assert apply(whole(program), [drop("b")]).operators == ("a", "check")


# --- what a replacement does


def test_replaced_operator_leaves_candidate_connected() -> None:
    candidate = apply(whole(ABCD), [Replace("b", "a")])
    assert candidate.operators == ("a", "b", "c", "d")
    assert candidate.target("b") == "aten.abs.default"
    assert candidate.target("c") == "aten.c.default"
    assert candidate.operands("b") == ["a"]
    assert candidate.producers("b") == {"a"}
    assert candidate.feeds == ("x",)
    assert candidate.cost == (4, 3, 1, 0)


def test_replacement_reads_value_of_replaced_operator_as_feed() -> None:
    nodes: Nodes = {"x": "", "h": feed(value=HALVES), "mm": "h", "a": "mm"}
    candidate = apply(whole(skeleton(nodes)), [Replace("mm", "mm")])
    assert candidate.operands("mm") == ["mm"]
    assert candidate.operands("a") == ["mm"]
    assert candidate.producers("mm") == set()
    assert candidate.producers("a") == {"mm"}
    assert candidate.feeds == candidate.inputs == ("mm",)
    assert candidate.sinks == ("a",)


def test_replaced_higher_order_operator_costs_one() -> None:
    cond = operator("x", operators=5)
    candidate = whole(skeleton({"x": "", "cond": cond, "a": "cond"}))
    assert apply(candidate, [Replace("cond", "x")]).cost == (2, 1, 1, 0)


def test_replacement_operand_follows_bypass_and_drop() -> None:
    candidate = apply(whole(ABCD), [Replace("c", "b")])
    assert apply(candidate, [Bypass("b", "a")]).replace == {"c": "a"}
    cut = apply(candidate, [drop("b")])
    assert cut.replace == {"c": "b"}
    assert cut.feeds == ("x", "b")


def test_edits_of_operands_of_replaced_operator_are_removed() -> None:
    program = skeleton({"x": "", "a": "x", "b": "a x", "c": "b"})
    candidate = apply(whole(program), [Bypass("a", "x"), Replace("b", "b")])
    assert candidate.bypass == {}
    assert apply(candidate, [drop("b")]).replace == {}


def test_removal_is_preferred_over_replacement() -> None:
    for removal in (drop("b"), Bypass("b", "a")):
        both: list[Edit] = [removal, Replace("b", "a")]
        for edits in (both, both[::-1]):
            assert apply(whole(ABCD), edits) == apply(whole(ABCD), [removal])


def test_earliest_operand_wins_among_rival_replacements() -> None:
    rivals: list[Edit] = [Replace("b", "b"), Replace("b", "a"), Replace("b", "x")]
    for edits in (rivals, rivals[::-1]):
        assert apply(whole(ABCD), edits).replace == {"b": "x"}


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        ("float16", "abs"),
        ("int64", "abs"),
        ("uint8", "abs"),
        ("bool", "logical_not"),
        ("complex64", "neg"),
    ],
)
def test_replacement_operator_depends_on_dtype(dtype: str, target: str) -> None:
    mm = operator("x", value=TensorType(dtype, ("2",)))
    candidate = apply(whole(skeleton({"x": "", "mm": mm})), [Replace("mm", "mm")])
    assert candidate.target("mm") == f"aten.{target}.default"
    assert candidate.cost == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("target", "dear"),
    [
        ("aten.mm.default", True),
        ("aten.scaled_dot_product_attention.default", True),
        ("aten.gelu.default", True),
        ("aten.add.Tensor", False),
        ("aten.add_.Tensor", False),
        ("aten._to_copy.default", False),
        ("aten.view.default", False),
        ("mine.add.default", True),
        ("cond", True),
    ],
)
def test_operators_worth_replacing_are_expensive(target: str, dear: bool) -> None:
    assert is_expensive(target) is dear


# --- what merging inputs does

THREE = skeleton({"x": "", "y": "", "z": "", "fma": "x y z", "neg": "z"})


def merge(*inputs: str) -> Merge:
    return Merge(frozenset(inputs))


def test_merged_inputs_become_the_first_input() -> None:
    candidate = apply(whole(THREE), [merge("z", "y")])
    assert candidate.operands("fma") == ["x", "y", "y"]
    assert candidate.operands("neg") == ["y"]
    assert candidate.inputs == ("x", "y")
    assert candidate.cost == (2, 1, 2, 0)


def test_overlapping_merges_become_one_merge() -> None:
    overlapping: list[Edit] = [merge("y", "z"), merge("x", "y")]
    at_once = apply(whole(THREE), [merge("x", "y", "z")])
    for edits in (overlapping, overlapping[::-1]):
        assert apply(whole(THREE), edits) == at_once
    in_turn = apply(apply(whole(THREE), [merge("y", "z")]), [merge("x", "y")])
    assert in_turn == at_once
    assert at_once.bypass == {"y": "x", "z": "x"}


def test_merge_without_users_is_removed() -> None:
    candidate = apply(whole(THREE), [merge("x", "y"), drop("fma")])
    assert candidate == apply(whole(THREE), [drop("fma")])
    assert candidate.bypass == {}


def test_merged_inputs_keep_their_value_after_drop() -> None:
    program = skeleton({"x": "", "y": "", "a": "x", "b": "y"})
    candidate = apply(apply(whole(program), [merge("x", "y")]), [drop("a")])
    assert candidate.feeds == ("x",)


def test_bypass_equals_drop_followed_by_merge() -> None:
    bypassed = apply(whole(ABCD), [Bypass("a", "x")])
    program = skeleton({"x": "", "a": "x", "b": "x a"})
    merged = apply(apply(whole(program), [drop("a")]), [merge("x", "a")])
    assert merged == apply(whole(program), [Bypass("a", "x")])
    assert bypassed.bypass == {"a": "x"}


def test_own_value_of_replaced_operator_merges_into_other_input() -> None:
    nodes: Nodes = {"h": feed(value=HALVES), "mm": "h", "z": "", "add": "mm z"}
    candidate = apply(whole(skeleton(nodes)), [Replace("mm", "mm")])
    merged = apply(candidate, [merge("mm", "z")])
    assert merged.replace == {"mm": "z"}
    assert merged.operands("add") == ["mm", "z"]
    assert merged.inputs == ("z",)
    assert merged.producers("add") == {"mm"}


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
        (Replace("e", "a"), "not in the candidate: e"),
        (Replace("b", "h"), "h is no value of the type of b"),
        (Replace("b", "c"), "c does not come before b"),
    ],
)
def test_edit_that_does_not_fit_is_refused(edit: Edit, message: str) -> None:
    nodes: Nodes = {
        "x": "",
        "h": feed(value=HALVES),
        "a": "x",
        "b": "a",
        "c": "b",
        "d": "c",
    }
    with pytest.raises(InvalidEdit, match=message):
        apply(whole(skeleton(nodes)), [edit])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Replace("neg", "x"), "neg is plain"),
        (Replace("two", "x"), "two is plain, or yields no single tensor"),
        (merge("x", "neg"), "no inputs: neg"),
        (merge("x", "w"), "no inputs: w"),
        (merge("x", "h"), "not of one type: h, x"),
        (merge("n", "m"), "not of one type: m, n"),
    ],
)
def test_replacement_or_merge_of_unsuitable_values_is_refused(
    edit: Edit, message: str
) -> None:
    number = operator("x", value=None)
    nodes: Nodes = {
        "x": "",
        "h": feed(value=HALVES),
        "w": feed(Role.PARAMETER),
        "neg": "x w h",
        "two": operator("x", value=None),
        "one": projection("two"),
        "n": number,
        "m": number,
        "a": "one n m",
    }
    candidate = apply(whole(skeleton(nodes)), [drop("n", "m")])
    with pytest.raises(InvalidEdit, match=message):
        apply(candidate, [edit])


def test_replacing_an_operator_twice_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="b is plain"):
        apply(apply(whole(ABCD), [Replace("b", "a")]), [Replace("b", "x")])


def test_merging_only_own_values_of_replaced_operators_is_refused() -> None:
    program = skeleton({"x": "", "a": "x", "b": "x", "add": "a b"})
    candidate = apply(whole(program), [Replace("a", "a"), Replace("b", "b")])
    with pytest.raises(InvalidEdit, match="no input to stand for a, b"):
        apply(candidate, [merge("a", "b")])


def test_removing_an_operator_twice_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="not in the candidate: b"):
        apply(apply(whole(ABCD), [drop("b")]), [Bypass("b", "a")])


def test_candidate_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        whole(ABCD).keep = frozenset()  # type: ignore[misc]


# --- outputs


def test_outputs_are_original_only_where_that_returns_more_than_sinks() -> None:
    assert whole(ABCD).outputs is Outputs.SINKS
    inner = skeleton({"x": "", "a": "x", "b": "a"}, "a b")
    assert whole(inner).outputs is Outputs.ORIGINAL
    assert apply(whole(inner), [drop("b")]).outputs is Outputs.SINKS
    assert apply(whole(inner), [drop("a")]).outputs is Outputs.SINKS


COUNTER: Nodes = {"x": "", "h": feed(Role.BUFFER), "add": "x h", "mul": "x"}


@pytest.mark.parametrize("written", ["mul", "x"])
def test_outputs_are_original_when_buffer_is_written_and_read(written: str) -> None:
    program = skeleton(COUNTER, "add mul", [(written, "h")])
    assert whole(program).writes == {written: "h"}
    assert whole(program).returning(Outputs.SINKS).writes == {}
    assert apply(whole(program), [drop("add")]).outputs is Outputs.SINKS
    assert apply(whole(program), [drop("mul")]).writes == {
        value: "h" for value in [written] if value == "x"
    }


def test_fed_value_is_written_to_buffer_like_computed_value() -> None:
    nodes = {**COUNTER, "more": "mul"}
    candidate = apply(whole(skeleton(nodes, "add mul", [("mul", "h")])), [drop("mul")])
    assert candidate.feeds == ("x", "h", "mul")
    assert candidate.writes == {"mul": "h"}


def test_different_outputs_have_different_digests() -> None:
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


def test_feeds_exclude_sizes_and_inputs_exclude_weights() -> None:
    weights = {"w": feed(Role.PARAMETER), "k": feed(Role.CONSTANT)}
    nodes: Nodes = {"x": "", **weights, "a": "x", "n": size("a"), "view": "w k x n"}
    candidate = apply(whole(skeleton(nodes)), [drop("a")])
    assert candidate.feeds == ("x", "w", "k")
    assert candidate.inputs == ("x",)
    assert candidate.cost == (1, 0, 1, 0)


def test_size_counts_as_use_of_the_operator_it_is_read_from() -> None:
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


def test_cost_counts_operators_inside_higher_order_operators() -> None:
    cond = operator("x", operators=5)
    assert whole(skeleton({"x": "", "cond": cond, "a": "cond"})).cost == (6, 2, 1, 0)


# --- the view


def test_view_slices_contain_nodes_needed_by_only_one_sink() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "a", "c": "both"}
    view = View(whole(skeleton(nodes)))
    assert view.sinks == ("b", "c")
    assert view.slices() == [{"a", "b"}, {"c"}]


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
def test_candidate_round_trips_through_json(candidate: Candidate) -> None:
    data = json.loads(json.dumps(candidate.to_json()))
    again = Candidate.from_json(candidate.skeleton, data)
    assert again == candidate
    assert again.digest == candidate.digest
    assert again.cost == candidate.cost


@given(candidates())
def test_candidate_is_its_own_normal_form(candidate: Candidate) -> None:
    assert apply(candidate, []) == candidate
    assert candidate.returning(candidate.outputs) == candidate


@given(candidates(), st.data())
def test_edits_are_order_independent(candidate: Candidate, data: st.DataObject) -> None:
    edits = data.draw(edits_of(candidate))
    shuffled = data.draw(st.permutations(edits))
    assert edited(candidate, edits) == edited(candidate, shuffled)


@given(candidates(), st.data())
def test_digests_are_equal_exactly_for_equal_meanings(
    candidate: Candidate, data: st.DataObject
) -> None:
    one = edited(candidate, data.draw(edits_of(candidate)))
    two = edited(candidate, data.draw(edits_of(candidate)))
    if one is not None and two is not None and one.outputs is two.outputs:
        assert (meaning(one) == meaning(two)) == (one.digest == two.digest)


@given(candidates(), st.data())
def test_edits_applied_together_equal_edits_applied_in_turn(
    candidate: Candidate, data: st.DataObject
) -> None:
    # What a replaced operator does not read is forgotten: bypassing that operand and
    # then the operator hands on the operand itself, where both at once do not.
    open_to_it = [n for n in candidate.operators if n not in candidate.replace]
    nodes = data.draw(st.permutations(open_to_it))
    nodes = nodes[: data.draw(st.integers(0, len(nodes)))]
    edits = [shorten(candidate, n, data.draw(st.booleans())) for n in nodes]
    in_turn: Candidate | None = candidate
    for edit in edits:
        in_turn = in_turn and edited(in_turn, [edit])
    together = edited(candidate, edits)
    if together is not None and in_turn is not None:
        assert meaning(together) == meaning(in_turn)


def shorten(candidate: Candidate, node: str, replace: bool) -> Edit:
    """Replace an operator where asked to, bypass it where that fits, or drop it."""
    view = View(candidate)
    same = [v for v in view.operands(node) if view.same_value_type(node, v)]
    if replace and node in view.replaceable:
        return Replace(node, same[0] if same else node)
    return Bypass(node, same[0]) if same else drop(node)


def edited(candidate: Candidate, edits: list[Edit]) -> Candidate | None:
    try:
        return apply(candidate, edits)
    except InvalidEdit:
        return None


def test_different_programs_have_different_digests() -> None:
    program: Skeleton = chain("x", "a", "b", "c", "e")
    assert whole(program).digest != whole(ABCD).digest
    assert whole(ABCD).digest == whole(chain("x", "a", "b", "c", "d")).digest
