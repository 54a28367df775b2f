"""Any set of nodes is a program that computes what the original computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exported import export as export_module
from support.exported import make_program
from support.zoo import (
    ZOO,
    Loaded,
    as_exported,
    eager,
    load_program,
    loaded,
    real,
)
from torch.export import ExportedProgram

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import BypassOperators, MergeInputs, ReplaceOperators
from shrinkfx.worker.eager.intermediates import (
    SEED,
    call,
    run_eager,
)
from shrinkfx.worker.graph.describe import count_operators, describe
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate, rebuild
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import export_source, print_program, run_source


class HalvesInPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        base = x.clone()
        upper, lower = base.chunk(2)
        upper[0].mul_(2)
        return base + 1, lower.sin()


def test_values_that_share_memory_have_one_storage_number() -> None:
    skeleton = describe(make_program(HalvesInPlace(), torch.randn(4, 2)), "")
    numbers = {name: skeleton.node(name).storage for name in skeleton.graph}
    shared = {name for name, n in numbers.items() if n == numbers["clone"]}
    assert shared == {"clone", "chunk", "getitem", "getitem_1", "select", "mul_"}
    assert numbers["x"] is None
    assert numbers["sin"] is None


def expected(loaded: Loaded, candidate: Candidate) -> list[torch.Tensor]:
    """What the candidate must return: the original's values at its outputs."""
    _, skeleton, values = loaded
    names = [v for sink in candidate.sinks for v in skeleton.values(sink)]
    return [values.example(name) for name in names]


@pytest.mark.parametrize("name", ZOO)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rebuilt_program_computes_the_original_values(
    name: str, data: st.DataObject
) -> None:
    program, skeleton, values = loaded(name)
    whole = Candidate.from_skeleton(skeleton, Outputs.SINKS)
    dropped = data.draw(st.sets(st.sampled_from(skeleton.operators)))
    try:
        candidate = apply(whole, [Drop(frozenset(dropped))])
        built = real(program, candidate, values)
    except (InvalidEdit, CannotRebuild):
        return
    actual = eager(built.exported, built.failing)
    wanted = expected((program, skeleton, values), candidate)
    torch.testing.assert_close(actual, wanted, equal_nan=True)


@pytest.mark.parametrize("name", ZOO)
def test_each_single_operator_can_be_rebuilt(name: str) -> None:
    program, skeleton, values = loaded(name)
    whole = Candidate.from_skeleton(skeleton, Outputs.SINKS)
    for operator in skeleton.operators:
        if skeleton.node(operator).impure:
            continue  # an assertion alone returns nothing
        others = frozenset(skeleton.operators) - {operator}
        try:
            candidate = apply(whole, [Drop(others)])
        except InvalidEdit:
            continue
        built = real(program, candidate, values)
        assert built.exported.graph_module.graph.find_nodes(op="output")


@pytest.mark.parametrize("name", ZOO)
def test_whole_candidate_computes_the_results_of_the_input_program(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    actual = eager(built.exported, built.failing)
    wanted = eager(program.original, program.failing)
    torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("name", ZOO)
def test_printed_source_is_the_same_program(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(program, Candidate.from_skeleton(skeleton, Outputs.SINKS), values)
    again = run_source(print_program(built), built)
    actual = eager(again, built.failing)
    wanted = eager(built.exported, built.failing)
    torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("name", ZOO)
def test_rebuilt_program_can_be_saved_and_loaded(name: str, tmp_path: Path) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(program, Candidate.from_skeleton(skeleton, Outputs.SINKS), values)
    torch.export.save(built.exported, tmp_path / "minimal.pt2")
    again = torch.export.load(tmp_path / "minimal.pt2")
    actual = eager(again, built.failing)
    wanted = eager(built.exported, built.failing)
    torch.testing.assert_close(actual, wanted)


def dropping(name: str, *targets: str) -> Candidate:
    """The program without the operators of these targets."""
    _, skeleton, _ = loaded(name)
    nodes = {n for n in skeleton.operators if skeleton.node(n).target in targets}
    assert nodes
    return apply(Candidate.from_skeleton(skeleton), [Drop(frozenset(nodes))])


def shapes(built: RebuiltCandidate) -> list[tuple[bool, ...]]:
    """For each input, which of its dims are dynamic."""
    names = built.exported.graph_signature.user_inputs
    return [
        tuple(isinstance(s, torch.SymInt) for s in node.meta["val"].shape)
        for node in built.exported.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]


def test_dynamic_dims_stay_dynamic_when_a_value_is_cut() -> None:
    program, _, values = loaded("dynamic")
    built = rebuild(program, dropping("dynamic", "aten.cat.default"), values)
    assert (True, False) in shapes(built)
    assert built.exported.range_constraints


def test_rebuilt_dynamic_program_runs_at_another_size() -> None:
    program, skeleton, values = loaded("dynamic")
    built = rebuild(program, Candidate.from_skeleton(skeleton, Outputs.SINKS), values)
    x, y = torch.randn(9, 4), torch.randn(9, 4)
    module = built.exported.module(check_guards=False)
    actual = call(module, Inputs((x, y), {}))
    wanted = call(ZOO["dynamic"]()[0], Inputs((x, y), {}))
    shown = {tuple(w.shape): w for w in wanted}
    for value in actual:
        if tuple(value.shape) in shown:
            torch.testing.assert_close(value, shown[tuple(value.shape)])


def test_cut_value_keeps_gaps_in_its_strides() -> None:
    program, skeleton, values = loaded("several")
    slices = [n for n in skeleton.operators if "slice" in skeleton.node(n).target]
    candidate = apply(Candidate.from_skeleton(skeleton), [Drop(frozenset(slices))])
    built = rebuild(program, candidate, values)
    gaps = [a.stride() for a in built.failing.args if not a.is_contiguous()]
    assert gaps


def test_rebuilt_program_holds_only_needed_weights() -> None:
    program, _, values = loaded("weights")
    built = rebuild(program, dropping("weights", "aten.linear.default"), values)
    assert "linear.weight" not in built.exported.state_dict
    assert "scale" in built.exported.state_dict


def test_printed_source_keeps_default_arguments() -> None:
    # pytorch#183988 needs randperm's pin_memory=False, a default, to fail.
    program, skeleton, values = loaded("sizes_as_inputs")
    built = rebuild(program, Candidate.from_skeleton(skeleton, Outputs.SINKS), values)
    text = "\n".join(print_program(built).body)
    graph = built.exported.graph
    for node in graph.nodes:
        if node.op == "call_function":
            assert all(f"{name}=" in text for name in node.kwargs)


@pytest.mark.parametrize("name", ["in_place", "weights", "dynamic", "branches"])
def test_program_can_be_cut_with_its_in_place_operators(name: str) -> None:
    program, skeleton, values = as_exported(name)
    built = rebuild(
        program, Candidate.from_skeleton(skeleton, Outputs.ORIGINAL), values
    )
    wanted = eager(program.original, program.failing)
    actual = eager(built.exported, built.failing)
    shown = [a for a in actual if any(a.shape == w.shape for w in wanted)]
    assert any(torch.equal(a, w) for a in shown for w in wanted)


# --- what takes the place of something else


def carried(program: Program) -> set[str]:
    """The symbols that some input of the program has as a size."""
    values = [
        n.meta.get("val") for n in program.graph.graph.find_nodes(op="placeholder")
    ]
    return {
        str(size)
        for value in values
        if isinstance(value, torch.Tensor)
        for size in value.shape
        if isinstance(size, torch.SymInt)
    }


def check_types(loaded: Loaded, candidate: Candidate) -> None:
    """Rebuild, print, run in eager: types of inputs and results are the original's."""
    program, _, values = loaded
    built = real(program, candidate, values)
    check_dynamic(loaded, built.exported)
    actual = eager(built.exported, built.failing)
    if all(loaded[1].values(sink) for sink in candidate.sinks):
        # Of an operator that returns nothing, what it writes into is returned.
        wanted = expected(loaded, candidate)
        types = [(w.dtype, w.shape) for w in wanted]
        assert [(a.dtype, a.shape) for a in actual] == types
    again, _ = export_source(built)
    check_dynamic(loaded, again)
    torch.testing.assert_close(eager(again, built.failing), actual, equal_nan=True)


def check_dynamic(loaded: Loaded, exported: ExportedProgram) -> None:
    """See that a size is still a symbol, if an input of the program carries it."""
    program, skeleton, _ = loaded
    symbols = carried(program)
    for node in exported.graph.find_nodes(op="placeholder"):
        if node.name in skeleton and (said := skeleton.node(node.name).value):
            for size, symbol in zip(node.meta["val"].shape, said.shape, strict=True):
                assert isinstance(size, torch.SymInt) or symbol not in symbols


def proposals_for(candidate: Candidate) -> list[Edit]:
    view = View(candidate)
    return [*ReplaceOperators().propose(view), *MergeInputs().propose(view)]


FORMS = [loaded, as_exported]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ZOO)
def test_program_can_be_rebuilt_after_each_replacement_and_merge(
    name: str, form: Callable[[str], Loaded]
) -> None:
    whole = Candidate.from_skeleton(form(name)[1], Outputs.SINKS)
    for edit in proposals_for(whole):
        candidate = apply(whole, [edit])
        assert candidate.cost < whole.cost
        check_types(form(name), candidate)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ZOO)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_cut_program_can_be_rebuilt_after_replacements_and_merges(
    name: str, form: Callable[[str], Loaded], data: st.DataObject
) -> None:
    skeleton = form(name)[1]
    dropped = data.draw(st.sets(st.sampled_from(skeleton.operators)))
    try:
        candidate = apply(Candidate.from_skeleton(skeleton), [Drop(frozenset(dropped))])
        if edits := proposals_for(candidate):
            chosen = st.lists(st.sampled_from(edits), min_size=1, max_size=3)
            candidate = apply(candidate, data.draw(chosen)).returning(Outputs.SINKS)
        check_types(form(name), candidate)
    except (InvalidEdit, CannotRebuild):
        return


def plain(name: str, node: str, operand: str) -> RebuiltCandidate:
    """The program with a plain operator in the place of another."""
    program, skeleton, values = loaded(name)
    candidate = apply(Candidate.from_skeleton(skeleton), [Replace(node, operand)])
    return rebuild(program, candidate, values)


@pytest.mark.parametrize(
    ("name", "node", "operand", "function"),
    [
        ("weights", "linear", "x", torch.ops.aten.abs.default),
        ("kinds", "flip", "ids", torch.ops.aten.abs.default),
        ("kinds", "fft_fft", "z", torch.ops.aten.neg.default),
        ("kinds", "any_1", "any_1", torch.ops.aten.logical_not.default),
    ],
)
def test_replacement_operator_reads_the_chosen_operand(
    name: str, node: str, operand: str, function: Any
) -> None:
    built = plain(name, node, operand)
    reads = [n.args for n in built.exported.graph.nodes if n.target is function]
    names = built.exported.graph_signature.user_inputs
    assert [str(a) for (a,) in reads if str(a) in names] == [operand]
    assert not built.stale


def test_replacement_operator_can_read_the_replaced_result() -> None:
    built = plain("weights", "linear", "linear")
    _, _, values = loaded("weights")
    assert [i for i in built.failing.args if torch.equal(i, values.failing("linear"))]
    text = "\n".join(print_program(built).body)
    assert "torch.ops.aten.abs.default(linear)" in text
    assert "torch.ops.aten.linear" not in text


def test_program_must_be_reexported_if_strides_change() -> None:
    # roll lays its result out in order, whatever it reads; abs does as it reads.
    assert plain("kinds", "roll", "t").stale


def test_replacement_of_another_type_is_refused() -> None:
    program, skeleton, values = loaded("weights")
    whole = Candidate.from_skeleton(skeleton)
    linear = replace(whole, replace={"linear": "b_scale"})
    with pytest.raises(CannotRebuild, match="of another type than linear"):
        rebuild(program, linear, values)


def test_merged_inputs_hold_the_value_of_the_first_input() -> None:
    program, skeleton, values = loaded("nested")
    first, second = skeleton.inputs[:2]
    whole = Candidate.from_skeleton(skeleton)
    built = rebuild(program, apply(whole, [Merge(frozenset({first, second}))]), values)
    assert len(built.failing.args) == len(whole.inputs) - 1
    assert torch.equal(built.failing.args[0], values.failing(first))


def keeping(skeleton: Skeleton, target: str) -> Candidate:
    """Only the first operator of this target."""
    kept = next(n for n in skeleton.operators if skeleton.node(n).target == target)
    others = frozenset(skeleton.operators) - {kept}
    return apply(Candidate.from_skeleton(skeleton), [Drop(others)])


def test_number_input_becomes_the_length_of_a_tensor_input() -> None:
    program, skeleton, values = loaded("sizes_as_inputs")
    built = rebuild(program, keeping(skeleton, "aten.expand.default"), values)
    assert not built.stale
    (k,) = [a for a in built.example.args if a.dtype is torch.bool]
    assert k.shape == (5,)
    others = [a if a is not k else torch.zeros(7).bool() for a in built.example.args]
    (wide,) = eager(built.exported, Inputs(tuple(others), {}))
    assert wide.shape[0] == 7


def test_symbol_is_computed_from_a_size_if_no_input_has_that_symbol() -> None:
    program, skeleton, values = loaded("computed_dims")
    first = frozenset({skeleton.operators[0]})
    candidate = apply(Candidate.from_skeleton(skeleton), [Drop(first)])
    built = rebuild(program, candidate, values)
    assert not built.stale
    assert all(any(dims) for dims in shapes(built))
    eager(built.exported, built.failing)


def test_size_without_a_solvable_symbol_is_checked_last() -> None:
    program, skeleton, values = loaded("computed_dims")
    built = rebuild(program, keeping(skeleton, "aten.cos.default"), values)
    (flat,) = eager(built.exported, built.failing)
    assert flat.shape == (81,)


def test_written_operand_is_returned_for_an_operator_without_a_result() -> None:
    program, skeleton, values = as_exported("writes")
    candidate = keeping(skeleton, "zoo.write.default")
    built = rebuild(program, candidate, values)
    (written,) = eager(built.exported, built.failing)
    torch.testing.assert_close(written, 3 * built.failing.args[0])


class Loop(torch.nn.Module):
    """A loop with a branch in its body, of which a search may leave little."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def body(i: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h = torch.tanh(h @ self.w)
            h = torch.cond(h.sum() > 0, lambda v: v.cos() * 2, lambda v: v - 1, (h,))
            return i + 1, h.sin() + 0.5

        def goes_on(i: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return i < 3

        start = torch.tensor(0), x.relu()
        loop: Any = torch._higher_order_ops.while_loop
        count, h = loop(goes_on, body, start)
        return count, h


def test_operators_in_a_loop_body_can_be_bypassed(tmp_path: Path) -> None:
    program, skeleton, values = load_program(
        export_module(Loop(), torch.randn(3, 4)), tmp_path
    )
    whole = Candidate.from_skeleton(skeleton)
    names = {
        skeleton.node(n).target.split(".")[1]: n
        for n in whole.subgraph_nodes
        if "." in skeleton.node(n).target
    }
    bypassed = [names[operator] for operator in ("matmul", "cos", "sin")]
    edits = [Bypass(name, skeleton.node(name).operands[0]) for name in bypassed]
    shorter = apply(whole, edits)
    built = rebuild(program, shorter, values)
    assert built.stale
    printed = print_program(built)
    assert "_shortened" not in "".join([*printed.branches, *printed.members])
    exported = run_source(printed, built)
    assert count_operators(built.exported.graph_module) == shorter.cost[0]
    found = run_eager(exported, built.failing, seed=SEED)
    h = program.example.args[0].relu()
    for _ in range(3):
        h = h.tanh()
        h = (h * 2 if h.sum() > 0 else h - 1) + 0.5
    torch.testing.assert_close(found, [torch.tensor(3), h])
    # The original is as it was.
    untouched = run_eager(
        rebuild(program, whole, values).exported, built.failing, seed=SEED
    )
    expected = run_eager(program.graph, program.failing, seed=SEED)
    torch.testing.assert_close(untouched, expected)


class Branching(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.sum() > 0, torch.cos, torch.sin, (x,))
        return found


def test_branch_that_export_rejects_is_refused(tmp_path: Path) -> None:
    exported = export_module(Branching(), torch.randn(4, 4))
    program, skeleton, values = load_program(exported, tmp_path)
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    printed = print_program(built)
    stop = "torch._dynamo.graph_break()\n        return"
    untraceable = tuple(b.replace("return", stop) for b in printed.branches)
    with pytest.raises(CannotRebuild, match="export takes no such branch"):
        run_source(replace(printed, branches=untraceable), built)


class Normed(torch.nn.Module):
    """Views that only repeat, and readers that would repeat on their own."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        length = n.clamp_min(1e-3)
        y = x.sin() / length.expand_as(x)
        return torch.where(y > length.mean(0).unsqueeze(0), y, y.mT.cos().mT)


@pytest.mark.parametrize("dynamic", [True, False])
def test_broadcasting_views_can_be_bypassed(dynamic: bool, tmp_path: Path) -> None:
    inputs = torch.randn(6, 4, 3), torch.rand(6, 4, 1)
    batch = {0: torch.export.Dim("batch")} if dynamic else None
    shapes = (batch, batch) if dynamic else None
    exported = torch.export.export(Normed(), inputs, dynamic_shapes=shapes)
    program, skeleton, values = load_program(exported, tmp_path)
    whole = Candidate.from_skeleton(skeleton)
    edits = [Bypass("expand", "clamp_min"), Bypass("unsqueeze", "mean")]
    assert {e for e in BypassOperators().propose(View(whole))} >= {*edits}
    shorter = apply(whole, edits)
    assert shorter.cost[0] == whole.cost[0] - 2
    built = real(program, shorter, values)
    assert count_operators(built.exported.graph_module) == shorter.cost[0]
    found = eager(built.exported, built.failing)
    torch.testing.assert_close(found, eager(program.graph, program.failing))
    # What is cut from it has the types that the program said.
    only = apply(shorter, [Drop(frozenset(shorter.operators) - {"div"})])
    assert only.operators == ("div",)
    check_types((program, skeleton, values), only)
