"""Casts of all that is of a dtype, in statements as well."""

from __future__ import annotations

import pytest
from support.listings import given, listing
from support.small import drawn, reduced, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Cast, Write
from shrinkfx.program.listing.printed_program import MAIN, PrintedProgram
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Initializer,
    Saved,
    TensorSpec,
)
from shrinkfx.strategies.tensors import SimplifyDtypes

ADD = "add = aten.add.Tensor(x, y)\nreturn add"


def dtypes(program: PrintedProgram) -> list[str]:
    return [each.recipe().dtype for each in program.given]


@pytest.mark.parametrize(
    ("dtype", "usual"),
    [
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "float32"),
        ("float64", "float32"),
        ("complex64", "float32"),
        ("int8", "int64"),
        ("uint8", "int64"),
    ],
)
def test_dtype_becomes_the_default_of_its_kind(dtype: str, usual: str) -> None:
    program = listing(ADD, given("x", drawn(4, dtype=dtype)), given("y", drawn(4)))
    first = next(SimplifyDtypes().propose(view(program)))
    assert first == Rewrite((Cast("x", usual),))
    best, questions = reduced(program, lambda p: True, ["simplify_dtypes"])
    assert (dtypes(best), questions) == ([usual, "float32"], 1)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_default_dtypes_are_kept(dtype: str) -> None:
    program = listing(ADD, given("x", drawn(4, dtype=dtype)), given("y", drawn(4)))
    assert list(SimplifyDtypes().propose(view(program))) == []


def test_dtype_arguments_in_statements_change_with_the_cast() -> None:
    text = """
        to = aten._to_copy.default(x, dtype=torch.bfloat16)
        add = aten.add.Tensor(to, y)
        return add"""
    half = given("y", drawn(4, dtype="bfloat16"))
    program = listing(text, given("x", drawn(4)), half)
    word = Write(MAIN, "to", 1, "torch.float32")
    first, *_ = SimplifyDtypes().propose(view(program))
    assert first == Rewrite((Cast("y", "float32"), word))


def test_inputs_of_one_dtype_are_cast_together_if_mixing_is_invalid() -> None:
    half = drawn(4, dtype="float16")
    program = listing(ADD, given("x", half), given("y", half))
    best, questions = reduced(
        program, lambda p: True, ["simplify_dtypes"], lambda p: len({*dtypes(p)}) == 1
    )
    assert (dtypes(best), questions) == (["float32", "float32"], 1)


def test_relevant_dtype_is_kept() -> None:
    program = listing(
        ADD, given("x", drawn(4, dtype="float16")), given("y", drawn(4, dtype="int8"))
    )
    best, questions = reduced(
        program, lambda p: dtypes(p)[0] == "float16", ["simplify_dtypes"]
    )
    assert (dtypes(best), questions) == (["float16", "int64"], 3)


@pytest.mark.parametrize("fill", [Constant(1j), Saved("x")])
def test_complex_constants_and_saved_values_are_not_cast(fill: Initializer) -> None:
    made = TensorSpec((4,), "complex64", fill)
    program = listing(ADD, given("x", made), given("y", drawn(4)))
    assert list(SimplifyDtypes().propose(view(program))) == []
