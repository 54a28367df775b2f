"""Strategies for the statements of printed programs."""

from __future__ import annotations

import pytest
from support.fake_fitter import FakeFitter
from support.listings import block, codes, floats, given, listed, listing

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write, apply_changes
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    InputOrWeight,
    PrintedProgram,
    Types,
)
from shrinkfx.program.skeleton import TensorType
from shrinkfx.search.strategy import collect_proposals
from shrinkfx.strategies.statements import (
    RedirectOperands,
    ShrinkBranches,
    SimplifyArguments,
)
from shrinkfx.testing import Nodes, operator, skeleton, whole

HELD = (
    given("p", floats(dtype="bool")),
    given("x", floats(2, 2)),
    given("y", floats(2, 2)),
)

BRANCHES = (
    block(
        "T",
        "a b",
        """
        mm = aten.mm.default(a, b)
        relu = aten.relu.default(mm)
        exp = aten.exp.default(a)
        return (relu, exp)
        """,
    ),
    block(
        "F",
        "a b",
        """
        neg = aten.neg.default(a)
        cos = aten.cos.default(neg)
        tanh = aten.tanh.default(a)
        return (cos, tanh)
        """,
    ),
)
COND = listing(
    """
    cond = torch.cond(p, self.t, self.f, (x, y))
    one = cond[0]
    two = cond[1]
    add = aten.add.Tensor(one, two)
    return (add,)
    """,
    *HELD,
    blocks=BRANCHES,
    members="t=T f=F",
)

LOOP = listing(
    """
    loop = torch.ops.higher_order.while_loop(self.c, self.b, (i, x, y), (y,))
    one = loop[1]
    return (one,)
    """,
    given("i", floats(dtype="int64")),
    *HELD[1:],
    blocks=[
        block("C", "i a b c", "lt = aten.lt.Scalar(i, 5)\nreturn lt"),
        block(
            "B",
            "i a b c",
            """
            add = aten.add.Tensor(i, 1)
            exp = aten.exp.default(a)
            mul = aten.mul.Tensor(exp, c)
            tanh = aten.tanh.default(b)
            return (add, mul, tanh)
            """,
        ),
    ],
    members="c=C b=B",
)


def programs(start: PrintedProgram) -> list[PrintedProgram]:
    """List what comes of each edit that fits and makes it cheaper."""
    candidate, fitter = listed(start), FakeFitter()
    edits = collect_proposals(
        ShrinkBranches(), candidate, types=fitter.types(candidate)
    )
    fits = fitter.fit(candidate, [e for e in edits if isinstance(e, Rewrite)])
    assert candidate.listing is not None
    made = [apply_changes(candidate.listing, fit.changes) for fit in fits if fit]
    return [program for program in made if program.cost < candidate.cost]


def inside(start: PrintedProgram, name: str) -> list[list[str]]:
    """List what becomes of one block, where it stays."""
    made = programs(start)
    return [codes(p, name) for p in made if name in {b.name for b in p.blocks}]


def test_unused_loop_values_are_cut_first() -> None:
    first, *_ = programs(LOOP)
    assert codes(first)[:2] == [
        "loop = torch.ops.higher_order.while_loop(self.c, self.b, (i, x), (y,))",
        "one = loop[1]",
    ]
    assert codes(first, "B")[-1] == "return (add, mul)"


def test_branch_is_reduced_to_its_operands() -> None:
    plain = ["return (a, a)"]
    for name in ("F", "T"):
        assert plain in inside(COND, name)


def test_one_branch_replaces_both() -> None:
    made = [codes(made)[0] for made in programs(COND)]
    assert "cond = torch.cond(p, self.t, self.t, (x, y))" in made
    assert "cond = torch.cond(p, self.f, self.f, (x, y))" in made


def test_single_branch_statements_are_cut() -> None:
    made = inside(COND, "T")
    without_relu = [
        "mm = aten.mm.default(a, b)",
        "exp = aten.exp.default(a)",
        "return (mm, exp)",
    ]
    without_mm = [
        "relu = aten.relu.default(a)",
        "exp = aten.exp.default(a)",
        "return (relu, exp)",
    ]
    assert without_relu in made
    assert without_mm in made


def test_loop_count_is_reduced_to_one_or_two() -> None:
    counts = [codes(made, "C")[0] for made in programs(LOOP)]
    assert "lt = aten.lt.Scalar(i, 1)" in counts
    assert "lt = aten.lt.Scalar(i, 2)" in counts


def test_no_proposal_makes_a_loop_endless() -> None:
    for made in programs(LOOP):
        assert codes(made, "B")[-1].startswith("return (add")
        assert "add = aten.add.Tensor(i, 1)" in codes(made, "B")


def test_program_without_subgraphs_gives_no_proposals() -> None:
    start = listing("a = aten.relu.default(x)\nreturn (a,)", HELD[1])
    assert collect_proposals(ShrinkBranches(), listed(start)) == []


def made_of(start: PrintedProgram, types: Types | None = None) -> list[list[str]]:
    """List the programs that come of each edit that fits and makes it cheaper."""
    candidate, fitter = listed(start), FakeFitter()
    known = fitter.types(candidate) if types is None else types
    edits = collect_proposals(RedirectOperands(), candidate, types=known)
    rewrites = [edit for edit in edits if isinstance(edit, Rewrite)]
    fits = fitter.fit(candidate, rewrites)
    programs = [apply_changes(start.normalised(), fit.changes) for fit in fits if fit]
    return [codes(p) for p in programs if p.cost < candidate.cost]


def program(text: str, *held: InputOrWeight) -> PrintedProgram:
    x, y = given("x", floats(2, 3)), given("y", floats(2, 3))
    return listing(text, *(held or (x, y)))


def test_equal_operators_are_merged() -> None:
    text = """
        view = aten.view.default(x, [3, 2])
        a = aten.transpose.int(view, 0, 1)
        b = aten.transpose.int(view, 0, 1)
        add = aten.add.Tensor(a, b)
        return (add,)
    """
    one = [
        "view = aten.view.default(x, [3, 2])",
        "a = aten.transpose.int(view, 0, 1)",
        "add = aten.add.Tensor(a, a)",
        "return (add,)",
    ]
    assert one in made_of(program(text))


def test_operand_is_redirected_to_the_nearest_value_of_equal_type() -> None:
    text = """
        a = aten.relu.default(x)
        view = aten.view.default(a, [3, 2])
        b = aten.transpose.int(view, 0, 1)
        c = aten.add.Tensor(b, y)
        return (c,)
    """
    bypassed = ["a = aten.relu.default(x)", "c = aten.add.Tensor(a, y)", "return (c,)"]
    assert bypassed in made_of(program(text))


def test_input_replaces_another_input_or_a_weight() -> None:
    text = """
        a = aten.add.Tensor(x, y)
        b = aten.mul.Tensor(a, self.w)
        return (b,)
    """
    held = given("w", floats(2, 3), "parameter"), *program(text).given
    made = made_of(program(text, *held))
    assert [
        "a = aten.add.Tensor(x, x)",
        "b = aten.mul.Tensor(a, self.w)",
        "return (b,)",
    ] in made
    assert [
        "a = aten.add.Tensor(x, y)",
        "b = aten.mul.Tensor(a, x)",
        "return (b,)",
    ] in made


def test_list_operands_and_duplicate_outputs_are_removed() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.exp.default(y)
        c = aten.cat.default([a, b], 1)
        return (c, c)
    """
    made = made_of(program(text))
    assert any("c = aten.cat.default([a], 1)" in lines for lines in made)
    assert any(lines[-1] == "return (c,)" for lines in made)


def test_all_results_of_one_operator_are_redirected_together() -> None:
    branch = block("T", "a b", "c = aten.exp.default(a)\nreturn (c, b)")
    text = """
        cond = torch.cond(p, self.t, self.t, (x, y))
        one = cond[0]
        two = cond[1]
        c = aten.add.Tensor(one, two)
        return (c,)
    """
    held = given("p", floats(dtype="bool")), *program(text).given
    start = listing(text, *held, blocks=[branch], members="t=T")
    assert ["c = aten.add.Tensor(x, x)", "return (c,)"] in made_of(start)


def test_operand_of_any_type_is_returned_in_place_of_an_output() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.sum.default(a)
        return (b,)
    """
    assert ["a = aten.relu.default(x)", "return (a,)"] in made_of(program(text))


def test_equal_operators_are_merged_without_types() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.relu.default(x)
        c = aten.add.Tensor(a, b)
        return (c,)
    """
    made = made_of(program(text), UNTYPED)
    assert [a for a in made if "c = aten.add.Tensor(a, a)" in a]


def test_mutating_operator_is_not_cut() -> None:
    text = """
        a = aten.add_.Tensor(x, y)
        b = aten.relu.default(a)
        return (b,)
    """
    assert all("add_" in made[0] for made in made_of(program(text)))


def test_redirects_tried_in_the_operator_search_are_not_repeated() -> None:
    """Sizes have become 1 meanwhile: what the sum reads is of its type now."""
    text = """
        relu = aten.relu.default(x)
        sum_1 = aten.sum.dim_IntList(relu, [1], True)
        tanh = aten.tanh.default(sum_1)
        return (tanh,)
    """
    row = TensorType("float32", ("2", "1"))
    nodes: Nodes = {
        "x": "",
        "relu": "x",
        "sum_1": operator("relu", value=row),
        "tanh": operator("sum_1", value=row),
    }
    start = whole(skeleton(nodes)).with_listing(listing(text, given("x", floats(1, 1))))
    types = FakeFitter().types(start)
    edits = collect_proposals(RedirectOperands(), start, types=types)
    changes = [c for edit in edits if isinstance(edit, Rewrite) for c in edit.changes]
    redirects = [
        c for c in changes if isinstance(c, Write) and c.text not in ("", "None")
    ]
    assert redirects == [Write("Repro", "tanh", 0, "relu")]


def test_second_view_reads_the_operand_of_the_first() -> None:
    text = """
        a = aten.view.default(x, [3, 2])
        b = aten.view.default(a, [6])
        c = aten.relu.default(b)
        return (c,)
    """
    assert [
        "b = aten.view.default(x, [6])",
        "c = aten.relu.default(b)",
        "return (c,)",
    ] in made_of(program(text))


def test_only_views_with_a_shape_are_composed() -> None:
    for first, second in (
        ("sum.dim_IntList(x, [0])", "view.default(a, [3])"),
        ("view.default(x, [3, 2])", "transpose.int(a, 0, 1)"),
    ):
        text = f"""
            a = aten.{first}
            b = aten.{second}
            c = aten.relu.default(b)
            return (c,)
        """
        composed = f"b = aten.{second.replace('(a,', '(x,')}"
        made = [code for codes in made_of(program(text)) for code in codes]
        assert composed not in made


def test_rank_is_ignored_for_single_element_tensors() -> None:
    text = """
        sum_1 = aten.sum.default(x)
        add = aten.add.Tensor(y, sum_1)
        return (add,)
    """
    without = ["add = aten.add.Tensor(y, x)", "return (add,)"]
    one, more = (program(text, given("x", r), Y) for r in (floats(1), floats(2)))
    assert without in made_of(one)
    assert without not in made_of(more)


Y = given("y", floats(2))


def rewrites(start: PrintedProgram) -> list[Rewrite]:
    edits = collect_proposals(SimplifyArguments(), listed(start))
    return [edit for edit in edits if isinstance(edit, Rewrite)]


def line(code: str) -> PrintedProgram:
    held = given("x", floats(2, 3, 4)), given("y", floats(2, 3, 4))
    return listing(f"a = aten.{code}\nreturn (a,)", *held)


def texts(code: str) -> list[list[str]]:
    """List what is proposed for each leaf, with nothing in the place of ''."""
    return [
        [getattr(change, "text", "?") for change in rewrite.changes]
        for rewrite in rewrites(line(code))
    ]


@pytest.mark.parametrize(
    ("code", "proposed"),
    [
        ("mul.Tensor(x, 2.5)", [["", "1", "0"]]),
        ("mul.Tensor(x, 1)", [[""]]),
        ("mul.Tensor(x, 1 + 2j)", [["", "1", "0"]]),
        ("sum.dim_IntList(x, [1, 2], True)", [[""], ["1", "0"], ["", "[]"]]),
        (
            "full.default([], 3, dtype=torch.float64)",
            [["", "torch.float32"], ["", "1", "0"], [""]],
        ),
        ("add.Tensor(x, y)", []),
        ("to.dtype_layout(x, dtype=torch.bfloat16)", [["", "torch.float32"]]),
        ("to.dtype_layout(x, layout=torch.strided)", [[""]]),
        ("div.Tensor_mode(x, y, rounding_mode='trunc')", [[""]]),
        ("cat.default([x, y], 1)", [[""]]),
        ("view.default(x, [x.shape[0], 12])", [["1", "0"]]),
        ("to.dtype(x, None, False)", [[""], [""]]),
    ],
)
def test_each_argument_gets_simpler_proposals(
    code: str, proposed: list[list[str]]
) -> None:
    assert [made for made in texts(code) if made] == proposed


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("sum.dim_IntList(x, [2], True)", "sum.dim_IntList(x)"),
        ("transpose.int(x, 2, 1)", "transpose.int(x, 1, 1)"),
        ("add.Tensor(x, y, alpha=7)", "add.Tensor(x, y)"),
        ("mul.Tensor(x, 2.5)", "mul.Tensor(x, 1)"),
    ],
)
def test_all_argument_proposals_together_give_a_valid_program(
    code: str, plain: str
) -> None:
    start = listed(line(code))
    assert start.listing is not None
    changes = [change for r in rewrites(start.listing) for change in r.changes]
    [fit] = FakeFitter().fit(start, [Rewrite(tuple(changes), partly=True)])
    assert fit is not None
    made = apply_changes(start.listing, fit.changes)
    assert codes(made)[0] == f"a = aten.{plain}"
    assert made.cost < start.listing.cost


def test_loop_counter_arguments_are_not_simplified() -> None:
    test = block("C", "i h", "lt = aten.lt.Scalar(i, 5)\nreturn lt")
    body = block(
        "B",
        "i h",
        "a = aten.add.Tensor(i, 2)\nb = aten.mul.Tensor(h, 2)\nreturn (a, b)",
    )
    text = """
        w = torch.ops.higher_order.while_loop(self.c, self.b, (i, h), ())
        one = w[1]
        return (one,)
    """
    held = given("i", floats(dtype="int64")), given("h", floats(2))
    start = listing(text, *held, blocks=[test, body], members="c=C b=B")
    changes = [change for r in rewrites(start) for change in r.changes]
    assert {getattr(change, "statement", "") for change in changes} == {"lt", "b"}
