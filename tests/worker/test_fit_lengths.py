"""Lengths, offsets and counts are such that eager takes them."""

from __future__ import annotations

import pytest
import torch
from listings import listing, recipe, run_for_real

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Change,
    Refill,
    Resize,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import MAIN, PrintedProgram
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Seeded,
    Sparse,
    TensorSpec,
    write_tensor_spec,
)
from shrinkfx.worker.listing.fit import fit_rewrites

ATEN = "torch.ops.aten"


def numbers(*held: int) -> TensorSpec:
    fill = Sparse(0, tuple(enumerate(held)))
    return recipe(len(held), dtype="int64", fill=fill)


def fitted(program: PrintedProgram, *changes: Change) -> PrintedProgram | None:
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
    smaller = fitted(make(), Resize("x", 0, size))
    assert smaller is not None
    assert smaller.find("x").recipe().shape[0] == size


@pytest.mark.parametrize("make", [segments, repeated, bags])
def test_input_and_lengths_can_both_be_resized_to_one(make: object) -> None:
    assert callable(make)
    smaller = fitted(make(), Resize("x", 0, 1), Resize("n", 0, 1))
    assert smaller is not None
    assert [given.recipe().shape[0] for given in smaller.inputs] == [1, 1]


def test_rows_follow_requested_lengths() -> None:
    ones = fitted(segments(), Refill("n", Constant(1)))
    assert ones is not None
    assert ones.find("x").recipe().shape == (4, 6)
    fewer = fitted(segments(), Resize("n", 0, 1))
    assert fewer is not None
    assert fewer.find("x").recipe().shape == (4, 6)


def test_literal_output_size_follows_the_repeat_counts() -> None:
    program = repeated()
    ones = fitted(program, Refill("n", Constant(1)))
    assert ones is not None
    assert "output_size=4" in ones.main.statements[0].code
    # No other can be asked for.
    assert fitted(program, Write(MAIN, "a", 1, "12"), Refill("n", Counted())) is None


def test_int8_inputs_are_resized_with_a_total_beyond_int8() -> None:
    """768 elements, counted in numbers of up to 127."""
    held = {
        "x": recipe(1, 32, dtype="int8", fill=Constant(0)),
        "y": recipe(1, 32, 24, dtype="int8", fill=Constant(0)),
    }
    program = listing(held, f"z = {ATEN}.matmul.default(x, y)", "return z")
    found = fitted(program, Resize("x", 1, 2))
    assert found is not None
    assert found.find("y").recipe().shape == (1, 2, 24)


@pytest.mark.parametrize("fill", [Constant(0), Constant(-1)])
def test_lengths_that_eager_refuses_do_not_fit(fill: Initializer) -> None:
    assert fitted(segments(), Refill("n", fill)) is None


def test_offsets_must_begin_at_zero() -> None:
    assert fitted(bags(), Refill("n", Constant(1))) is None
    assert fitted(bags(), Refill("n", Counted())) is not None


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
    assert fitted(program, Write(MAIN, "a", 0, "None")) is None
    assert fitted(program, Resize("x", 1, 7)) is not None


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
    smaller = fitted(taken_apart(), Resize("x", 0, size))
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
    assert fitted(program, Resize("x", 0, size), Resize("m", 0, size)) is not None


def test_known_count_must_satisfy_its_assertion() -> None:
    program = counted(MARKED, "int64")
    assert fitted(program, Refill("m", Constant(1))) is None
    assert fitted(program, Refill("m", Constant(1)), Resize("m", 0, 4)) is not None


def test_unknown_count_is_not_checked_against_its_assertion() -> None:
    """As if all elements counted: of these there are more than four."""
    program = counted(Sparse(-1.0, ((0, 1.0), (7, 2.0))), "float32")
    assert fitted(program, Resize("x", 1, 1)) is not None


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
