"""Strategies for operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import (
    Bypass,
    Drop,
    Merge,
    Replace,
    Specialisation,
    Specialise,
)
from shrinkfx.program.skeleton import FreeSize, Role, Skeleton, TensorType
from shrinkfx.program.view import NO_SUSPECTS, View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import (
    BypassInBranches,
    BypassOperators,
    CutPrefix,
    CutSuffix,
    DropModules,
    DropNodes,
    DropOutputs,
    KeepSuspects,
    MergeInputs,
    ReplaceOperators,
    SpecializeDims,
)
from shrinkfx.testing import (
    HALVES,
    ROW,
    FakeOracle,
    Nodes,
    calls,
    chain,
    check_strategy,
    feed,
    inner,
    needs,
    operator,
    projection,
    skeleton,
    subgraph,
    whole,
)

FORTY = [f"n{i}" for i in range(40)]
LINE = whole(chain("x", *FORTY))


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
    assert kept(LINE, {"n19": 0.1})[-1] == {*FORTY[:20]}
    assert kept(LINE, {"n39": 0.1})[-1] == {*FORTY[31:]}


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


def test_keep_outputs_drops_each_slice_biggest_first() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "both", "c": "b", "d": "c"}
    view = View(whole(skeleton(nodes)))
    assert list(DropOutputs().propose(view)) == [
        Drop(frozenset({"b", "c", "d"})),
        Drop(frozenset({"a"})),
    ]


def test_keep_outputs_leaves_a_single_output_alone() -> None:
    assert list(DropOutputs().propose(View(whole(chain("x", "relu"))))) == []


def test_keep_outputs_separates_the_parts_of_a_cut_program() -> None:
    cut = apply(whole(chain("x", "a", "b", "c", "d")), [Drop(frozenset({"b"}))])
    assert list(DropOutputs().propose(View(cut))) == [
        Drop(frozenset({"c", "d"})),
        Drop(frozenset({"a"})),
    ]


def test_keep_outputs_drops_suspects_last() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "both", "c": "b", "d": "c"}
    view = View(whole(skeleton(nodes)), {"c": 0.5})
    assert list(DropOutputs().propose(view)) == [
        Drop(frozenset({"a"})),
        Drop(frozenset({"b", "c", "d"})),
    ]


def test_keep_outputs_leaves_small_slices_alone() -> None:
    line = {"x": "", **{f"n{i}": f"n{i - 1}" for i in range(1, 20)}, "a": "x"}
    program = skeleton({"x": "", "n0": "x", **line})
    edits = list(DropOutputs().propose(View(whole(program))))
    assert [len(edit.nodes) for edit in edits] == [20]


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


def model(**modules: int) -> Nodes:
    """A chain through modules of so many operators; ``_`` stands for a dot."""
    nodes: dict[str, object] = {"x": ""}
    for module, length in modules.items():
        for i in range(length):
            previous, scope = list(nodes)[-1], module.replace("_", ".")
            nodes[f"{module}{i}"] = operator(previous, scope=scope)
    return nodes  # type: ignore[return-value]


def proposed(nodes: Nodes) -> list[set[str]]:
    """Name the modules that are proposed, each by the scopes of its operators."""
    edits = list(DropModules().propose(View(whole(skeleton(nodes)))))
    assert all(isinstance(edit, Drop) for edit in edits)
    return [{name.rstrip("0123456789") for name in edit.nodes} for edit in edits]


def test_module_cuts_proposes_the_biggest_and_last_module_first() -> None:
    nodes = model(stem=4, one=6, two=6)
    assert proposed(nodes) == [{"two"}, {"one"}, {"stem"}]


def test_module_cuts_drops_nested_modules_together() -> None:
    nodes = model(block_attn=4, block_mlp=5, head=4)
    assert proposed(nodes) == [{"block_attn", "block_mlp"}, {"head"}]


def test_module_cuts_looks_inside_a_single_module() -> None:
    assert proposed(model(block_attn=4, block_mlp=5)) == [
        {"block_mlp"},
        {"block_attn"},
    ]


def test_module_cuts_leaves_small_modules_alone() -> None:
    assert proposed(model(body=100, tail=5, bit=3)) == [{"body"}]


def test_module_cuts_proposes_nothing_without_modules() -> None:
    nodes: Nodes = {"x": "", **{f"n{i}": operator("x") for i in range(9)}}
    assert proposed(nodes) == []


def test_module_cuts_obeys_the_strategy_laws() -> None:
    check_strategy(DropModules(), whole(skeleton(model(one=6, two_a=5, two_b=5))))


def test_one_module_of_twelve_is_found_in_thirteen_queries() -> None:
    names = [f"b{chr(97 + i)}" for i in range(12)]
    start = whole(skeleton(model(**dict.fromkeys(names, 8))))
    oracle = FakeOracle(needs("bf3"))
    reducer = Reducer(start, Asker(oracle), [DropModules()])
    assert len(reducer.run().operators) == 8
    assert len(oracle.asked) <= 13


def layers(count: int, length: int = 4) -> Nodes:
    """A chain through equal layers, then a head."""
    nodes: dict[str, object] = {"x": ""}
    for number in range(count):
        for i in range(length):
            nodes[f"op{i}_{number}"] = operator([*nodes][-1], scope=f"layers.{number}")
    for i in range(length):
        nodes[f"out{i}_0"] = operator([*nodes][-1], scope="layers.head")
    return nodes  # type: ignore[return-value]


def kept_layers(
    nodes: Nodes, suspects: Mapping[str, float] = NO_SUSPECTS
) -> list[set[str]]:
    """Name the layers that are left after each proposal."""
    view = View(whole(skeleton(nodes)), suspects)
    return [
        {view.skeleton.node(n).scope[7:] for n in {*view.operators} - edit.nodes}
        for edit in DropModules().propose(view)
    ]


@pytest.mark.parametrize("count", [4, 40])
def test_module_cuts_keeps_one_or_half_of_equal_layers(count: int) -> None:
    first, half = {str(i) for i in range(count // 2)}, count // 2
    last = {str(i) for i in range(half, count)}
    proposals = kept_layers(layers(count))
    assert proposals[:3] == [
        {str(count - 1), "head"},
        {*first, "head"},
        {*last, "head"},
    ]
    assert len(proposals) == (4 if count == 4 else 3)


def test_module_cuts_keeps_the_suspect_layer() -> None:
    assert kept_layers(layers(40), {"op2_7": 0.3}) == [
        {"7", "head"},
        {*map(str, range(20)), "head"},
    ]


def test_module_cuts_leaves_two_suspect_layers_alone() -> None:
    suspects = {"op2_7": 0.3, "op2_30": 0.1}
    assert kept_layers(layers(40), suspects) == []


def test_one_query_suffices_if_any_single_layer_fails() -> None:
    oracle = FakeOracle(calls("aten.op2.default"))
    reducer = Reducer(whole(skeleton(layers(40))), Asker(oracle), [DropModules()])
    assert len(reducer.run(lambda best: len(best.keep) <= 8).keep) == 8
    assert len(oracle.asked) == 1


def test_one_culprit_layer_of_forty_is_found_by_halving() -> None:
    oracle = FakeOracle(needs("op2_13"))
    reducer = Reducer(whole(skeleton(layers(40))), Asker(oracle), [DropModules()])
    assert {n.split("_")[1] for n in reducer.run().keep} == {"13"}
    assert len(oracle.asked) <= 16


def program(sizes: dict[str, FreeSize]) -> Skeleton:
    """Make a chain of operators on an input that has these sizes."""
    value = TensorType("float32", tuple(sizes))
    names = ("x", "norm", "tanh", "mul")
    nodes = {name: operator(before, value=value) for before, name in pairwise(names)}
    return skeleton({"x": feed(value=value), **nodes}, sizes=sizes)


def reduced(
    sizes: dict[str, FreeSize], open_as: Callable[[Candidate], bool]
) -> Candidate:
    """Reduce a failure of ``tanh`` that needs sizes to be as ``open_as`` says."""
    oracle = FakeOracle(lambda c: "tanh" in c.keep and open_as(c))
    return Reducer(whole(program(sizes)), Asker(oracle), choose(None)).run()


ONLY_ONE_MATTERS = {"b": FreeSize(("b",), 1, 1), "t": FreeSize(("t",), 32, 33)}


def test_dims_of_equal_size_in_both_runs_are_proposed_static() -> None:
    view = View(whole(program(ONLY_ONE_MATTERS)))
    assert list(SpecializeDims().propose(view)) == [
        Specialise("b", Specialisation.STATIC),
        Specialise("t", Specialisation.NARROW),
    ]


def test_program_without_free_sizes_gives_no_proposals() -> None:
    assert list(SpecializeDims().propose(View(whole(program({}))))) == []


def test_only_the_relevant_dim_stays_dynamic() -> None:
    best = reduced(ONLY_ONE_MATTERS, lambda _: True)
    assert best.operators == ("tanh",)
    assert best.sizes == {"b": Specialisation.STATIC, "t": Specialisation.NARROW}


def test_dim_that_the_failure_needs_is_not_specialised() -> None:
    best = reduced(ONLY_ONE_MATTERS, lambda c: "b" not in c.sizes)
    assert best.sizes == {"t": Specialisation.NARROW}


def test_only_one_of_two_equal_dims_stays_dynamic() -> None:
    equal = {"s": FreeSize(("s",), 3, 2), "t": FreeSize(("t",), 2, 2)}
    best = reduced(equal, lambda _: True)
    assert best.sizes == {"s": Specialisation.NARROW, "t": Specialisation.STATIC}


def test_derived_dim_becomes_plain_if_possible() -> None:
    sizes = {"3*t + 1": FreeSize(("t",), 10, 13), "t": FreeSize(("t",), 3, 4)}
    value, other = TensorType("float32", ("3*t + 1",)), TensorType("float32", ("t",))
    nodes = {
        "coarse": feed(value=other),
        "fine": feed(value=value),
        "cos": operator("fine", value=value),
        "add": operator("cos coarse", value=value),
    }
    start = whole(skeleton(nodes, sizes=sizes))
    alone = Reducer(
        start, Asker(FakeOracle(lambda c: "cos" in c.keep)), choose(None)
    ).run()
    assert alone.inputs == ("fine",)
    assert alone.sizes == {"3*t + 1": Specialisation.PLAIN}

    related = FakeOracle(
        lambda c: "cos" in c.keep and Specialisation.PLAIN not in {*c.sizes.values()}
    )
    assert Reducer(start, Asker(related), choose(None)).run().sizes == {
        "t": Specialisation.NARROW
    }


def test_drop_nodes_proposes_every_operator_last_first() -> None:
    view = View(whole(chain("x", "relu", "tanh")))
    assert list(DropNodes().propose(view)) == [
        Drop(frozenset({"tanh"})),
        Drop(frozenset({"relu"})),
    ]


def test_drop_nodes_drops_an_operator_with_its_projections() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    view = View(whole(skeleton(nodes)))
    assert list(DropNodes().propose(view)) == [Drop(frozenset({"two"}))]


def test_drop_nodes_drops_suspects_last_by_rising_weight() -> None:
    suspects = {"tanh": 1.0, "exp": 0.2}
    view = View(whole(chain("x", "relu", "tanh", "abs", "exp")), suspects)
    order = [name for edit in DropNodes().propose(view) for name in edit.nodes]
    assert order == ["abs", "relu", "exp", "tanh"]


def test_bypass_reads_the_operand_of_equal_type() -> None:
    view = View(whole(chain("x", "relu", "tanh")))
    assert list(BypassOperators().propose(view)) == [
        Bypass("tanh", "relu"),
        Bypass("relu", "x"),
    ]


def test_bypass_skips_operands_of_another_type() -> None:
    nodes: Nodes = {
        "x": feed(value=HALVES),
        "half": operator("x", value=HALVES),
        "up": "half",
        "b": "up",
    }
    view = View(whole(skeleton(nodes)))
    assert list(BypassOperators().propose(view)) == [
        Bypass("b", "up"),
        Bypass("half", "x"),
    ]


def test_bypass_reads_an_ancestor_above_operands_of_another_type() -> None:
    nodes: Nodes = {
        "x": "",
        "a": "x",
        "half": operator("a", value=HALVES),
        "mask": operator("x", value=HALVES),
        "mul": operator("half mask", value=HALVES),
        "back": "mul",
    }
    edited = apply(whole(skeleton(nodes)), [Bypass("mul", "half")])
    assert list(BypassOperators().propose(View(edited))) == [
        Bypass("back", "a"),
        Bypass("a", "x"),
    ]


def test_bypass_stops_at_inputs_of_a_cut_program() -> None:
    nodes: Nodes = {"x": "", "half": operator("x", value=HALVES), "back": "half"}
    cut = apply(whole(skeleton(nodes)), [Drop(frozenset({"half"}))])
    assert list(BypassOperators().propose(View(cut))) == []


def test_bypass_removes_an_expand_only_if_all_users_broadcast() -> None:
    nodes: Nodes = {
        "x": "",
        "norm": operator("x", value=ROW, storage=0),
        "expand": operator("norm", storage=0),
        "div": operator("x expand", pointwise=True),
    }
    without = [Bypass("div", "x"), Bypass("div", "expand")]
    view = View(whole(skeleton(nodes)))
    assert list(BypassOperators().propose(view)) == [*without, Bypass("expand", "norm")]
    view = View(whole(skeleton({**nodes, "mm": "x expand"})))
    assert Bypass("expand", "norm") not in set(BypassOperators().propose(view))


def test_search_removes_an_expand_between_two_culprits() -> None:
    nodes: Nodes = {
        "x": "",
        "sum": operator("x", value=ROW),
        "norm": operator("sum", value=ROW, storage=0),
        "expand": operator("norm", storage=0),
        "div": operator("x expand", pointwise=True),
    }

    def fails(candidate: Candidate) -> bool:
        return "div" in candidate.keep and "norm" in flowing(candidate)

    def flowing(candidate: Candidate) -> set[str]:
        read, stack = set[str](), ["div"]
        while stack:
            new = candidate.producers(stack.pop()) - read
            read |= new
            stack += new
        return read

    asker = Asker(FakeOracle(fails))
    reducer = Reducer(whole(skeleton(nodes)), asker, choose(None))
    assert reducer.run().operators == ("norm", "div")


def test_bypass_proposes_each_fitting_operand_once() -> None:
    nodes: Nodes = {"x": "", "w": feed(Role.PARAMETER), "a": "x", "add": "a w x"}
    edited = apply(whole(skeleton(nodes)), [Bypass("a", "x")])
    assert list(BypassOperators().propose(View(edited))) == [
        Bypass("add", "x"),
        Bypass("add", "w"),
    ]


def test_bypass_replaces_one_value_of_a_multi_output_operator() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    program = skeleton({**nodes, "half": projection("two", HALVES), "b": "one half"})
    assert list(BypassOperators().propose(View(whole(program)))) == [
        Bypass("b", "one"),
        Bypass("two", "x"),
    ]


def test_bypass_proposes_suspects_last() -> None:
    view = View(whole(chain("x", "relu", "tanh")), {"tanh": 0.5})
    assert list(BypassOperators().propose(view)) == [
        Bypass("relu", "x"),
        Bypass("tanh", "relu"),
    ]


BODY: Nodes = {
    "body.h": inner(),
    "body.half": inner("body.h", HALVES),
    "body.sin": inner("body.half"),
    "body.tanh": inner("body.sin"),
}


def test_bypass_inside_reads_an_operand_or_an_earlier_value() -> None:
    loop = operator("x body")
    program = skeleton({"x": "", **BODY, "body": subgraph("body.tanh"), "loop": loop})
    assert list(BypassInBranches().propose(View(whole(program)))) == [
        Bypass("body.tanh", "body.sin"),
        Bypass("body.sin", "body.h"),
    ]


def test_bypass_inside_does_not_read_values_of_another_subgraph() -> None:
    nodes: Nodes = {"x": "", **BODY, "body": subgraph("body.half")}
    other: Nodes = {"cond.h": inner(value=HALVES), "cond.up": inner("cond.h")}
    both = operator("x body cond")
    program = skeleton({**nodes, **other, "cond": subgraph("cond.up"), "loop": both})
    assert list(BypassInBranches().propose(View(whole(program)))) == []


def test_program_without_subgraphs_gives_no_proposals() -> None:
    assert list(BypassInBranches().propose(View(whole(chain("x", "relu"))))) == []


def test_search_keeps_only_the_culprit_in_a_loop_body() -> None:
    names = [f"body.n{i}" for i in range(40)]
    nodes = dict(zip(names, (inner(), *map(inner, names)), strict=False))
    loop = operator("x body", value=None, operators=40)
    program = skeleton(
        {
            "x": "",
            **nodes,
            "body": subgraph(names[-1]),
            "loop": loop,
            "h": projection("loop"),
        }
    )
    oracle = FakeOracle(lambda c: "body.n17" in c.subgraph_nodes)
    reducer = Reducer(whole(program), Asker(oracle), [BypassInBranches()])
    assert reducer.run().subgraph_nodes == ("body.n0", "body.n17")
    assert reducer.best.cost[0] == 2
    assert len(oracle.asked) < 20


def merge(*inputs: str) -> Merge:
    return Merge(frozenset(inputs))


def test_merge_pairs_adjacent_inputs_before_distant_ones() -> None:
    view = View(whole(skeleton({"x": "", "y": "", "z": "", "fma": "x y z"})))
    assert list(MergeInputs().propose(view)) == [
        merge("x", "y"),
        merge("y", "z"),
        merge("x", "z"),
    ]


def test_merge_pairs_only_inputs_of_equal_type() -> None:
    nodes: Nodes = {"x": "", "h": feed(value=HALVES), "y": "", "k": feed(value=HALVES)}
    view = View(whole(skeleton({**nodes, "cat": "x h y k"})))
    assert list(MergeInputs().propose(view)) == [merge("x", "y"), merge("h", "k")]


def test_merge_leaves_weights_alone() -> None:
    weights: Nodes = {"w": feed(Role.PARAMETER), "b": feed(Role.BUFFER)}
    view = View(whole(skeleton({"x": "", **weights, "fma": "x w b"})))
    assert list(MergeInputs().propose(view)) == []


def test_merge_pairs_values_that_were_cut() -> None:
    program = skeleton({"x": "", "a": "x", "b": "x", "add": "a b"})
    cut = apply(whole(program), [Drop(frozenset({"a", "b"}))])
    assert list(MergeInputs().propose(View(cut))) == [merge("a", "b")]


def test_merge_skips_inputs_that_are_not_tensors() -> None:
    numbers: Nodes = {"x": "", "n": operator("x", value=None)}
    program = skeleton({**numbers, "m": operator("x", value=None), "a": "x n m"})
    cut = apply(whole(program), [Drop(frozenset({"n", "m"}))])
    assert cut.inputs == ("x", "n", "m")
    assert list(MergeInputs().propose(View(cut))) == []


def test_replace_reads_the_operand_of_equal_type() -> None:
    view = View(whole(chain("x", "gelu", "roll")))
    assert list(ReplaceOperators().propose(view)) == [
        Replace("roll", "gelu"),
        Replace("gelu", "x"),
    ]


def test_replace_reads_its_own_value_if_no_operand_fits() -> None:
    weight = feed(Role.PARAMETER, HALVES)
    view = View(whole(skeleton({"h": feed(value=HALVES), "w": weight, "mm": "h w"})))
    assert list(ReplaceOperators().propose(view)) == [Replace("mm", "mm")]


def test_replace_reads_the_source_of_a_bypass() -> None:
    cut = apply(whole(chain("x", "gelu", "roll")), [Bypass("gelu", "x")])
    assert list(ReplaceOperators().propose(View(cut))) == [Replace("roll", "x")]


def test_replace_skips_simple_and_non_tensor_operators() -> None:
    nodes: Nodes = {"x": "", "relu": "x", "sort": operator("relu", value=None)}
    view = View(whole(skeleton({**nodes, "one": projection("sort"), "add": "one x"})))
    assert list(ReplaceOperators().propose(view)) == []


def test_replace_does_not_repeat_a_proposal() -> None:
    plain = apply(whole(chain("x", "gelu", "roll")), [Replace("gelu", "gelu")])
    assert list(ReplaceOperators().propose(View(plain))) == [Replace("roll", "gelu")]


def test_replace_applies_to_impure_operators() -> None:
    rand = operator("", impure=True)
    view = View(whole(skeleton({"rand": rand, "relu": "rand"})))
    assert list(ReplaceOperators().propose(view)) == [Replace("rand", "rand")]


def test_replace_proposes_suspects_last() -> None:
    view = View(whole(chain("x", "gelu", "roll")), {"roll": 0.5})
    assert list(ReplaceOperators().propose(view)) == [
        Replace("gelu", "x"),
        Replace("roll", "gelu"),
    ]
