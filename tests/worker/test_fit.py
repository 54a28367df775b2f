"""Rewrites of printed programs, completed with fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from listings import block, listing, recipe, run_for_real
from versions import hands_on_inputs

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

X = recipe(2, 12, 32)
ATEN = "torch.ops.aten"
HIGHER = "torch.ops.higher_order"


def fitted(
    program: PrintedProgram, *changes: Change, partly: bool = False
) -> Rewrite | None:
    return fit_rewrites(program, [Rewrite(changes, partly)]).fits[0]


def fitted_lines(
    program: PrintedProgram, *changes: Change
) -> tuple[list[str], PrintedProgram]:
    """Fit changes, run what comes of it for real, and give its code."""
    fit = fitted(program, *changes)
    assert fit is not None
    assert set(changes) <= set(fit.changes)
    assert not fit.partly
    made = apply_changes(program, fit.changes)
    run_for_real(made)
    return [s.code for s in made.main.statements[:-1]], made


def one(code: str, **shapes: tuple[int, ...]) -> PrintedProgram:
    """Write a listing of one operator, whose inputs have shapes."""
    inputs = {name: recipe(*shape) for name, shape in shapes.items()}
    return listing(inputs, f"y = {ATEN}.{code}", "return (y,)")


CASES: dict[str, tuple[PrintedProgram, Resize, str]] = {
    "view": (one("view.default(x, [24, 32])", x=X.shape), Resize("x", 1, 4), "[8, 32]"),
    "view, a part": (
        one("view.default(x, [2, 12, 4, 8])", x=X.shape),
        Resize("x", 2, 4),
        "[2, 12, 4, 1]",
    ),
    "view, what is left over": (
        one("view.default(x, [2, 12, 4, 8])", x=X.shape),
        Resize("x", 2, 10),
        "[2, 12, 1, 10]",
    ),
    "view, nothing to share out": (
        one("view.default(x, [2, 4, 4])", x=(32,)),
        Resize("x", 0, 17),
        "[1, 1, 17]",
    ),
    "view, worked out": (
        one("view.default(x, [24, -1])", x=X.shape),
        Resize("x", 1, 5),
        "[10, -1]",
    ),
    "reshape": (
        one("reshape.default(x, [2, 384])", x=X.shape),
        Resize("x", 0, 1),
        "[1, 384]",
    ),
    "expand": (
        one("expand.default(x, [3, 12, 32])", x=(1, 12, 32)),
        Resize("x", 1, 4),
        "[3, 4, 32]",
    ),
    "slice": (
        one("slice.Tensor(x, 1, 4, 12)", x=X.shape),
        Resize("x", 1, 3),
        "slice.Tensor(x, 1, 1, 12)",
    ),
    "split": (
        one("split_with_sizes.default(x, [8, 24], 2)", x=X.shape),
        Resize("x", 2, 4),
        "[1, 3]",
    ),
    "split, of no such parts": (
        one("split_with_sizes.default(x, [8, 24], 2)", x=X.shape),
        Resize("x", 2, 2),
        "[1, 1]",
    ),
    "select": (
        one("select.int(x, 1, 11)", x=X.shape),
        Resize("x", 1, 3),
        "select.int(x, 1, 1)",
    ),
    "avg_pool2d": (
        one("avg_pool2d.default(x, [8, 8])", x=(1, 1, 8, 8)),
        Resize("x", 2, 2),
        "[2, 2]",
    ),
    "repeat": (
        one("repeat.default(x, [1, 2])", x=(4, 6)),
        Resize("x", 0, 1),
        "repeat.default(x, [1, 2])",
    ),
    "unfold": (
        one("unfold.default(x, 1, 6, 3)", x=(4, 12)),
        Resize("x", 1, 2),
        "unfold.default(x, 1, 1, 3)",
    ),
    "upsample": (
        one("upsample_nearest2d.vec(x, [16, 16], None)", x=(1, 1, 8, 8)),
        Resize("x", 2, 2),
        "upsample_nearest2d.vec(x, [16, 16], None)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_literal_follows_the_size_that_it_depends_on(name: str) -> None:
    program, change, expected = CASES[name]
    lines, _ = fitted_lines(program, change)
    assert expected in lines[0]


def shapes(program: PrintedProgram) -> dict[str, tuple[int, ...]]:
    return {given.name: given.recipe().shape for given in program.given}


PARTNERS: dict[str, tuple[PrintedProgram, Resize, dict[str, tuple[int, ...]]]] = {
    "mm": (
        one("mm.default(x, y)", x=(4, 8), y=(8, 3)),
        Resize("x", 1, 1),
        {"y": (1, 3)},
    ),
    "bmm": (
        one("bmm.default(x, y)", x=(2, 4, 8), y=(2, 8, 3)),
        Resize("x", 0, 1),
        {"y": (1, 8, 3)},
    ),
    "addmm": (
        one("addmm.default(b, x, y)", b=(3,), x=(4, 8), y=(8, 3)),
        Resize("y", 1, 2),
        {"b": (2,), "x": (4, 8)},
    ),
    "cat": (
        one("cat.default([x, y], 1)", x=(4, 8), y=(4, 3)),
        Resize("x", 0, 1),
        {"y": (1, 3)},
    ),
    "conv2d": (
        one("conv2d.default(x, w)", x=(1, 6, 5, 5), w=(4, 6, 3, 3)),
        Resize("x", 1, 1),
        {"w": (4, 1, 3, 3)},
    ),
    "layer_norm": (
        one("layer_norm.default(x, [32], w)", x=(2, 32), w=(32,)),
        Resize("x", 1, 2),
        {"w": (2,)},
    ),
    "sdpa": (
        one(
            "scaled_dot_product_attention.default(q, k, v)",
            q=(1, 2, 12, 8),
            k=(1, 2, 12, 8),
            v=(1, 2, 12, 8),
        ),
        Resize("q", 3, 4),
        {"k": (1, 2, 12, 4)},
    ),
}


@pytest.mark.parametrize("name", PARTNERS)
def test_other_inputs_follow_a_resized_input(name: str) -> None:
    program, change, expected = PARTNERS[name]
    _, made = fitted_lines(program, change)
    assert {k: v for k, v in shapes(made).items() if k in expected} == expected


def test_literal_of_an_earlier_statement_follows_a_resize() -> None:
    program = listing(
        {"x": recipe(12, 12)},
        f"m = {ATEN}.full.default([12, 12], 12, dtype=torch.float32)",
        f"t = {ATEN}.tril.default(m)",
        f"y = {ATEN}.add.Tensor(x, t)",
        "return (y,)",
    )
    lines, _ = fitted_lines(program, Resize("x", 0, 5), Resize("x", 1, 5))
    assert "full.default([5, 5], 12, dtype" in lines[0]


def test_arange_length_follows_a_resize() -> None:
    program = listing(
        {"x": recipe(2, 12, 4)},
        f"p = {ATEN}.arange.start_step(0, 12, 1)",
        f"c = {ATEN}.unsqueeze.default(p, 1)",
        f"y = {ATEN}.mul.Tensor(x, c)",
        "return (y,)",
    )
    lines, _ = fitted_lines(program, Resize("x", 1, 5))
    assert "arange.start_step(0, 5, 1)" in lines[0]


def test_chain_of_views_follows_a_resize() -> None:
    program = listing(
        {"x": X},
        f"a = {ATEN}.view.default(x, [24, 32])",
        f"b = {ATEN}.mm.default(a, self.w)",
        f"c = {ATEN}.view.default(b, [2, 12, 64])",
        f"d = {ATEN}.view.default(c, [2, 12, 4, 16])",
        f"e = {ATEN}.permute.default(d, [0, 2, 1, 3])",
        "return (e,)",
        weights={"w": recipe(32, 64)},
    )
    lines, _ = fitted_lines(program, Resize("x", 0, 1), Resize("x", 1, 3))
    assert [line.partition("(")[2] for line in lines[2:]] == [
        "b, [1, 3, 64])",
        "c, [1, 3, 4, 16])",
        "d, [0, 2, 1, 3])",
    ]
    fit = fitted(program, Resize("x", 2, 4))
    assert fit is not None
    assert Resize("w", 0, 4) in fit.changes


def test_repairs_are_in_normal_form() -> None:
    program = CASES["view"][0]
    fit = fitted(program, Resize("x", 1, 4))
    assert fit == Rewrite((Resize("x", 1, 4), Write(MAIN, "y", 2, "8")))
    assert fitted(apply_changes(program, fit.changes), Resize("x", 1, 4)) is not None


def test_written_buffer_is_not_converted_to_a_parameter() -> None:
    held = InputOrWeight("w", "buffer", ((Run.EXAMPLE, recipe(4)),))
    program = listing(
        {"x": recipe(4), "w": held},
        f"y = {ATEN}.add.Tensor(x, self.w)",
        "self.w.copy_(y)",
        "return (y,)",
    )
    assert fitted(program, Convert("w", "parameter")) is None
    assert fitted(program, Convert("w", "non_persistent_buffer")) is not None
    fit = fitted(program, Resize("x", 0, 1))  # it is broadcast
    assert fit == Rewrite((Resize("x", 0, 1),))
    assert fitted(program, Resize("w", 0, 1)) == Rewrite(
        (Resize("w", 0, 1), Resize("x", 0, 1))
    )


def test_impossible_changes_do_not_fit() -> None:
    program = CASES["view"][0]
    assert fitted(program, Resize("x", 1, 0)) is None
    assert fitted(program, Resize("x", 7, 1)) is None
    assert fitted(program, Write(MAIN, "y", 1, "[5, 32]")) is None
    assert fitted(program, Cast("x", "int64"), Write(MAIN, "y", 1, "[1]")) is None


def test_dtype_changes_only_by_a_cast() -> None:
    program = listing(
        {"x": recipe(4, 8, dtype="bfloat16")},
        f"a = {ATEN}._to_copy.default(x, dtype=torch.float32)",
        f"b = {ATEN}._to_copy.default(a, dtype=torch.bfloat16)",
        f"y = {ATEN}.mm.default(b, self.w)",
        "return (y,)",
        weights={"w": recipe(8, 2, dtype="bfloat16")},
    )
    _, made = fitted_lines(program, Cast("x", "float32"))
    assert made.find("w").recipe().dtype == "bfloat16"  # it need not
    lines, made = fitted_lines(program, Cast("w", "float32"))
    assert "dtype=torch.float32" in lines[1]
    index = recipe(3, dtype="int64", fill=Constant(0))
    other = listing({"x": index}, f"y = {ATEN}.mul.Tensor(x, 2)", "return (y,)")
    assert fitted(other, Write(MAIN, "y", 1, "2.5")) is None


def test_indices_stay_in_bounds_of_a_resized_table() -> None:
    ids = recipe(2, 5, dtype="int64", fill=Seeded("randint", 0, 100))
    program = listing(
        {"x": ids},
        f"s = {ATEN}.slice.Tensor(x, 1, 0, 4)",
        f"y = {ATEN}.embedding.default(self.w, s)",
        "return (y,)",
        weights={"w": recipe(100, 8)},
    )
    fit = fitted(program, Resize("w", 0, 3))
    assert fit is not None
    assert fit.changes == (Refill("x", Seeded("randint", 0, 3)), Resize("w", 0, 3))
    run_for_real(apply_changes(program, fit.changes))
    assert fitted(program, Resize("w", 0, 3), Refill("x", Counted())) is None
    assert fitted(program, Resize("w", 0, 10), Refill("x", Counted())) is not None


def test_table_shrinks_with_the_tokens_that_count_its_rows() -> None:
    """No value of the tokens makes their positions fewer."""
    tokens = recipe(1, 8, dtype="int64")
    program = listing(
        {"w": recipe(10, 4), "x": tokens},
        f"ne = {ATEN}.ne.Scalar(x, 1)",
        f"cumsum = {ATEN}.cumsum.default(ne, 1)",
        f"add = {ATEN}.add.Tensor(cumsum, 1)",
        f"y = {ATEN}.embedding.default(w, add)",
        "return (y,)",
    )
    program = apply_changes(program, [Refill("x", Constant(0))])
    for rows, length in ((9, 7), (5, 3), (3, 1)):
        _, made = fitted_lines(program, Resize("w", 0, rows))
        assert made.find("x").recipe().shape == (1, length)
    assert fitted(program, Resize("w", 0, 2)) is None
    assert fitted(program, Resize("w", 0, 3), Resize("x", 1, 2)) is None


def test_table_shrinks_with_an_arange_that_indexes_it() -> None:
    program = listing(
        {"w": recipe(8, 4)},
        f"arange = {ATEN}.arange.default(8)",
        f"y = {ATEN}.embedding.default(w, arange)",
        "return (y,)",
    )
    lines, _ = fitted_lines(program, Resize("w", 0, 5))
    assert lines[0] == f"{ATEN}.arange.default(5)"


@pytest.mark.parametrize(
    "code",
    [
        "index.Tensor(x, [i])",
        "index.Tensor(x, [None, i])",
        "index_select.default(x, 0, i)",
        "index_add.default(x, 0, i, z)",
        "index_put.default(x, [i], z)",
    ],
)
def test_indices_of_other_operators_stay_in_bounds(code: str) -> None:
    ids = recipe(6, dtype="int64", fill=Counted())
    inputs = {"x": recipe(6, 6), "i": ids, "z": recipe(6, 6)}
    program = listing(inputs, f"y = {ATEN}.{code}", "return (y,)")
    _, made = fitted_lines(program, Resize("x", 0, 2), Resize("x", 1, 2))
    assert made.find("i").recipe().fill in (Counted(), Seeded("randint", 0, 2))


def test_scatter_indices_stay_in_bounds() -> None:
    ids = recipe(2, 6, dtype="int64", fill=Seeded("randint", 0, 6))
    inputs = {"x": recipe(2, 6), "i": ids, "z": recipe(2, 6)}
    line = f"y = {ATEN}.scatter.src(x, 1, i, z)"
    program = listing(inputs, line, "return (y,)")
    _, made = fitted_lines(program, Resize("x", 1, 3))
    assert made.find("i").recipe().fill == Seeded("randint", 0, 3)


def cond(*lines: str) -> PrintedProgram:
    yes = block("Yes", ["a"], *lines, "return (b,)")
    no = block("No", ["a"], f"b = {ATEN}.view.default(a, [24, 32])", "return (b,)")
    return listing(
        {"x": X, "p": recipe(dtype="bool", fill=Constant(True))},
        "cond = torch.cond(p, self.yes, self.no, (x,))",
        "y = cond[0]",
        "return (y,)",
        blocks={"yes": yes, "no": no},
    )


@hands_on_inputs
def test_literals_in_branches_follow_a_resize() -> None:
    program = cond(
        f"c = {ATEN}.relu.default(a)", f"b = {ATEN}.view.default(c, [24, 32])"
    )
    _, made = fitted_lines(program, Resize("x", 1, 1))
    views = [made.block(name).statement("b").code for name in ("Yes", "No")]
    assert all("[2, 32]" in code for code in views)


def test_branch_that_returns_another_shape_does_not_fit() -> None:
    program = cond(f"b = {ATEN}.view.default(a, [24, 32])")
    assert fitted(program, Write("Yes", "b", 1, "[12, 64]")) is None


def test_values_of_blocks_are_typed() -> None:
    answer = fit_rewrites(cond(f"b = {ATEN}.view.default(a, [24, 32])"), [])
    told = {(typed.block, typed.name): typed.shape for typed in answer.values}
    assert told[MAIN, "x"] == told["Yes", "a"] == (2, 12, 32)
    assert told["No", "b"] == told[MAIN, "y"] == (24, 32)
    assert (MAIN, "cond") not in told


def loop() -> PrintedProgram:
    goes = block("Goes", ["i", "a", "w"], f"l = {ATEN}.lt.Scalar(i, 3)", "return l")
    body = block(
        "Body",
        ["i", "a", "w"],
        f"j = {ATEN}.add.Tensor(i, 1)",
        f"m = {ATEN}.mm.default(a, w)",
        f"r = {ATEN}.view.default(m, [4, 8])",
        "return (j, r)",
    )
    return listing(
        {"x": recipe(4, 8), "i": recipe(dtype="int64", fill=Constant(0))},
        f"w = {HIGHER}.while_loop(self.goes, self.body, (i, x), (self.m,))",
        "y = w[1]",
        "return (y,)",
        weights={"m": recipe(8, 8)},
        blocks={"goes": goes, "body": body},
    )


def test_carried_values_of_a_loop_keep_their_shapes() -> None:
    _, made = fitted_lines(loop(), Resize("x", 0, 1))
    assert "[1, 8]" in made.block("Body").statement("r").code
    _, made = fitted_lines(loop(), Resize("x", 1, 2))
    assert made.find("m").recipe().shape == (2, 2)
    assert fitted(loop(), Write("Body", "r", 1, "[8, 4]")) is None


def dynamic(*lines: str, other: str = "N", high: int | None = 64) -> PrintedProgram:
    inputs = {
        "x": InputOrWeight("x", "input", ((Run.EXAMPLE, recipe(6, 4)),), ((0, "N"),)),
        "z": InputOrWeight("z", "input", ((Run.EXAMPLE, recipe(6, 4)),), ((0, other),)),
    }
    dims = [Dim("N", 2, high), Dim("M", 2, high)]
    return listing(inputs, *lines, "return (y,)", dims=dims)


ADD = f"y = {ATEN}.add.Tensor(x, z)"


def test_inputs_that_share_a_dynamic_dim_are_resized_together() -> None:
    fit = fitted(dynamic(ADD), Resize("x", 0, 2))
    assert fit == Rewrite((Resize("x", 0, 2), Resize("z", 0, 2)))


@pytest.mark.parametrize("fill", [Saved("x"), Part("x", 1.0, (6, 4), ((0, 8),))])
def test_dynamic_dim_of_saved_values_is_not_resized_beyond_them(
    fill: Initializer,
) -> None:
    """It must run at larger sizes, too, of which nothing is saved."""
    x = InputOrWeight(
        "x", "input", ((Run.EXAMPLE, recipe(6, 4, fill=fill)),), ((0, "N"),)
    )
    lines = f"y = {ATEN}.relu.default(x)", "return (y,)"
    program = listing({"x": x}, *lines, dims=[Dim("N", 2, 16)])
    saved = {"x": torch.rand(6, 4)}
    asked = [Rewrite((Resize("x", 0, size),)) for size in (2, 7)]
    asked.append(Rewrite((Fix("x", 0),)))
    fits = fit_rewrites(program, asked, saved).fits
    assert fits == (asked[0], None, asked[2])


def test_dynamic_dim_stays_in_its_range() -> None:
    assert fitted(dynamic(ADD), Resize("x", 0, 1)) is None
    assert fitted(dynamic(ADD), Declare("N", 2, 5)) is None
    assert fitted(dynamic(ADD), Declare("N", 2, 8)) is not None
    assert fitted(dynamic(ADD), Resize("x", 0, 3), Resize("z", 0, 2)) is None


def test_dim_is_made_static_only_for_all_inputs_that_share_it() -> None:
    assert fitted(dynamic(ADD), Fix("x", 0)) is None
    assert fitted(dynamic(ADD), Fix("x", 0), Fix("z", 0)) is not None
    read = dynamic(f"y = {ATEN}.view.default(x, [x.shape[0] * 4])")
    assert fitted(read, Fix("x", 0)) is not None


def test_size_of_a_dynamic_dim_is_not_replaced_by_a_literal() -> None:
    read = dynamic(f"y = {ATEN}.view.default(x, [x.shape[0] * 4])")
    leaves = read.main.statements[0].leaves
    size = next(leaf for leaf in leaves if leaf.kind is LeafKind.SIZE)
    written = Write(MAIN, "y", size.number, "24")
    assert fitted(read, written) is None
    assert fitted(read, written, Fix("x", 0)) is not None


@pytest.mark.parametrize("asked", [Resize("x", 0, 974), Resize("x", 0, 1)])
@pytest.mark.parametrize(
    ("shapes", "lines"),
    [
        ({"x": (975, 975), "y": (8, 975)}, [f"a = {ATEN}.mm.default(y, x)"]),
        (
            {"x": (975, 8), "y": (8, 975), "z": (975,)},
            [
                f"s = {ATEN}.sum.default(z)",
                f"m = {ATEN}.mul.Tensor(y, s)",
                f"a = {ATEN}.mm.default(m, x)",
            ],
        ),
    ],
)
def test_only_tied_dims_of_three_equal_sizes_are_resized(
    shapes: dict[str, tuple[int, ...]], lines: list[str], asked: Resize
) -> None:
    held = {name: recipe(*shape) for name, shape in shapes.items()}
    fit = fitted(listing(held, *lines, "return (a,)"), asked)
    assert fit is not None
    assert fit.changes == (asked, Resize("y", 1, asked.size))


def test_partial_rewrite_keeps_the_changes_that_fit() -> None:
    program = CASES["expand"][0]
    asked = Resize("x", 1, 0), Resize("x", 1, 4), Resize("x", 2, 1)
    assert fitted(program, *asked) is None
    fit = fitted(program, *asked, partly=True)
    assert fit is not None
    assert set(asked[1:]) <= set(fit.changes)
    assert fitted(program, asked[0], partly=True) is None


def test_gpu_program_is_fitted_without_a_gpu() -> None:
    program = listing(
        {"x": recipe(2, 12, 32, device="cuda")},
        f"a = {ATEN}.view.default(x, [24, 32])",
        f"b = {ATEN}.mm.default(a, self.w)",
        f"c = {ATEN}.arange.default(24, device=torch.device('cuda'))",
        f"d = {ATEN}.unsqueeze.default(c, 1)",
        f"y = {ATEN}.add.Tensor(b, d)",
        "return (y,)",
        weights={"w": recipe(32, 64, device="cuda")},
    )
    fit = fitted(program, Resize("x", 1, 3))
    changes = Resize("x", 1, 3), Write(MAIN, "a", 2, "6"), Write(MAIN, "c", 0, "6")
    assert fit == Rewrite(changes)


def test_views_of_large_sizes_follow_a_resize() -> None:
    program = listing(
        {"x": recipe(8, 64, 128)},
        f"a = {ATEN}.view.default(x, [512, 128])",
        f"b = {ATEN}.mm.default(a, self.w)",
        f"y = {ATEN}.view.default(b, [8, 64, 32, 32])",
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
    program = listing(
        {"x": recipe(6)},
        f"m = {ATEN}.gt.Scalar(x, 0)",
        f"i = {ATEN}.index.Tensor(x, [m])",
        f"y = {ATEN}.relu.default(i)",
        "return (y,)",
    )
    assert fitted(program, Resize("x", 0, 2)) == Rewrite((Resize("x", 0, 2),))


def test_many_rewrites_fit_in_one_call() -> None:
    lines = [f"v0 = {ATEN}.relu.default(x)"]
    lines += [f"v{i} = {ATEN}.add.Tensor(v{i - 1}, {i})" for i in range(1, 19)]
    lines += [f"y = {ATEN}.view.default(v18, [24, 32])", "return (y,)"]
    program = listing({"x": X}, *lines)
    asked = [Rewrite((Resize("x", 2, n),)) for n in range(1, 30)]
    answer = fit_rewrites(program, asked)
    assert all(answer.fits)
    assert torch.is_grad_enabled()


def with_runs(
    name: str, example: TensorSpec, failing: TensorSpec, *dims: str
) -> InputOrWeight:
    """Give an input other values in the run that fails."""
    runs = (Run.EXAMPLE, example), (Run.FAILING, failing)
    return InputOrWeight(name, "input", runs, tuple(enumerate(dims)))


def test_failing_size_out_of_range_may_stay_out_of_range() -> None:
    x = with_runs("x", recipe(6, 16), recipe(20, 16), "N")
    lines = f"y = {ATEN}.abs.default(x)", "return (y,)"
    program = listing({"x": x}, *lines, dims=[Dim("N", 2, 16)])
    assert fitted(program, Refill("x", Constant(0.0))) is not None
    assert fitted(program, Resize("x", 1, 1)) is not None
    assert fitted(program, Resize("x", 0, 17, Run.FAILING)) is not None
    inside = listing({"x": recipe(6, 16)}, *lines)
    assert fitted(inside, Refill("x", Constant(0.0))) is not None
    outside = Resize("x", 0, 17, Run.EXAMPLE)  # which was inside
    assert fitted(program, outside) is None


def test_out_of_bounds_indices_may_stay_out_of_bounds() -> None:
    ids = with_runs(
        "ids",
        recipe(4, 3, dtype="int64", fill=Seeded("randint", 0, 40)),
        recipe(4, 3, dtype="int64", fill=Seeded("randint", 3, 41)),
    )
    program = listing(
        {"ids": ids},
        f"y = {ATEN}.embedding.default(self.table, ids)",
        "return (y,)",
        weights={"table": recipe(40, 16)},
    )
    found = fitted(program, Resize("table", 0, 5))
    assert found is not None
    made = apply_changes(program, found.changes).find("ids")
    assert made.recipe(Run.FAILING).fill == Seeded("randint", 3, 41)
    assert made.recipe().fill == Seeded("randint", 0, 5)


SQUEEZED: dict[str, tuple[PrintedProgram, Squeeze, str]] = {
    "dims": (one("flip.default(x, [2, 0])", x=(1, 3, 4)), Squeeze("x", 0), "[1]"),
    "a dim from the end": (
        one("softmax.int(x, -2)", x=(3, 4, 1)),
        Squeeze("x", 2),
        "softmax.int(x, -1)",
    ),
    "a dim before": (one("sum.dim_IntList(x, [0])", x=(3, 1)), Squeeze("x", 1), "[0]"),
    "expand": (
        one("expand.default(x, [2, 1, 4])", x=(2, 1, 1)),
        Squeeze("x", 1),
        "[2, 4]",
    ),
    "view of another rank": (
        one("view.default(x, [2, 3])", x=(1, 6)),
        Squeeze("x", 0),
        "[2, 3]",
    ),
    "layer_norm": (
        one("layer_norm.default(x, [4, 1])", x=(2, 4, 1)),
        Squeeze("x", 2),
        "[4]",
    ),
}


@pytest.mark.parametrize("name", SQUEEZED)
def test_dim_arguments_are_renumbered_after_a_squeeze(name: str) -> None:
    program, squeeze, left = SQUEEZED[name]
    [line], _ = fitted_lines(program, squeeze)
    assert line.endswith((left, f"{left})"))


def test_dim_arguments_are_renumbered_in_all_later_statements() -> None:
    program = listing(
        {"x": recipe(1, 2, 3), "y": recipe(1, 3, 5)},
        f"a = {ATEN}.transpose.int(x, 1, 2)",
        f"b = {ATEN}.cat.default([a, y], 2)",
        f"c = {ATEN}.flip.default(b, [2])",
        "return (c,)",
    )
    lines, _ = fitted_lines(program, Squeeze("x", 0), Squeeze("y", 0))
    assert [line.partition("(")[2] for line in lines] == [
        "x, 0, 1)",
        "[a, y], 1)",
        "b, [1])",
    ]
    assert fitted(program, Squeeze("x", 0)) is None
    assert fitted(program, Squeeze("x", 1)) is None
    bmm = one("bmm.default(x, x)", x=(1, 3, 3))
    assert fitted(bmm, Squeeze("x", 0)) is None


def test_few_saved_values_of_a_part_are_spelled_out() -> None:
    values = torch.arange(200.0).reshape(10, 20)
    cut = recipe(5, 20, fill=Saved("x"))
    program = listing({"x": cut}, f"y = {ATEN}.relu.default(x)", "return (y,)")

    def fill(start: int, stop: int) -> object:
        part = Part("x", 1.0, (5, 20), ((start, stop),))
        rewrite = Rewrite((Refill("x", part),))
        fit = fit_rewrites(program, [rewrite], {"x": values}).fits[0]
        assert fit is not None
        [change] = fit.changes
        assert isinstance(change, Refill)
        return change.fill

    assert fill(20, 23) == Sparse(1.0, ((20, 20.0), (21, 21.0), (22, 22.0)))
    assert fill(1, 2) == Constant(1.0)
    assert isinstance(fill(0, 80), Part)
    small = apply_changes(program, [Resize("x", 0, 1), Resize("x", 1, 4)])
    spelled = Rewrite((Refill("x", Part("x", 1.0, (1, 4), ((0, 4),))),))
    [fit] = fit_rewrites(small, [spelled], {"x": values}).fits
    assert fit == Rewrite((Refill("x", Counted()),))


def numbers(*held: int) -> TensorSpec:
    fill = Sparse(0, tuple(enumerate(held)))
    return recipe(len(held), dtype="int64", fill=fill)


def fitted_program(program: PrintedProgram, *changes: Change) -> PrintedProgram | None:
    """Fit changes; what comes of them runs."""
    [fit] = fit_rewrites(program, [Rewrite(changes)]).fits
    if fit is None:
        return None
    made = apply_changes(program, fit.changes)
    run_for_real(made)
    return made


def segments() -> PrintedProgram:
    reduced = f"y = {ATEN}.segment_reduce.default(x, 'sum', lengths=n)"
    return listing({"x": recipe(30, 6), "n": numbers(4, 9, 2, 15)}, reduced, "return y")


def repeated() -> PrintedProgram:
    places = f"a = {ATEN}.repeat_interleave.Tensor(n, output_size=10)"
    rows = f"y = {ATEN}.index_select.default(x, 0, a)"
    inputs = {"x": recipe(4, 8), "n": numbers(3, 1, 2, 4)}
    return listing(inputs, places, rows, "return y")


def bags() -> PrintedProgram:
    words = recipe(40, dtype="int64", fill=Seeded("randint", 0, 50))
    inputs = {"x": words, "n": numbers(0, 4, 9, 20, 33)}
    bag = f"e = {ATEN}._embedding_bag.default(self.w, x, n)"
    return listing(inputs, bag, "y = e[0]", "return y", weights={"w": recipe(50, 16)})


@pytest.mark.parametrize("make", [segments, repeated, bags])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_lengths_follow_the_resized_input(make: object, size: int) -> None:
    assert callable(make)
    smaller = fitted_program(make(), Resize("x", 0, size))
    assert smaller is not None
    assert smaller.find("x").recipe().shape[0] == size


@pytest.mark.parametrize("make", [segments, repeated, bags])
def test_input_and_lengths_can_both_be_resized_to_one(make: object) -> None:
    assert callable(make)
    smaller = fitted_program(make(), Resize("x", 0, 1), Resize("n", 0, 1))
    assert smaller is not None
    assert [given.recipe().shape[0] for given in smaller.inputs] == [1, 1]


def test_rows_follow_requested_lengths() -> None:
    ones = fitted_program(segments(), Refill("n", Constant(1)))
    assert ones is not None
    assert ones.find("x").recipe().shape == (4, 6)
    fewer = fitted_program(segments(), Resize("n", 0, 1))
    assert fewer is not None
    assert fewer.find("x").recipe().shape == (4, 6)


def test_literal_output_size_follows_the_repeat_counts() -> None:
    program = repeated()
    ones = fitted_program(program, Refill("n", Constant(1)))
    assert ones is not None
    assert "output_size=4" in ones.main.statements[0].code
    # No other can be asked for.
    assert (
        fitted_program(program, Write(MAIN, "a", 1, "12"), Refill("n", Counted()))
        is None
    )


def test_int8_inputs_are_resized_with_a_total_beyond_int8() -> None:
    """768 elements, counted in numbers of up to 127."""
    held = {
        "x": recipe(1, 32, dtype="int8", fill=Constant(0)),
        "y": recipe(1, 32, 24, dtype="int8", fill=Constant(0)),
    }
    program = listing(held, f"z = {ATEN}.matmul.default(x, y)", "return z")
    found = fitted_program(program, Resize("x", 1, 2))
    assert found is not None
    assert found.find("y").recipe().shape == (1, 2, 24)


@pytest.mark.parametrize("fill", [Constant(0), Constant(-1)])
def test_lengths_that_eager_refuses_do_not_fit(fill: Initializer) -> None:
    assert fitted_program(segments(), Refill("n", fill)) is None


def test_offsets_must_begin_at_zero() -> None:
    assert fitted_program(bags(), Refill("n", Constant(1))) is None
    assert fitted_program(bags(), Refill("n", Counted())) is not None


def test_lengths_already_refused_by_eager_do_not_prevent_a_resize() -> None:
    program = segments()
    wrong = program.with_given(program.find("n").with_recipe(RUN, numbers(4, 9, 2, 99)))
    assert fit_rewrites(wrong, [Rewrite((Resize("x", 1, 1),))]).fits[0] is not None


RUN = next(iter(dict(segments().find("x").recipes)))


def test_total_beyond_a_dtype_is_no_length_in_that_dtype() -> None:
    """A product of int8 matrices has 768 elements; none of them is a length of 768."""
    held = {
        "x": recipe(1, 32, dtype="int8", fill=Constant(0)),
        "y": recipe(1, 32, 24, dtype="int8", fill=Constant(0)),
    }
    program = listing(held, f"a = {ATEN}.matmul.default(x, y)", "return (a,)")
    assert fitted_program(program, Write(MAIN, "a", 0, "None")) is None
    assert fitted_program(program, Resize("x", 1, 7)) is not None


def test_random_lengths_do_not_prevent_a_resize() -> None:
    """Its numbers follow from what else is drawn."""
    drawn = recipe(4, dtype="int64", fill=Seeded("randint", 1, 9))
    program = repeated()
    program = program.with_given(program.find("n").with_recipe(RUN, drawn))
    assert fit_rewrites(program, [Rewrite((Resize("x", 1, 1),))]).fits[0] is not None


def taken_apart() -> PrintedProgram:
    """``x.split(n.tolist())``, with what export asserts of the numbers."""
    read = [f"i_{k} = {ATEN}.item.default(n_{k})" for k in range(3)]
    return listing(
        {"x": recipe(12, 6), "n": numbers(3, 5, 4)},
        f"u = {ATEN}.unbind.int(n)",
        *(f"n_{k} = u[{k}]" for k in range(3)),
        *read,
        "most = i_0 <= 12",
        f"a = {ATEN}._assert_scalar.default(most, 'too long')",
        "some = i_0 + i_1",
        "all_ = some + i_2",
        "same = all_ == 12",
        f"b = {ATEN}._assert_scalar.default(same, 'not all of it')",
        f"s = {ATEN}.split_with_sizes.default(x, [i_0, i_1, i_2])",
        "first = s[0]",
        "last = s[2]",
        f"y = {ATEN}.sum.default(first)",
        f"z = {ATEN}.sum.default(last)",
        "return (y, z)",
    )


@pytest.mark.parametrize("size", [3, 4, 5, 11])
def test_numbers_read_from_a_tensor_follow_as_lengths(size: int) -> None:
    smaller = fitted_program(taken_apart(), Resize("x", 0, size))
    assert smaller is not None
    held = run_numbers(smaller)
    assert sum(held) == size
    assert "same = all_ == " + str(size) in [
        statement.line() for statement in smaller.main.statements
    ]


def run_numbers(program: PrintedProgram) -> list[int]:
    scope = {"torch": torch}
    held = eval(write_tensor_spec(program.find("n").recipe()), scope)
    return [int(number) for number in held]


def counted(fill: Initializer, dtype: str) -> PrintedProgram:
    return listing(
        {"x": recipe(12, 6), "m": recipe(12, dtype=dtype, fill=fill)},
        f"held = {ATEN}.gt.Scalar(m, 0)",
        f"nonzero = {ATEN}.nonzero.default(held)",
        "n = nonzero.shape[0]",
        "few = n <= 4",
        f"a = {ATEN}._assert_scalar.default(few, 'too many')",
        f"s = {ATEN}.squeeze.dim(nonzero, 1)",
        f"y = {ATEN}.index.Tensor(x, [s])",
        "return (y,)",
    )


MARKED = Sparse(0, tuple((place, 1) for place in (0, 3, 6, 9)))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_nonzero_count_shrinks_with_the_resized_inputs(size: int) -> None:
    program = counted(MARKED, "int64")
    assert (
        fitted_program(program, Resize("x", 0, size), Resize("m", 0, size)) is not None
    )


def test_known_count_must_satisfy_its_assertion() -> None:
    program = counted(MARKED, "int64")
    assert fitted_program(program, Refill("m", Constant(1))) is None
    assert (
        fitted_program(program, Refill("m", Constant(1)), Resize("m", 0, 4)) is not None
    )


def test_unknown_count_is_not_checked_against_its_assertion() -> None:
    """As if all elements counted: of these there are more than four."""
    program = counted(Sparse(-1.0, ((0, 1.0), (7, 2.0))), "float32")
    assert fitted_program(program, Resize("x", 1, 1)) is not None


def test_offsets_written_in_place_are_unknown() -> None:
    """They are others where they are read: 0, 4 and 8 here."""
    words = recipe(10, dtype="int64", fill=Constant(0))
    program = listing(
        {"x": words, "n": numbers(0, 2, 4)},
        f"m = {ATEN}.mul_.Tensor(n, 2)",
        f"e = {ATEN}._embedding_bag.default(self.w, x, n)",
        "y = e[0]",
        "return (m, y)",
        weights={"w": recipe(4, 4)},
    )
    run_for_real(program)
    fewer = Rewrite((Resize("x", 0, 3),))
    assert fit_rewrites(program, [fewer]).fits[0] == fewer


ATEN, HIGHER = "torch.ops.aten", "torch.ops.higher_order"
IDS = recipe(2, 5, dtype="int64", fill=Seeded("randint", 0, 100))
TABLE = {"w": recipe(100, 8)}
LOOKED_UP = f"e = {ATEN}.embedding.default(t, s)"


def in_a_branch() -> PrintedProgram:
    first = f"s = {ATEN}.slice.Tensor(i, 1, 0, 4)"
    yes = block("Yes", ["i", "t"], first, LOOKED_UP, "return (e,)")
    zeros = f"e = {ATEN}.mul.Tensor(e_1, 0)"
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
    goes = block("Goes", carried, f"l = {ATEN}.lt.Scalar(n, 3)", "return l")
    body = block(
        "Body",
        carried,
        f"m = {ATEN}.add.Tensor(n, 1)",
        f"s = {ATEN}.clone.default(i)",
        LOOKED_UP,
        f"b = {ATEN}.mean.default(e)",
        f"c = {ATEN}.add.Tensor(a, b)",
        "return (m, c)",
    )
    inputs = {
        "n": recipe(dtype="int64", fill=Constant(0)),
        "a": recipe(3),
        "x": IDS,
    }
    return listing(
        inputs,
        f"w_1 = {HIGHER}.while_loop(self.goes, self.body, (n, a), (x, self.w))",
        "y = w_1[1]",
        "return (y,)",
        weights=TABLE,
        blocks={"goes": goes, "body": body},
    )


def row_by_row() -> PrintedProgram:
    first = f"s = {ATEN}.slice.Tensor(i, 0, 0, 4)"
    body = block("Body", ["i", "t"], first, LOOKED_UP, "return (e,)")
    return listing(
        {"x": IDS},
        f"map_1 = {HIGHER}.map_impl(self.body, [x], [self.w])",
        "y = map_1[0]",
        "return (y,)",
        weights=TABLE,
        blocks={"body": body},
    )


@pytest.mark.parametrize("make", [in_a_branch, in_a_loop, row_by_row])
def test_indices_read_in_a_block_stay_in_bounds(make: object) -> None:
    assert callable(make)
    program = make()
    smaller = Resize("w", 0, 3)
    assert fitted(program, smaller) == Rewrite(
        (Refill("x", Seeded("randint", 0, 3)), smaller)
    )
    assert fitted(program, smaller, Refill("x", Counted())) is None
    inside = Resize("w", 0, 10), Refill("x", Counted())
    assert fitted(program, *inside) is not None


def test_operands_of_blocks_are_listed_by_name() -> None:
    assert list_block_operands("torch.cond(p, self.yes, self.no, (x, 3, self.w))") == (
        *("x", "", "self.w"),
    )
    loop = "while_loop(self.goes, self.body, (i, a), (self.m,))"
    assert list_block_operands(loop) == ("i", "a", "self.m")
    assert list_block_operands("invoke_subgraph(self.sub, 'sub_0', x, y)") == ("x", "y")
    assert list_block_operands("torch.relu(x)") == ()


ONES = Refill("x", Constant(1.0))


@pytest.fixture(name="without_fake", scope="module")
def _without_fake() -> Iterator[str]:
    """Register an operator that has no fake kernel."""
    made: Any = torch.library.Library  # untyped
    library = made("unseen", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    yield "torch.ops.unseen.twice.default"
    library._destroy()


def with_object() -> PrintedProgram:
    weight = InputOrWeight("queue", "script_object", ((Run.EXAMPLE, OBJECT),))
    lines = ["y = torch.ops.aten.relu.default(x)", "return (y,)"]
    program = listing({"x": recipe(4, 6)}, *lines)
    return PrintedProgram(program.blocks, (*program.given, weight), ())


OBJECT = TensorSpec((), "", Opaque("script_object('q', b'')"))


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


def test_values_can_change_without_a_fake_kernel(without_fake: str) -> None:
    lines = [f"y = {without_fake}(x)", "return (y,)"]
    told = fit_each_kind(listing({"x": recipe(4, 6)}, *lines))
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is told["no such values"] is None
    assert "unseen.twice" in str(told["misfit"])


def test_values_can_change_in_a_program_with_a_script_object() -> None:
    told = fit_each_kind(with_object())
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is None
    assert "script_object" in str(told["misfit"])


def test_program_that_fake_tensors_run_has_no_misfit() -> None:
    lines = ["y = torch.ops.aten.relu.default(x)", "return (y,)"]
    told = fit_each_kind(listing({"x": recipe(4, 6)}, *lines))
    assert told["misfit"] == ""
    assert told["sizes"] is not None
