"""Sizes that depend on counts of elements."""

from __future__ import annotations

import pytest
from listings import listing, recipe, run_for_real

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Change,
    Resize,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Initializer,
    Sparse,
)
from shrinkfx.worker.listing.fit import fit_rewrites

ATEN = "torch.ops.aten"


def fitted(program: PrintedProgram, *changes: Change) -> PrintedProgram | None:
    """Fit changes; what comes of them runs."""
    [fit] = fit_rewrites(program, [Rewrite(changes)]).fits
    if fit is None:
        return None
    made = apply_changes(program, fit.changes)
    run_for_real(made)
    return made


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


def test_unknown_count_is_not_checked_against_its_assertion() -> None:
    """As if all elements counted: of these there are more than four."""
    program = counted(Sparse(-1.0, ((0, 1.0), (7, 2.0))), "float32")
    assert fitted(program, Resize("x", 1, 1)) is not None
