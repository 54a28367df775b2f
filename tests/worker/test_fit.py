"""Rewrites of printed programs, completed with fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support.listings import spell_out
from support.runnable_listings import block, listing, recipe, run_for_real
from support.torch_versions import hands_on_inputs

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Cast,
    Change,
    Convert,
    Declare,
    Fix,
    Refill,
    Resize,
    Squeeze,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Dim,
    InputOrWeight,
    LeafKind,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Part,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
    write_tensor_spec,
)
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.listing.indices import list_block_operands

Shape = tuple[int, ...]
Make = Callable[[], PrintedProgram]
X = recipe(2, 12, 32)


def fitted(
    program: PrintedProgram, *changes: Change, partly: bool = False
) -> Rewrite | None:
    return fit_rewrites(program, [Rewrite(changes, partly)]).fits[0]


def fitted_program(program: PrintedProgram, *changes: Change) -> PrintedProgram | None:
    """Fit changes, and run what comes of them for real."""
    fit = fitted(program, *changes)
    if fit is None:
        return None
    assert set(changes) <= set(fit.changes)
    assert not fit.partly
    made = apply_changes(program, fit.changes)
    run_for_real(made)
    return made


def fitted_lines(
    program: PrintedProgram, *changes: Change
) -> tuple[list[str], PrintedProgram]:
    """Fit changes; return the code of the program that comes of them as well."""
    made = fitted_program(program, *changes)
    assert made is not None
    return [s.code for s in made.main.statements[:-1]], made


def one(code: str, **shapes: Shape) -> PrintedProgram:
    """Write a listing of one operator, whose inputs have shapes."""
    inputs = {name: recipe(*shape) for name, shape in shapes.items()}
    return listing(inputs, f"y = aten.{code}", "return (y,)")


VIEW = one("view.default(x, [24, 32])", x=X.shape)


@pytest.mark.parametrize(
    ("code", "shape", "dim", "size", "expected"),
    [
        ("view.default(x, [24, 32])", X.shape, 1, 4, "[8, 32]"),
        # A part of it, more than is left over, nothing to share out, worked out.
        ("view.default(x, [2, 12, 4, 8])", X.shape, 2, 4, "[2, 12, 4, 1]"),
        ("view.default(x, [2, 12, 4, 8])", X.shape, 2, 10, "[2, 12, 1, 10]"),
        ("view.default(x, [2, 4, 4])", (32,), 0, 17, "[1, 1, 17]"),
        ("view.default(x, [24, -1])", X.shape, 1, 5, "[10, -1]"),
        ("reshape.default(x, [2, 384])", X.shape, 0, 1, "[1, 384]"),
        ("expand.default(x, [3, 12, 32])", (1, 12, 32), 1, 4, "[3, 4, 32]"),
        ("slice.Tensor(x, 1, 4, 12)", X.shape, 1, 3, "slice.Tensor(x, 1, 1, 12)"),
        ("split_with_sizes.default(x, [8, 24], 2)", X.shape, 2, 4, "[1, 3]"),
        ("split_with_sizes.default(x, [8, 24], 2)", X.shape, 2, 2, "[1, 1]"),
        ("select.int(x, 1, 11)", X.shape, 1, 3, "select.int(x, 1, 1)"),
        ("avg_pool2d.default(x, [8, 8])", (1, 1, 8, 8), 2, 2, "[2, 2]"),
        ("repeat.default(x, [1, 2])", (4, 6), 0, 1, "repeat.default(x, [1, 2])"),
        ("unfold.default(x, 1, 6, 3)", (4, 12), 1, 2, "unfold.default(x, 1, 1, 3)"),
        (
            *("upsample_nearest2d.vec(x, [16, 16], None)", (1, 1, 8, 8), 2, 2),
            "upsample_nearest2d.vec(x, [16, 16], None)",
        ),
    ],
)
def test_literal_follows_the_size_that_it_depends_on(
    code: str, shape: Shape, dim: int, size: int, expected: str
) -> None:
    lines, _ = fitted_lines(one(code, x=shape), Resize("x", dim, size))
    assert expected in lines[0]


def shapes(program: PrintedProgram) -> dict[str, Shape]:
    return {given.name: given.recipe().shape for given in program.given}


HEADS = (1, 2, 12, 8)


@pytest.mark.parametrize(
    ("code", "inputs", "change", "expected"),
    [
        ("mm.default(x, y)", [(4, 8), (8, 3)], ("x", 1, 1), {"y": (1, 3)}),
        ("bmm.default(x, y)", [(2, 4, 8), (2, 8, 3)], ("x", 0, 1), {"y": (1, 8, 3)}),
        (
            *("addmm.default(z, x, y)", [(4, 8), (8, 3), (3,)], ("y", 1, 2)),
            {"z": (2,), "x": (4, 8)},
        ),
        ("cat.default([x, y], 1)", [(4, 8), (4, 3)], ("x", 0, 1), {"y": (1, 3)}),
        (
            *("conv2d.default(x, y)", [(1, 6, 5, 5), (4, 6, 3, 3)], ("x", 1, 1)),
            {"y": (4, 1, 3, 3)},
        ),
        ("layer_norm.default(x, [32], y)", [(2, 32), (32,)], ("x", 1, 2), {"y": (2,)}),
        (
            *("scaled_dot_product_attention.default(x, y, z)", [HEADS] * 3),
            *(("x", 3, 4), {"y": (1, 2, 12, 4)}),
        ),
    ],
)
def test_other_inputs_follow_a_resized_input(
    code: str,
    inputs: list[Shape],
    change: tuple[str, int, int],
    expected: dict[str, Shape],
) -> None:
    program = one(code, **dict(zip("xyz", inputs, strict=False)))
    _, made = fitted_lines(program, Resize(*change))
    assert {k: v for k, v in shapes(made).items() if k in expected} == expected


@pytest.mark.parametrize(
    ("shape", "lines", "changes", "expected"),
    [
        (
            (12, 12),
            [
                "m = aten.full.default([12, 12], 12, dtype=torch.float32)",
                "t = aten.tril.default(m)",
                "y = aten.add.Tensor(x, t)",
            ],
            [Resize("x", 0, 5), Resize("x", 1, 5)],
            "full.default([5, 5], 12, dtype",
        ),
        (
            (2, 12, 4),
            [
                "p = aten.arange.start_step(0, 12, 1)",
                "c = aten.unsqueeze.default(p, 1)",
                "y = aten.mul.Tensor(x, c)",
            ],
            [Resize("x", 1, 5)],
            "arange.start_step(0, 5, 1)",
        ),
        (
            (8, 4),
            [
                "arange = aten.arange.default(8)",
                "y = aten.embedding.default(x, arange)",
            ],
            [Resize("x", 0, 5)],
            spell_out("aten.arange.default(5)"),
        ),
    ],
    ids=["full", "arange", "arange as indices"],
)
def test_literal_of_an_earlier_statement_follows_a_resize(
    shape: Shape, lines: list[str], changes: list[Change], expected: str
) -> None:
    program = listing({"x": recipe(*shape)}, *lines, "return (y,)")
    assert expected in fitted_lines(program, *changes)[0][0]


def test_chain_of_views_follows_a_resize() -> None:
    program = listing(
        {"x": X},
        "a = aten.view.default(x, [24, 32])",
        "b = aten.mm.default(a, self.w)",
        "c = aten.view.default(b, [2, 12, 64])",
        "d = aten.view.default(c, [2, 12, 4, 16])",
        "e = aten.permute.default(d, [0, 2, 1, 3])",
        "return (e,)",
        weights={"w": recipe(32, 64)},
    )
    lines, _ = fitted_lines(program, Resize("x", 0, 1), Resize("x", 1, 3))
    assert [line.partition("(")[2] for line in lines[2:]] == [
        *("b, [1, 3, 64])", "c, [1, 3, 4, 16])", "d, [0, 2, 1, 3])")
    ]
    fit = fitted(program, Resize("x", 2, 4))
    assert fit is not None
    assert Resize("w", 0, 4) in fit.changes


def test_repairs_are_in_normal_form() -> None:
    fit = fitted(VIEW, Resize("x", 1, 4))
    assert fit == Rewrite((Resize("x", 1, 4), Write(MAIN, "y", 2, "8")))
    assert fitted(apply_changes(VIEW, fit.changes), Resize("x", 1, 4)) is not None


def test_written_buffer_is_not_converted_to_a_parameter() -> None:
    held = InputOrWeight("w", "buffer", ((Run.EXAMPLE, recipe(4)),))
    lines = "y = aten.add.Tensor(x, self.w)", "self.w.copy_(y)", "return (y,)"
    program = listing({"x": recipe(4), "w": held}, *lines)
    assert fitted(program, Convert("w", "parameter")) is None
    assert fitted(program, Convert("w", "non_persistent_buffer")) is not None
    x, w = Resize("x", 0, 1), Resize("w", 0, 1)
    assert fitted(program, x) == Rewrite((x,))  # it is broadcast
    assert fitted(program, w) == Rewrite((w, x))


def test_impossible_changes_do_not_fit() -> None:
    assert fitted(VIEW, Resize("x", 1, 0)) is None
    assert fitted(VIEW, Resize("x", 7, 1)) is None
    assert fitted(VIEW, Write(MAIN, "y", 1, "[5, 32]")) is None
    assert fitted(VIEW, Cast("x", "int64"), Write(MAIN, "y", 1, "[1]")) is None


def test_dtype_changes_only_by_a_cast() -> None:
    program = listing(
        {"x": recipe(4, 8, dtype="bfloat16")},
        "a = aten._to_copy.default(x, dtype=torch.float32)",
        "b = aten._to_copy.default(a, dtype=torch.bfloat16)",
        "y = aten.mm.default(b, self.w)",
        "return (y,)",
        weights={"w": recipe(8, 2, dtype="bfloat16")},
    )
    _, made = fitted_lines(program, Cast("x", "float32"))
    assert made.find("w").recipe().dtype == "bfloat16"  # it need not
    lines, made = fitted_lines(program, Cast("w", "float32"))
    assert "dtype=torch.float32" in lines[1]
    index = recipe(3, dtype="int64", fill=Constant(0))
    other = listing({"x": index}, "y = aten.mul.Tensor(x, 2)", "return (y,)")
    assert fitted(other, Write(MAIN, "y", 1, "2.5")) is None


# --- indices


def below(*shape: int, high: int) -> TensorSpec:
    return recipe(*shape, dtype="int64", fill=Seeded("randint", 0, high))


IDS = below(2, 5, high=100)
TABLE = {"w": recipe(100, 8)}
LOOKED_UP = "e = aten.embedding.default(t, s)"


def in_main() -> PrintedProgram:
    return listing(
        {"x": IDS},
        "s = aten.slice.Tensor(x, 1, 0, 4)",
        "y = aten.embedding.default(self.w, s)",
        "return (y,)",
        weights=TABLE,
    )


def in_a_branch() -> PrintedProgram:
    first = "s = aten.slice.Tensor(i, 1, 0, 4)"
    yes = block("Yes", ["i", "t"], first, LOOKED_UP, "return (e,)")
    zeros = "e = aten.mul.Tensor(e_1, 0)"
    again = LOOKED_UP.replace("e =", "e_1 =")
    no = block("No", ["i", "t"], first, again, zeros, "return (e,)")
    return listing(
        {"x": IDS, "p": recipe(dtype="bool", fill=Constant(True))},
        "cond = torch.cond(p, self.yes, self.no, (x, self.w))",
        "y = cond[0]",
        "return (y,)",
        weights=TABLE,
        blocks={"yes": yes, "no": no},
    )


def in_a_loop() -> PrintedProgram:
    carried = ["n", "a", "i", "t"]
    goes = block("Goes", carried, "l = aten.lt.Scalar(n, 3)", "return l")
    body = block(
        *("Body", carried, "m = aten.add.Tensor(n, 1)", "s = aten.clone.default(i)"),
        *(LOOKED_UP, "b = aten.mean.default(e)", "c = aten.add.Tensor(a, b)"),
        "return (m, c)",
    )
    zero = recipe(dtype="int64", fill=Constant(0))
    return listing(
        {"n": zero, "a": recipe(3), "x": IDS},
        "w_1 = torch.ops.higher_order.while_loop("
        "self.goes, self.body, (n, a), (x, self.w))",
        "y = w_1[1]",
        "return (y,)",
        weights=TABLE,
        blocks={"goes": goes, "body": body},
    )


def row_by_row() -> PrintedProgram:
    first = "s = aten.slice.Tensor(i, 0, 0, 4)"
    body = block("Body", ["i", "t"], first, LOOKED_UP, "return (e,)")
    return listing(
        {"x": IDS},
        "map_1 = torch.ops.higher_order.map_impl(self.body, [x], [self.w])",
        "y = map_1[0]",
        "return (y,)",
        weights=TABLE,
        blocks={"body": body},
    )


@pytest.mark.parametrize("make", [in_main, in_a_branch, in_a_loop, row_by_row])
def test_indices_stay_in_bounds_of_a_resized_table(make: Make) -> None:
    program, smaller = make(), Resize("w", 0, 3)
    fit = fitted(program, smaller)
    assert fit == Rewrite((Refill("x", Seeded("randint", 0, 3)), smaller))
    if make is in_main:
        run_for_real(apply_changes(program, fit.changes))
    assert fitted(program, smaller, Refill("x", Counted())) is None
    assert fitted(program, Resize("w", 0, 10), Refill("x", Counted())) is not None


def test_table_shrinks_with_the_tokens_that_count_its_rows() -> None:
    """No value of the tokens makes their positions fewer."""
    program = listing(
        {"w": recipe(10, 4), "x": recipe(1, 8, dtype="int64")},
        "ne = aten.ne.Scalar(x, 1)",
        "cumsum = aten.cumsum.default(ne, 1)",
        "add = aten.add.Tensor(cumsum, 1)",
        "y = aten.embedding.default(w, add)",
        "return (y,)",
    )
    program = apply_changes(program, [Refill("x", Constant(0))])
    for rows, length in ((9, 7), (5, 3), (3, 1)):
        _, made = fitted_lines(program, Resize("w", 0, rows))
        assert made.find("x").recipe().shape == (1, length)
    assert fitted(program, Resize("w", 0, 2)) is None
    assert fitted(program, Resize("w", 0, 3), Resize("x", 1, 2)) is None


@pytest.mark.parametrize(
    "code",
    [
        *("index.Tensor(x, [i])", "index.Tensor(x, [None, i])"),
        *("index_select.default(x, 0, i)", "index_add.default(x, 0, i, z)"),
        "index_put.default(x, [i], z)",
    ],
)
def test_indices_of_other_operators_stay_in_bounds(code: str) -> None:
    ids = recipe(6, dtype="int64", fill=Counted())
    inputs = {"x": recipe(6, 6), "i": ids, "z": recipe(6, 6)}
    program = listing(inputs, f"y = aten.{code}", "return (y,)")
    _, made = fitted_lines(program, Resize("x", 0, 2), Resize("x", 1, 2))
    assert made.find("i").recipe().fill in (Counted(), Seeded("randint", 0, 2))


def test_scatter_indices_stay_in_bounds() -> None:
    inputs = {"x": recipe(2, 6), "i": below(2, 6, high=6), "z": recipe(2, 6)}
    program = listing(inputs, "y = aten.scatter.src(x, 1, i, z)", "return (y,)")
    _, made = fitted_lines(program, Resize("x", 1, 3))
    assert made.find("i").recipe().fill == Seeded("randint", 0, 3)


def test_operands_of_blocks_are_listed_by_name() -> None:
    assert list_block_operands("torch.cond(p, self.yes, self.no, (x, 3, self.w))") == (
        *("x", "", "self.w"),
    )
    loop = "while_loop(self.goes, self.body, (i, a), (self.m,))"
    assert list_block_operands(loop) == ("i", "a", "self.m")
    assert list_block_operands("invoke_subgraph(self.sub, 'sub_0', x, y)") == ("x", "y")
    assert list_block_operands("torch.relu(x)") == ()


# --- blocks


def cond(*lines: str) -> PrintedProgram:
    yes = block("Yes", ["a"], *lines, "return (b,)")
    no = block("No", ["a"], "b = aten.view.default(a, [24, 32])", "return (b,)")
    return listing(
        {"x": X, "p": recipe(dtype="bool", fill=Constant(True))},
        "cond = torch.cond(p, self.yes, self.no, (x,))",
        "y = cond[0]",
        "return (y,)",
        blocks={"yes": yes, "no": no},
    )


@hands_on_inputs
def test_literals_in_branches_follow_a_resize() -> None:
    program = cond("c = aten.relu.default(a)", "b = aten.view.default(c, [24, 32])")
    _, made = fitted_lines(program, Resize("x", 1, 1))
    views = [made.block(name).statement("b").code for name in ("Yes", "No")]
    assert all("[2, 32]" in code for code in views)


def test_branch_that_returns_another_shape_does_not_fit() -> None:
    program = cond("b = aten.view.default(a, [24, 32])")
    assert fitted(program, Write("Yes", "b", 1, "[12, 64]")) is None


def test_values_of_blocks_are_typed() -> None:
    answer = fit_rewrites(cond("b = aten.view.default(a, [24, 32])"), [])
    told = {(typed.block, typed.name): typed.shape for typed in answer.values}
    assert told[MAIN, "x"] == told["Yes", "a"] == (2, 12, 32)
    assert told["No", "b"] == told[MAIN, "y"] == (24, 32)
    assert (MAIN, "cond") not in told


def test_carried_values_of_a_loop_keep_their_shapes() -> None:
    carried = ["i", "a", "w"]
    goes = block("Goes", carried, "l = aten.lt.Scalar(i, 3)", "return l")
    body = block(
        *("Body", carried, "j = aten.add.Tensor(i, 1)", "m = aten.mm.default(a, w)"),
        *("r = aten.view.default(m, [4, 8])", "return (j, r)"),
    )
    loop = listing(
        {"x": recipe(4, 8), "i": recipe(dtype="int64", fill=Constant(0))},
        "w = torch.ops.higher_order.while_loop("
        "self.goes, self.body, (i, x), (self.m,))",
        "y = w[1]",
        "return (y,)",
        weights={"m": recipe(8, 8)},
        blocks={"goes": goes, "body": body},
    )
    _, made = fitted_lines(loop, Resize("x", 0, 1))
    assert "[1, 8]" in made.block("Body").statement("r").code
    _, made = fitted_lines(loop, Resize("x", 1, 2))
    assert made.find("m").recipe().shape == (2, 2)
    assert fitted(loop, Write("Body", "r", 1, "[8, 4]")) is None


# --- dynamic dims


def with_runs(name: str, *specs: TensorSpec, dim: str = "") -> InputOrWeight:
    """Make an input with a spec for the example and one for the run that fails.

    Args:
        dim: the name of its first dim, if that is dynamic.
    """
    runs = tuple(zip((Run.EXAMPLE, Run.FAILING), specs, strict=False))
    return InputOrWeight(name, "input", runs, ((0, dim),) if dim else ())


def dynamic(line: str) -> PrintedProgram:
    inputs = {name: with_runs(name, recipe(6, 4), dim="N") for name in "xz"}
    dims = [Dim("N", 2, 64), Dim("M", 2, 64)]
    return listing(inputs, line, "return (y,)", dims=dims)


ADDED = dynamic("y = aten.add.Tensor(x, z)")
READ = dynamic("y = aten.view.default(x, [x.shape[0] * 4])")


def test_inputs_that_share_a_dynamic_dim_are_resized_together() -> None:
    fit = fitted(ADDED, Resize("x", 0, 2))
    assert fit == Rewrite((Resize("x", 0, 2), Resize("z", 0, 2)))


@pytest.mark.parametrize("fill", [Saved("x"), Part("x", 1.0, (6, 4), ((0, 8),))])
def test_dynamic_dim_of_saved_values_is_not_resized_beyond_them(
    fill: Initializer,
) -> None:
    """It must run at larger sizes, too, of which nothing is saved."""
    x = with_runs("x", recipe(6, 4, fill=fill), dim="N")
    lines = "y = aten.relu.default(x)", "return (y,)"
    program = listing({"x": x}, *lines, dims=[Dim("N", 2, 16)])
    asked = [Rewrite((Resize("x", 0, size),)) for size in (2, 7)]
    asked.append(Rewrite((Fix("x", 0),)))
    fits = fit_rewrites(program, asked, {"x": torch.rand(6, 4)}).fits
    assert fits == (asked[0], None, asked[2])


def test_dynamic_dim_stays_in_its_range() -> None:
    assert fitted(ADDED, Resize("x", 0, 1)) is None
    assert fitted(ADDED, Declare("N", 2, 5)) is None
    assert fitted(ADDED, Declare("N", 2, 8)) is not None
    assert fitted(ADDED, Resize("x", 0, 3), Resize("z", 0, 2)) is None


def test_dim_is_made_static_only_for_all_inputs_that_share_it() -> None:
    assert fitted(ADDED, Fix("x", 0)) is None
    assert fitted(ADDED, Fix("x", 0), Fix("z", 0)) is not None
    assert fitted(READ, Fix("x", 0)) is not None


def test_size_of_a_dynamic_dim_is_not_replaced_by_a_literal() -> None:
    leaves = READ.main.statements[0].leaves
    size = next(leaf for leaf in leaves if leaf.kind is LeafKind.SIZE)
    written = Write(MAIN, "y", size.number, "24")
    assert fitted(READ, written) is None
    assert fitted(READ, written, Fix("x", 0)) is not None


@pytest.mark.parametrize("asked", [Resize("x", 0, 974), Resize("x", 0, 1)])
@pytest.mark.parametrize(
    ("shapes", "lines"),
    [
        ({"x": (975, 975), "y": (8, 975)}, ["a = aten.mm.default(y, x)"]),
        (
            {"x": (975, 8), "y": (8, 975), "z": (975,)},
            [
                *("s = aten.sum.default(z)", "m = aten.mul.Tensor(y, s)"),
                "a = aten.mm.default(m, x)",
            ],
        ),
    ],
)
def test_only_tied_dims_of_three_equal_sizes_are_resized(
    shapes: dict[str, Shape], lines: list[str], asked: Resize
) -> None:
    held = {name: recipe(*shape) for name, shape in shapes.items()}
    fit = fitted(listing(held, *lines, "return (a,)"), asked)
    assert fit is not None
    assert fit.changes == (asked, Resize("y", 1, asked.size))


def test_failing_size_out_of_range_may_stay_out_of_range() -> None:
    x = with_runs("x", recipe(6, 16), recipe(20, 16), dim="N")
    lines = "y = aten.abs.default(x)", "return (y,)"
    program = listing({"x": x}, *lines, dims=[Dim("N", 2, 16)])
    zeros = Refill("x", Constant(0.0))
    assert fitted(program, zeros) is not None
    assert fitted(program, Resize("x", 1, 1)) is not None
    assert fitted(program, Resize("x", 0, 17, Run.FAILING)) is not None
    assert fitted(listing({"x": recipe(6, 16)}, *lines), zeros) is not None
    outside = Resize("x", 0, 17, Run.EXAMPLE)  # which was inside
    assert fitted(program, outside) is None


def test_out_of_bounds_indices_may_stay_out_of_bounds() -> None:
    wrong = recipe(4, 3, dtype="int64", fill=Seeded("randint", 3, 41))
    program = listing(
        {"ids": with_runs("ids", below(4, 3, high=40), wrong)},
        "y = aten.embedding.default(self.table, ids)",
        "return (y,)",
        weights={"table": recipe(40, 16)},
    )
    found = fitted(program, Resize("table", 0, 5))
    assert found is not None
    made = apply_changes(program, found.changes).find("ids")
    assert made.recipe(Run.FAILING).fill == Seeded("randint", 3, 41)
    assert made.recipe().fill == Seeded("randint", 0, 5)


# --- other rewrites


def test_partial_rewrite_keeps_the_changes_that_fit() -> None:
    program = one("expand.default(x, [3, 12, 32])", x=(1, 12, 32))
    asked = Resize("x", 1, 0), Resize("x", 1, 4), Resize("x", 2, 1)
    assert fitted(program, *asked) is None
    fit = fitted(program, *asked, partly=True)
    assert fit is not None
    assert set(asked[1:]) <= set(fit.changes)
    assert fitted(program, asked[0], partly=True) is None


def test_gpu_program_is_fitted_without_a_gpu() -> None:
    program = listing(
        {"x": recipe(2, 12, 32, device="cuda")},
        "a = aten.view.default(x, [24, 32])",
        "b = aten.mm.default(a, self.w)",
        "c = aten.arange.default(24, device=torch.device('cuda'))",
        "d = aten.unsqueeze.default(c, 1)",
        "y = aten.add.Tensor(b, d)",
        "return (y,)",
        weights={"w": recipe(32, 64, device="cuda")},
    )
    fit = fitted(program, Resize("x", 1, 3))
    changes = Resize("x", 1, 3), Write(MAIN, "a", 2, "6"), Write(MAIN, "c", 0, "6")
    assert fit == Rewrite(changes)


def test_views_of_large_sizes_follow_a_resize() -> None:
    program = listing(
        {"x": recipe(8, 64, 128)},
        "a = aten.view.default(x, [512, 128])",
        "b = aten.mm.default(a, self.w)",
        "y = aten.view.default(b, [8, 64, 32, 32])",
        "return (y,)",
        weights={"w": recipe(128, 1024)},
    )
    lines, _ = fitted_lines(program, Resize("x", 1, 1), Resize("x", 0, 1))
    assert "[1, 1, 32, 32]" in lines[2]
    fit = fitted(program, Resize("x", 2, 2), Resize("w", 1, 4))
    assert fit is not None
    shapes_now = shapes(apply_changes(program, fit.changes))
    assert shapes_now == {"x": (8, 64, 2), "w": (2, 4)}


def test_program_that_fails_on_fake_tensors_fits_no_resize() -> None:
    program = one("mm.default(x, x)", x=(4, 3))
    assert fitted(program, Resize("x", 0, 2)) is None
    assert fit_rewrites(program, []).fits == ()


def test_data_dependent_size_is_taken_for_all_elements() -> None:
    lines = "m = aten.gt.Scalar(x, 0)", "i = aten.index.Tensor(x, [m])"
    program = listing(
        {"x": recipe(6)}, *lines, "y = aten.relu.default(i)", "return (y,)"
    )
    assert fitted(program, Resize("x", 0, 2)) == Rewrite((Resize("x", 0, 2),))


def test_many_rewrites_fit_in_one_call() -> None:
    lines = ["v0 = aten.relu.default(x)"]
    lines += [f"v{i} = aten.add.Tensor(v{i - 1}, {i})" for i in range(1, 19)]
    lines += ["y = aten.view.default(v18, [24, 32])", "return (y,)"]
    asked = [Rewrite((Resize("x", 2, n),)) for n in range(1, 30)]
    assert all(fit_rewrites(listing({"x": X}, *lines), asked).fits)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("code", "shape", "dim", "left"),
    [
        ("flip.default(x, [2, 0])", (1, 3, 4), 0, "[1]"),
        ("softmax.int(x, -2)", (3, 4, 1), 2, "softmax.int(x, -1)"),
        ("sum.dim_IntList(x, [0])", (3, 1), 1, "[0]"),
        ("expand.default(x, [2, 1, 4])", (2, 1, 1), 1, "[2, 4]"),
        ("view.default(x, [2, 3])", (1, 6), 0, "[2, 3]"),
        ("layer_norm.default(x, [4, 1])", (2, 4, 1), 2, "[4]"),
    ],
)
def test_dim_arguments_are_renumbered_after_a_squeeze(
    code: str, shape: Shape, dim: int, left: str
) -> None:
    [line], _ = fitted_lines(one(code, x=shape), Squeeze("x", dim))
    assert line.endswith((left, f"{left})"))


def test_dim_arguments_are_renumbered_in_all_later_statements() -> None:
    program = listing(
        {"x": recipe(1, 2, 3), "y": recipe(1, 3, 5)},
        "a = aten.transpose.int(x, 1, 2)",
        "b = aten.cat.default([a, y], 2)",
        "c = aten.flip.default(b, [2])",
        "return (c,)",
    )
    lines, _ = fitted_lines(program, Squeeze("x", 0), Squeeze("y", 0))
    assert [line.partition("(")[2] for line in lines] == [
        *("x, 0, 1)", "[a, y], 1)", "b, [1])")
    ]
    assert fitted(program, Squeeze("x", 0)) is None
    assert fitted(program, Squeeze("x", 1)) is None
    bmm = one("bmm.default(x, x)", x=(1, 3, 3))
    assert fitted(bmm, Squeeze("x", 0)) is None


def test_few_saved_values_of_a_part_are_spelled_out() -> None:
    values = {"x": torch.arange(200.0).reshape(10, 20)}
    cut = recipe(5, 20, fill=Saved("x"))
    program = listing({"x": cut}, "y = aten.relu.default(x)", "return (y,)")

    def fill(start: int, stop: int) -> object:
        part = Part("x", 1.0, (5, 20), ((start, stop),))
        fit = fit_rewrites(program, [Rewrite((Refill("x", part),))], values).fits[0]
        assert fit is not None
        [change] = fit.changes
        assert isinstance(change, Refill)
        return change.fill

    assert fill(20, 23) == Sparse(1.0, ((20, 20.0), (21, 21.0), (22, 22.0)))
    assert fill(1, 2) == Constant(1.0)
    assert isinstance(fill(0, 80), Part)
    small = apply_changes(program, [Resize("x", 0, 1), Resize("x", 1, 4)])
    spelled = Rewrite((Refill("x", Part("x", 1.0, (1, 4), ((0, 4),))),))
    [fit] = fit_rewrites(small, [spelled], values).fits
    assert fit == Rewrite((Refill("x", Counted()),))


# --- lengths, offsets and counts


def numbers(*held: int) -> TensorSpec:
    fill = Sparse(0, tuple(enumerate(held)))
    return recipe(len(held), dtype="int64", fill=fill)


def segments() -> PrintedProgram:
    reduced = "y = aten.segment_reduce.default(x, 'sum', lengths=n)"
    return listing({"x": recipe(30, 6), "n": numbers(4, 9, 2, 15)}, reduced, "return y")


def repeated() -> PrintedProgram:
    places = "a = aten.repeat_interleave.Tensor(n, output_size=10)"
    rows = "y = aten.index_select.default(x, 0, a)"
    inputs = {"x": recipe(4, 8), "n": numbers(3, 1, 2, 4)}
    return listing(inputs, places, rows, "return y")


def bags() -> PrintedProgram:
    inputs = {"x": below(40, high=50), "n": numbers(0, 4, 9, 20, 33)}
    bag = "e = aten._embedding_bag.default(self.w, x, n)"
    return listing(inputs, bag, "y = e[0]", "return y", weights={"w": recipe(50, 16)})


@pytest.mark.parametrize("make", [segments, repeated, bags])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_lengths_follow_the_resized_input(make: Make, size: int) -> None:
    smaller = fitted_program(make(), Resize("x", 0, size))
    assert smaller is not None
    assert smaller.find("x").recipe().shape[0] == size


@pytest.mark.parametrize("make", [segments, repeated, bags])
def test_input_and_lengths_can_both_be_resized_to_one(make: Make) -> None:
    smaller = fitted_program(make(), Resize("x", 0, 1), Resize("n", 0, 1))
    assert smaller is not None
    assert [given.recipe().shape[0] for given in smaller.inputs] == [1, 1]


@pytest.mark.parametrize("change", [Refill("n", Constant(1)), Resize("n", 0, 1)])
def test_rows_follow_requested_lengths(change: Change) -> None:
    made = fitted_program(segments(), change)
    assert made is not None
    assert made.find("x").recipe().shape == (4, 6)


def test_literal_output_size_follows_the_repeat_counts() -> None:
    program = repeated()
    ones = fitted_program(program, Refill("n", Constant(1)))
    assert ones is not None
    assert "output_size=4" in ones.main.statements[0].code
    other = Write(MAIN, "a", 1, "12")  # no other can be asked for
    assert fitted_program(program, other, Refill("n", Counted())) is None


@pytest.mark.parametrize("fill", [Constant(0), Constant(-1)])
def test_lengths_that_eager_refuses_do_not_fit(fill: Initializer) -> None:
    assert fitted_program(segments(), Refill("n", fill)) is None


def test_offsets_must_begin_at_zero() -> None:
    assert fitted_program(bags(), Refill("n", Constant(1))) is None
    assert fitted_program(bags(), Refill("n", Counted())) is not None


@pytest.mark.parametrize(
    ("make", "lengths"),
    [
        (segments, numbers(4, 9, 2, 99)),
        # Its numbers follow from what else is drawn.
        (repeated, recipe(4, dtype="int64", fill=Seeded("randint", 1, 9))),
    ],
    ids=["refused", "random"],
)
def test_refused_or_random_lengths_do_not_prevent_a_resize(
    make: Make, lengths: TensorSpec
) -> None:
    program = make()
    (run,) = dict(program.find("x").recipes)
    other = program.with_given(program.find("n").with_recipe(run, lengths))
    assert fitted(other, Resize("x", 0 if make is repeated else 1, 1)) is not None


def test_total_beyond_a_dtype_is_no_length_in_that_dtype() -> None:
    """A product of int8 matrices has 768 elements; none of them is a length of 768."""
    zero = Constant(0)
    held = {
        "x": recipe(1, 32, dtype="int8", fill=zero),
        "y": recipe(1, 32, 24, dtype="int8", fill=zero),
    }
    program = listing(held, "a = aten.matmul.default(x, y)", "return (a,)")
    assert fitted_program(program, Write(MAIN, "a", 0, "None")) is None
    assert fitted_program(program, Resize("x", 1, 7)) is not None
    smaller = fitted_program(program, Resize("x", 1, 2))
    assert smaller is not None
    assert smaller.find("y").recipe().shape == (1, 2, 24)


@pytest.mark.parametrize("size", [3, 4, 5, 11])
def test_numbers_read_from_a_tensor_follow_as_lengths(size: int) -> None:
    """``x.split(n.tolist())``, with what export asserts of the numbers."""
    program = listing(
        {"x": recipe(12, 6), "n": numbers(3, 5, 4)},
        "u = aten.unbind.int(n)",
        *(f"n_{k} = u[{k}]" for k in range(3)),
        *(f"i_{k} = aten.item.default(n_{k})" for k in range(3)),
        "most = i_0 <= 12",
        "a = aten._assert_scalar.default(most, 'too long')",
        "some = i_0 + i_1",
        "all_ = some + i_2",
        "same = all_ == 12",
        "b = aten._assert_scalar.default(same, 'not all of it')",
        "s = aten.split_with_sizes.default(x, [i_0, i_1, i_2])",
        "first = s[0]",
        "last = s[2]",
        "y = aten.sum.default(first)",
        "z = aten.sum.default(last)",
        "return (y, z)",
    )
    smaller = fitted_program(program, Resize("x", 0, size))
    assert smaller is not None
    spec = write_tensor_spec(smaller.find("n").recipe())
    assert sum(int(number) for number in eval(spec, {"torch": torch})) == size
    lines = [statement.line() for statement in smaller.main.statements]
    assert f"same = all_ == {size}" in lines


def counted(fill: Initializer, dtype: str = "int64") -> PrintedProgram:
    return listing(
        {"x": recipe(12, 6), "m": recipe(12, dtype=dtype, fill=fill)},
        "held = aten.gt.Scalar(m, 0)",
        "nonzero = aten.nonzero.default(held)",
        "n = nonzero.shape[0]",
        "few = n <= 4",
        "a = aten._assert_scalar.default(few, 'too many')",
        "s = aten.squeeze.dim(nonzero, 1)",
        "y = aten.index.Tensor(x, [s])",
        "return (y,)",
    )


MARKED = counted(Sparse(0, tuple((place, 1) for place in (0, 3, 6, 9))))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nonzero_count_shrinks_with_the_resized_inputs(size: int) -> None:
    changes = Resize("x", 0, size), Resize("m", 0, size)
    assert fitted_program(MARKED, *changes) is not None


def test_known_count_must_satisfy_its_assertion() -> None:
    ones = Refill("m", Constant(1))
    assert fitted_program(MARKED, ones) is None
    assert fitted_program(MARKED, ones, Resize("m", 0, 4)) is not None


def test_unknown_count_is_not_checked_against_its_assertion() -> None:
    """As if all elements counted: of these there are more than four."""
    program = counted(Sparse(-1.0, ((0, 1.0), (7, 2.0))), "float32")
    assert fitted_program(program, Resize("x", 1, 1)) is not None


def test_offsets_written_in_place_are_unknown() -> None:
    """They are others where they are read: 0, 4 and 8 here."""
    words = recipe(10, dtype="int64", fill=Constant(0))
    program = listing(
        {"x": words, "n": numbers(0, 2, 4)},
        "m = aten.mul_.Tensor(n, 2)",
        "e = aten._embedding_bag.default(self.w, x, n)",
        "y = e[0]",
        "return (m, y)",
        weights={"w": recipe(4, 4)},
    )
    run_for_real(program)
    assert fitted(program, Resize("x", 0, 3)) == Rewrite((Resize("x", 0, 3),))


# --- programs that fake tensors cannot run


ONES = Refill("x", Constant(1.0))
RELU = listing({"x": recipe(4, 6)}, "y = aten.relu.default(x)", "return (y,)")


@pytest.fixture(name="without_fake", scope="module")
def _without_fake() -> Iterator[PrintedProgram]:
    """Register an operator that has no fake kernel, and call it."""
    made: Any = torch.library.Library  # untyped
    library = made("unseen", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    lines = "y = torch.ops.unseen.twice.default(x)", "return (y,)"
    yield listing({"x": recipe(4, 6)}, *lines)
    library._destroy()


def fit_each_kind(program: PrintedProgram) -> dict[str, object]:
    asked = {
        "values": Rewrite((ONES,)),
        "sizes": Rewrite((Resize("x", 0, 1),)),
        "arguments": Rewrite((Write(MAIN, "y", 0, "x"),)),
        "no such values": Rewrite((Refill("x", Constant(1j)),)),
        "in part": Rewrite((Resize("x", 0, 1), ONES), partly=True),
    }
    told = fit_rewrites(program, [*asked.values()])
    return {**dict(zip(asked, told.fits, strict=True)), "misfit": told.misfit}


def test_values_can_change_without_a_fake_kernel(without_fake: PrintedProgram) -> None:
    told = fit_each_kind(without_fake)
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is told["no such values"] is None
    assert "unseen.twice" in str(told["misfit"])


def test_values_can_change_in_a_program_with_a_script_object() -> None:
    held = TensorSpec((), "", Opaque("script_object('q', b'')"))
    weight = InputOrWeight("queue", "script_object", ((Run.EXAMPLE, held),))
    told = fit_each_kind(PrintedProgram(RELU.blocks, (*RELU.given, weight), ()))
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is None
    assert "script_object" in str(told["misfit"])


def test_program_that_fake_tensors_run_has_no_misfit() -> None:
    told = fit_each_kind(RELU)
    assert told["misfit"] == ""
    assert told["sizes"] is not None
