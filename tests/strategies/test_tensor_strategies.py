"""Strategies for the inputs and weights of printed programs."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given as given_cases
from hypothesis import settings
from hypothesis import strategies as st
from support.listings import given, listing
from support.small import SIZES, Fits, always, called, drawn, reduced, shape, view

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Cast,
    Convert,
    Declare,
    Fix,
    Refill,
    Resize,
    Squeeze,
    Straighten,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Dim,
    InputOrWeight,
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
    number_complexity,
    simpler_numbers,
)
from shrinkfx.strategies.tensors import (
    BisectSizes,
    DropDims,
    MakeDimsStatic,
    MinimizeSizes,
    ShrinkSizes,
    SimplifyDtypes,
    SimplifyLayouts,
    SimplifyValues,
    SimplifyWeights,
)

ADD = "add = aten.add.Tensor(x, y)\nreturn add"
LARGE = listing(ADD, given("x", drawn(4096, 1000)), given("y", drawn(1000)))


def bisected(fails: Callable[[PrintedProgram], bool]) -> tuple[PrintedProgram, int]:
    return reduced(LARGE, fails, ["bisect_sizes"])


def test_irrelevant_sizes_become_one_in_one_query() -> None:
    best, questions = bisected(lambda p: True)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 1), (1,))
    assert questions == 1


@pytest.mark.parametrize(
    "fails",
    [
        lambda p: min(shape(p, "x")) > 200,
        lambda p: shape(p, "x")[0] > 33 and shape(p, "x")[1] % 16 == 8,
        lambda p: shape(p, "x")[0] % 16 == 0 and shape(p, "y")[0] >= 257,
    ],
)
def test_inputs_become_small_in_few_queries(
    fails: Callable[[PrintedProgram], bool],
) -> None:
    best, questions = bisected(fails)
    assert fails(best)
    assert best.nbytes < 1 << 20
    assert questions <= 5


def test_small_inputs_give_no_proposals() -> None:
    program = listing(ADD, given("x", drawn(40, 1000)), given("y", drawn(1000)))
    assert not [*BisectSizes().propose(view(program))]


CAT = "cat = aten.cat.default([x, y], 1)\nreturn cat"


def dynamic(**runs: int) -> PrintedProgram:
    """Make one of ``n`` by ``m`` and ``n`` by 8, with sizes of ``n`` in runs."""
    sizes = {run: drawn(size, 5) for run, size in runs.items()}
    also = {run: drawn(size, 8) for run, size in runs.items()}
    x = called("x", sizes.pop("example"), {0: "n", 1: "m"}, **sizes)
    y = called("y", also.pop("example"), {0: "n"}, **also)
    return listing(CAT, x, y, dims=[Dim("n", 2, 128), Dim("m", 0, None)])


def search_static(start: PrintedProgram, fails: object) -> tuple[PrintedProgram, int]:
    assert callable(fails)
    return reduced(start, fails, ["make_dims_static"])


def opened(listing: PrintedProgram) -> list[str]:
    return [how for each in listing.given for _, how in each.open_dims]


def test_program_becomes_static_in_one_query() -> None:
    best, questions = search_static(dynamic(example=4, failing=33), lambda p: True)
    assert (opened(best), best.dims) == ([], ())
    assert [len(each.recipes) for each in best.inputs] == [1, 1]
    assert (shape(best, "x"), shape(best, "y")) == ((33, 5), (33, 8))
    assert questions == 1


def test_static_dim_has_the_failing_size_in_all_runs() -> None:
    first, *_ = MakeDimsStatic().propose(
        view(dynamic(example=4, passing=32, failing=33))
    )
    assert first.changes[:3] == (
        Fix("x", 0),
        Resize("x", 0, 33, Run.EXAMPLE),
        Resize("x", 0, 33, Run.PASSING),
    )
    assert first.changes[-1] == Refill("y", Seeded("randn"))


def test_relevant_dim_stays_dynamic_in_both_inputs() -> None:
    best, questions = search_static(
        dynamic(example=4), lambda p: opened(p).count("n") == 2
    )
    assert opened(best) == ["n", "n"]
    assert best.dims == (Dim("n", 0, None),)
    assert questions <= 4


def test_relevant_range_shrinks_to_the_sizes_that_run() -> None:
    def fails(p: PrintedProgram) -> bool:
        held = {dim.name: dim for dim in p.dims}
        return "n" in held and held["n"].high is not None

    best, questions = search_static(dynamic(example=4, failing=33), fails)
    assert best.dims == (Dim("n", 2, 33),)
    assert questions <= 7


def test_auto_dims_become_static_too() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    made = listing(CAT, called("x", drawn(4), auto), given("y", drawn(4)))
    assert next(MakeDimsStatic().propose(view(made))) == Rewrite((Fix("x", 0),))


def test_static_program_gives_no_proposals() -> None:
    made = listing(CAT, given("x", drawn(4)), given("y", drawn(4)))
    assert list(MakeDimsStatic().propose(view(made))) == []


def test_static_program_gets_one_set_of_inputs() -> None:
    runs = {"failing": TensorSpec((4,), "float32", Constant(1e30))}
    made = listing(RELU, called("x", drawn(4), {}, **runs))
    best, questions = search_static(made, lambda p: True)
    assert [each.recipes for each in best.inputs] == [((Run.EXAMPLE, runs["failing"]),)]
    assert questions == 1


def test_unbounded_ranges_are_proposed_before_small_ones() -> None:
    edits = list(MakeDimsStatic().propose(view(dynamic(example=4, failing=33))))
    assert [edit.changes for edit in edits[-4:]] == [
        (Declare("n", 0, None),),
        (Declare("n", 2, 33),),
        (Declare("n", 4, 33),),
        (Declare("m", 0, None),),
    ] or edits


# --- what fails because it lies outside of its range


def is_outside(p: PrintedProgram) -> bool:
    held = {dim.name: dim for dim in p.dims}
    fails = shape(p, "x", Run.FAILING)[0]
    return "n" in held and not held["n"].holds(fails) and fails > held["n"].low


def test_size_outside_of_its_range_shrinks_with_the_range() -> None:
    best, questions = search_static(dynamic(example=40, failing=200), is_outside)
    assert best.dims[0] == Dim("n", 0, 3)
    assert [shape(best, each, run)[0] for each in "xy" for run in Run] == [2, 2, 4] * 2
    assert questions <= 9


def test_size_shrinks_to_the_end_of_a_needed_range() -> None:
    def fails(p: PrintedProgram) -> bool:
        return is_outside(p) and p.dims[0].high == 128

    start = dynamic(example=40, failing=200)
    best, questions = reduced(start, fails, [*SIZES, "make_dims_static"])
    assert best.dims[0].high == 128
    assert shape(best, "x", Run.FAILING)[0] == 129
    assert shape(best, "x")[0] == 2
    assert questions <= 36


def test_size_below_its_range_stays_below() -> None:
    def fails(p: PrintedProgram) -> bool:
        sizes = {run: shape(p, "x", run)[0] for run in Run}
        return [d.low for d in p.dims if d.name == "n"] > [sizes[Run.FAILING]]

    start = dynamic(example=40, failing=5)
    start = replace(start, dims=(Dim("n", 16, None), start.dims[1]))
    best, _ = search_static(start, fails)
    assert best.dims[0] == Dim("n", 3, None)
    assert [shape(best, "x", run)[0] for run in (Run.EXAMPLE, Run.FAILING)] == [3, 2]


def test_ranges_that_export_rejects_are_not_proposed() -> None:
    """A dim of one size is none."""
    edits = MakeDimsStatic().propose(view(dynamic(example=2)))
    ranges = [c for edit in edits for c in edit.changes if isinstance(c, Declare)]
    assert all(c.high is None or c.high > max(c.low, 2) for c in ranges)


RELU = "relu = aten.relu.default(x)\nreturn relu"


def filled(
    name: str, fill: Initializer, *shape: int, dtype: str = "float32"
) -> InputOrWeight:
    return given(name, TensorSpec(shape, dtype, fill))


def fill_of(program: PrintedProgram, name: str = "x") -> Initializer:
    return program.find(name).recipe().fill


def search_values(
    program: PrintedProgram, fails: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, ["simplify_values"])


def values(fill: Initializer, count: int) -> list[object]:
    """List the elements of a fill that says them."""
    if isinstance(fill, Constant):
        return [fill.value] * count
    if isinstance(fill, Sparse):
        held = [fill.base] * count
        for place, value in fill.elements:
            held[place] = value
        return [*held]
    return [*range(count)] if isinstance(fill, Counted) else [0.5] * count


def nans(program: PrintedProgram) -> list[int]:
    told = values(fill_of(program), 1000)
    return [i for i, v in enumerate(told) if isinstance(v, float) and math.isnan(v)]


# --- formulas


def test_all_inputs_become_constant_in_one_query() -> None:
    program = listing(
        ADD,
        filled("x", Saved("x"), 4096),
        filled("y", Seeded("randint", 0, 9), 8, dtype="int64"),
    )
    best, questions = search_values(program, lambda p: True)
    assert (fill_of(best), fill_of(best, "y")) == (Constant(1.0), Constant(0))
    assert questions == 1


def test_integer_inputs_become_zero_and_boolean_inputs_true() -> None:
    program = listing(
        ADD,
        filled("x", Seeded("randint", 0, 9), 8, dtype="int32"),
        filled("y", Seeded("randint", 0, 2), 8, dtype="bool"),
    )
    first, *_ = SimplifyValues().propose(view(program))
    assert first == Rewrite((Refill("x", Constant(0)), Refill("y", Constant(True))))


def test_relevant_input_keeps_its_values() -> None:
    inputs = [filled(name, Saved(name), 64) for name in "xyzuvw"]
    text = "cat = aten.cat.default([x, y, z, u, v, w])\nreturn cat"
    program = listing(text, *inputs)
    best, questions = search_values(program, lambda p: fill_of(p, "z") == Saved("z"))
    plain = [n for n in "xyzuvw" if fill_of(best, n) == Constant(1.0)]
    assert plain == [*"xyuvw"]
    assert questions <= 14


def test_elements_that_must_differ_become_counted() -> None:
    program = listing(RELU, filled("x", Seeded("randn"), 64))
    best, questions = search_values(
        program, lambda p: not isinstance(fill_of(p), Constant)
    )
    assert fill_of(best) == Counted()
    assert questions <= 3


def test_saved_values_become_seeded_if_no_constant_fails() -> None:
    program = listing(RELU, filled("x", Saved("x"), 64))
    best, questions = search_values(
        program, lambda p: isinstance(fill_of(p), (Saved, Seeded))
    )
    assert fill_of(best) == Seeded("randn")
    assert questions <= 8


@pytest.mark.parametrize(
    "fill", [Constant(0.0), Constant(1), Constant(True), Opaque("7")]
)
def test_constant_inputs_give_no_proposals(fill: Initializer) -> None:
    program = listing(RELU, filled("x", fill, 4))
    assert list(SimplifyValues().propose(view(program))) == []


def test_runs_are_filled_together_or_separately() -> None:
    saved = replace(drawn(8), fill=Saved("other"))
    program = listing(RELU, called("x", drawn(8), {0: "n"}, failing=saved))

    def fails(p: PrintedProgram) -> bool:
        return p.find("x").recipe(Run.FAILING).fill == Saved("other")

    best, questions = search_values(program, fails)
    assert best.find("x").recipe().fill == Constant(1.0)
    assert questions <= 12


# --- the number in a constant


@pytest.mark.parametrize(
    ("needs", "left"),
    [
        (lambda n: True, 1.0),
        (lambda n: n != 1, 0.0),
        (lambda n: n > 50, 100.0),
        (lambda n: n > 127, 128.0),
        (lambda n: n > 128, 205.0),
        (lambda n: n > 205, 205.05),
    ],
)
def test_constant_becomes_a_simpler_nearby_number(
    needs: Callable[[float], bool], left: float
) -> None:
    program = listing(RELU, filled("x", Constant(205.05), 4))
    best, questions = search_values(program, lambda p: needs(constant(p)))
    assert fill_of(best) == Constant(left)
    assert questions <= 5


def constant(program: PrintedProgram) -> float:
    fill = fill_of(program)
    assert isinstance(fill, Constant)
    assert isinstance(fill.value, int | float)
    return fill.value


@given_cases(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.integers(0, 1000),
)
def test_no_number_simpler_than_the_reduced_constant_fails(
    first: float, odd: bool, dice: int
) -> None:
    dtype = "int64" if isinstance(first, int) else "float64"

    def program(number: float) -> PrintedProgram:
        return listing(RELU, filled("x", Constant(type(first)(number)), 4, dtype=dtype))

    def fails(p: PrintedProgram) -> bool:
        now = constant(p)
        if not odd or now == first:
            return abs(now) >= abs(first) * dice / 1000
        return random.Random(f"{dice} {now}").random() < 0.2

    best, _ = search_values(program(first), fails)
    left = constant(best)
    near: list[float] = [0, 1, *map(type(first), simpler_numbers(left))]
    assert not number_complexity(left) or not [n for n in near if fails(program(n))]


# --- what is in a file


def left_of(fill: Initializer) -> list[int]:
    """List the places whose values are as in the file."""
    if not isinstance(fill, Saved):
        return []
    parts = fill.parts if isinstance(fill, Part) else ((0, 4096),)
    return [place for start, stop in parts for place in range(start, stop)]


@pytest.mark.parametrize(
    ("needed", "most", "questions"),
    [({4000}, 64, 22), ({5}, 64, 17), ({1000, 1010}, 128, 20), ({7, 4000}, 64, 29)],
)
def test_only_a_small_part_of_a_saved_file_is_kept(
    needed: set[int], most: int, questions: int
) -> None:
    program = listing(RELU, filled("x", Saved("x"), 4, 1024))
    best, asked = search_values(program, lambda p: needed <= {*left_of(fill_of(p))})
    left = left_of(fill_of(best))
    assert needed <= {*left}
    assert len(left) <= most
    assert asked <= questions


def test_small_saved_tensor_is_proposed_as_a_part() -> None:
    *_, last = SimplifyValues().propose(view(listing(RELU, filled("x", Saved("x"), 8))))
    assert last.changes == (Refill("x", Part("x", 1.0, (8,), ((0, 8),)), Run.EXAMPLE),)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 4096, 1 << 40])
def test_part_is_simpler_than_a_file_and_sparse_than_a_part(count: int) -> None:
    part = TensorSpec((4,), "float32", Part("x", 1.0, (count,), ((0, count),)))
    told = tuple((place, -0.37) for place in range(64))
    for plainer, other in (
        (part, replace(part, fill=Saved("x"))),
        (TensorSpec((4,), "float32", Sparse(-0.5, told)), part),
    ):
        assert plainer.complexity < other.complexity
    assert Initializer.from_json(part.fill.to_json()) == part.fill


# --- elements


def test_one_nan_of_a_thousand_values_is_kept() -> None:
    draw = random.Random(0)
    elements = [(place, draw.random()) for place in range(1000)]
    elements[700] = 700, math.nan
    program = listing(RELU, filled("x", Sparse(0.0, tuple(elements)), 1000))
    best, questions = search_values(program, lambda p: len(nans(p)) == 1)
    assert fill_of(best) == Sparse(0.0, ((0, math.nan),))
    assert questions <= 7


def test_nan_keeps_its_position_if_needed() -> None:
    elements = [(place, 0.25 + place) for place in range(1000)]
    elements[700] = 700, math.nan
    program = listing(RELU, filled("x", Sparse(0.0, tuple(elements)), 1000))
    best, questions = search_values(program, lambda p: nans(p) == [700])
    assert fill_of(best) == Sparse(0.0, ((700, math.nan),))
    assert questions <= 9


def test_input_becomes_all_nan_if_that_fails() -> None:
    program = listing(RELU, filled("x", Sparse(0.5, ((3, math.nan), (5, 2.0))), 8))
    best, questions = search_values(program, lambda p: nans(p) != [])
    assert fill_of(best) == Constant(math.nan)
    assert questions <= 7


def test_nan_in_a_saved_file_is_guessed() -> None:
    program = listing(RELU, filled("x", Saved("x"), 1000))

    def fails(p: PrintedProgram) -> bool:
        return fill_of(p) == Saved("x") or nans(p) == [0]

    best, questions = search_values(program, fails)
    assert fill_of(best) == Sparse(1.0, ((0, math.nan),))
    assert questions <= 6


@pytest.mark.parametrize(("count", "questions"), [(50, 47), (1000, 69)])
def test_two_relevant_values_of_many_are_kept(count: int, questions: int) -> None:
    program = listing(
        RELU, filled("x", Sparse(0.0, tuple((i, 2.0 + i) for i in range(count))), count)
    )

    def fails(p: PrintedProgram) -> bool:
        told = values(fill_of(p), count)
        return told[7] == 9.0 and told[30] == 32.0

    best, asked = search_values(program, fails)
    assert fill_of(best) == Sparse(0.0, ((7, 9.0), (30, 32.0)))
    assert asked <= questions


def test_largest_index_is_tried_first() -> None:
    draw = random.Random(1)
    elements = tuple((place, draw.randrange(1, 50)) for place in range(64))
    far = (*elements[:20], (20, 9000), *elements[21:])
    program = listing(RELU, filled("x", Sparse(0, far), 64, dtype="int64"))

    def fails(p: PrintedProgram) -> bool:
        return any(isinstance(v, int) and v >= 9000 for v in values(fill_of(p), 64))

    best, questions = search_values(program, fails)
    assert fill_of(best) == Constant(9000)
    assert questions <= 8


MM = "mm = aten.mm.default(x, self.w)\nreturn mm"
LINEAR = """
    mm = aten.mm.default(x, self.w)
    add = aten.add.Tensor(mm, self.v)
    return add"""


def saved(name: str, *shape: int, kind: str = "parameter") -> InputOrWeight:
    return given(name, TensorSpec(shape, "float32", Saved(name)), kind)


def search_weights(
    program: PrintedProgram, fails: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, ["simplify_weights"])


def test_large_weight_is_eliminated_in_two_queries() -> None:
    program = listing(MM, saved("w", 2048, 2048), given("x", drawn(4, 2048)))
    best, questions = reduced(program, lambda p: True, ["simplify_weights", *SIZES])
    assert best.weights == ()
    assert best.main.statements[0].code == "torch.ops.aten.mm.default(x, w)"
    assert (shape(best, "w"), fill_of(best, "w")) == ((1, 1), Constant(1.0))
    assert questions == 2


def test_weight_that_must_stay_a_parameter_becomes_constant() -> None:
    program = listing(LINEAR, saved("w", 8, 8), saved("v", 8), given("x", drawn(4, 8)))
    best, questions = search_weights(
        program, lambda p: "w" in {g.name for g in p.weights}
    )
    assert [(g.name, g.kind) for g in best.given] == [
        ("w", "parameter"),
        ("x", "input"),
        ("v", "input"),
    ]
    assert fill_of(best, "w") == fill_of(best, "v") == Constant(1.0)
    assert questions <= 7


def test_weight_keeps_relevant_values_as_an_input() -> None:
    program = listing(LINEAR, saved("w", 8, 8), saved("v", 8), given("x", drawn(4, 8)))
    best, questions = search_weights(program, lambda p: fill_of(p, "w") == Saved("w"))
    assert best.weights == ()
    assert (fill_of(best, "w"), fill_of(best, "v")) == (Saved("w"), Constant(1.0))
    assert questions <= 9


def test_weights_of_equal_type_are_merged() -> None:
    text = "add = aten.add.Tensor(self.w, self.v)\nreturn add"
    program = listing(text, saved("w", 8), saved("v", 8))
    best, questions = search_weights(
        program, lambda p: {g.kind for g in p.given} == {"parameter"}
    )
    assert best.main.statements[0].code == "torch.ops.aten.add.Tensor(self.w, self.w)"
    assert fill_of(best, "w") == Constant(1.0)
    assert questions <= 8


def test_weight_operand_is_replaced_by_the_preceding_weight() -> None:
    text = "add = aten.add.Tensor(self.w, self.v)\nreturn add"
    edits = list(
        SimplifyWeights().propose(view(listing(text, saved("w", 8), saved("v", 8))))
    )
    assert Rewrite((Write(MAIN, "add", 1, "self.w"),)) in edits
    first = [c for n in "wv" for c in (Convert(n, "input"), Refill(n, Constant(1.0)))]
    assert edits[0] == Rewrite((*first,))


def test_script_objects_are_not_changed() -> None:
    held = given("w", TensorSpec((), "", Opaque("script_object('')")), "script_object")
    program = listing(MM, held, given("x", drawn(4, 4)))
    assert list(SimplifyWeights().propose(view(program))) == []


def test_one_relevant_weight_of_many_is_kept() -> None:
    names = [f"w{n}" for n in range(16)]
    lines = [f"n{i} = aten.add.Tensor(x, self.{w})" for i, w in enumerate(names)]
    text = "\n".join([*lines, f"return ({', '.join(f'n{i}' for i in range(16))},)"])
    held = [saved(name, n + 1) for n, name in enumerate(names)]
    program = listing(text, *held, given("x", drawn(4)))
    best, questions = search_weights(
        program, lambda p: p.find("w11").kind == "parameter"
    )
    assert [w.name for w in best.weights] == ["w11"]
    assert {fill_of(best, name) for name in names} == {Constant(1.0)}
    assert questions <= 16


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


TURNED = replace(drawn(4, 8), stride=(1, 4))


def test_all_inputs_become_contiguous_in_one_query() -> None:
    spread = replace(drawn(4, 8), stride=(0, 1))
    program = listing(ADD, given("x", TURNED), given("y", spread))
    best, questions = reduced(program, lambda p: True, ["simplify_layouts"])
    assert [g.recipe().stride for g in best.given] == [None, None]
    assert questions == 1


def test_relevant_layout_is_kept() -> None:
    program = listing(ADD, given("x", TURNED), given("y", TURNED))
    best, questions = reduced(
        program, lambda p: p.find("y").recipe().stride is not None, ["simplify_layouts"]
    )
    assert [g.recipe().stride for g in best.given] == [None, (1, 4)]
    assert questions <= 3


def test_irrelevant_gaps_are_removed_from_a_relevant_stride_order() -> None:
    apart = replace(drawn(4, 8), stride=(1, 6))
    best, questions = reduced(
        listing(ADD, given("x", apart), given("y", drawn(4, 8))),
        lambda p: p.find("x").recipe().stride is not None,
        ["simplify_layouts"],
    )
    assert best.find("x").recipe().stride == (1, 4)
    assert questions <= 4


def test_contiguous_and_saved_inputs_are_not_changed() -> None:
    saved = TensorSpec((4, 8), "float32", Saved("y"), (1, 4))
    program = listing(ADD, given("x", drawn(4, 8)), given("y", saved))
    assert list(SimplifyLayouts().propose(view(program))) == []
    program = listing(ADD, given("x", TURNED), given("y", saved))
    assert list(SimplifyLayouts().propose(view(program))) == [
        Rewrite((Straighten("x"),))
    ]


def search_sizes(
    program: PrintedProgram,
    fails: Callable[[PrintedProgram], bool],
    fits: Callable[[PrintedProgram], bool] = always,
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, SIZES, fits)


def test_all_sizes_become_one_in_one_query() -> None:
    program = listing(
        MM, given("w", drawn(32, 8), "parameter"), given("x", drawn(2, 32))
    )
    best, questions = search_sizes(program, lambda p: True)
    assert (shape(best, "x"), shape(best, "w")) == ((1, 1), (1, 1))
    assert questions == 1


@pytest.mark.parametrize(
    ("needs", "least", "questions"),
    [
        (lambda s: s % 16 != 0 and s > 16, 17, 8),
        (lambda s: s > 1, 2, 2),
        (lambda s: s >= 3, 3, 3),
        (lambda s: s > 8 and s % 2 == 1, 9, 8),
        (lambda s: s % 8 == 0, 8, 12),
        (lambda s: s >= 13, 13, 12),
        (lambda s: s == 40, 40, 10),
    ],
)
def test_size_shrinks_to_the_smallest_that_fails(
    needs: Callable[[int], bool], least: int, questions: int
) -> None:
    program = listing(RELU, given("x", drawn(40)))
    best, asked = search_sizes(program, lambda p: needs(shape(p, "x")[0]))
    assert shape(best, "x") == (least,)
    assert asked <= questions


@pytest.mark.parametrize("least", [600, 601, 513, 999])
def test_size_threshold_is_found_by_bisection(least: int) -> None:
    program = listing(RELU, given("x", drawn(1000)))
    best, asked = search_sizes(program, lambda p: shape(p, "x")[0] >= least)
    assert shape(best, "x") == (least,)
    assert asked <= 23


def test_large_size_shrinks_to_a_divisor() -> None:
    program = listing(RELU, given("x", drawn(99)))
    best, asked = search_sizes(program, lambda p: shape(p, "x")[0] % 3 == 0)
    assert shape(best, "x") == (3,)
    assert asked <= 7


@pytest.mark.parametrize("least", [2, 4, 100, 600])
def test_fixed_size_does_not_delay_shrinking_another(least: int) -> None:
    """What was asked of it is not asked again at each step of the other."""
    program = listing(ADD, given("x", drawn(975)), given("y", drawn(900)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] == 975 and shape(p, "y")[0] >= least

    best, asked = search_sizes(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((975,), (least,))
    assert asked <= 60


def test_dims_that_must_be_equal_shrink_together() -> None:
    program = listing(ADD, given("x", drawn(4, 12)), given("y", drawn(12, 5)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[1] == shape(p, "y")[0] > 1

    best, asked = search_sizes(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 2), (2, 1))
    assert asked <= 8


def test_dims_equal_by_chance_shrink_separately() -> None:
    program = listing(ADD, given("x", drawn(40, 40)), given("y", drawn(40)))
    best, asked = search_sizes(program, lambda p: shape(p, "x")[1] > 16)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 17), (1,))
    assert asked <= 14


def test_one_relevant_size_of_many_is_kept() -> None:
    program = listing(ADD, given("x", drawn(40, 7, 6)), given("y", drawn(5, 9, 3)))
    best, asked = search_sizes(program, lambda p: shape(p, "y")[1] > 8)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 1, 1), (1, 9, 1))
    assert asked <= 12


def test_sizes_that_do_not_fit_are_not_queried() -> None:
    """A window of 7 needs as many elements."""
    program = listing(RELU, given("x", drawn(3, 40)))

    def fits(p: PrintedProgram) -> bool:
        return shape(p, "x")[1] >= 7

    best, asked = search_sizes(program, lambda p: True, fits=fits)
    assert shape(best, "x") == (1, 7)
    assert asked <= 5


def test_sizes_in_lists_follow_but_single_numbers_do_not() -> None:
    text = """
        expand = aten.expand.default(x, [12, 2])
        mul = aten.mul.Tensor(expand, 12)
        return mul"""
    program = listing(text, given("x", drawn(12, 1)))
    first, *_ = MinimizeSizes().propose(view(program))
    assert first.changes == (Resize("x", 0, 1), Write(MAIN, "expand", 2, "1"))


def test_small_numbers_in_lists_are_not_resized() -> None:
    text = "permute = aten.permute.default(x, [0, 2, 1])\nreturn permute"
    program = listing(text, given("x", drawn(2, 1, 1)))
    for strategy in (MinimizeSizes(), ShrinkSizes()):
        edits = strategy.propose(view(program))
        assert {type(c) for edit in edits for c in edit.changes} <= {Resize}


def test_index_inputs_are_redrawn_below_the_new_size() -> None:
    indices = replace(drawn(3, dtype="int64"), fill=Seeded("randint", 0, 100))
    program = listing(MM, given("w", drawn(100), "buffer"), given("x", indices))
    edits = [edit.changes for edit in ShrinkSizes().propose(view(program))]
    refill = Refill("x", Seeded("randint", 0, 17), Run.EXAMPLE)
    assert (Resize("w", 0, 17, None), refill) in edits


def test_sizes_of_one_give_no_proposals() -> None:
    program = listing(ADD, given("x", drawn(1, 1)), given("y", drawn()))
    assert list(MinimizeSizes().propose(view(program))) == []
    assert list(ShrinkSizes().propose(view(program))) == []


# --- dynamic dims

DYNAMIC = {0: "n"}


def derived(**runs: int) -> PrintedProgram:
    """Make a program of ``n`` and ``2*n + 1``, by its sizes in runs."""
    fed = {run: drawn(size) for run, size in runs.items()}
    wide = {run: drawn(2 * size + 1) for run, size in runs.items()}
    x = called("x", fed.pop("example"), DYNAMIC, **fed)
    y = called("y", wide.pop("example"), {0: "2*n + 1"}, **wide)
    return listing(ADD, x, y, dims=[Dim("n", 8, 64)])


def test_derived_size_shrinks_with_its_dim_and_the_range_widens() -> None:
    first, *_ = MinimizeSizes().propose(view(derived(example=40)))
    assert first.changes == (
        Resize("x", 0, 2, Run.EXAMPLE),
        Resize("y", 0, 5, Run.EXAMPLE),
        Declare("n", 2, 64),
    )


def test_each_run_gets_its_smallest_sizes() -> None:
    program = derived(example=40, passing=32, failing=50)

    def fails(p: PrintedProgram) -> bool:
        sizes = [shape(p, "x", run)[0] for run in Run]
        assert [shape(p, "y", run)[0] for run in Run] == [2 * s + 1 for s in sizes]
        wrong = [s % 16 != 0 and s > 16 for s in sizes]
        return not wrong[1] and wrong[2]

    best, asked = search_sizes(program, fails)
    passes, fails_at = (shape(best, "x", run)[0] for run in (Run.PASSING, Run.FAILING))
    assert (passes, fails_at) == (2, 17)
    assert len(best.find("x").recipes) == 2  # it is exported with what passes
    assert asked <= 12


def test_dynamic_size_at_which_it_fails_does_not_become_one() -> None:
    """Compiled code may assume that it is not 1: that is another failure."""
    program = derived(example=9, failing=12)

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x", Run.FAILING) != shape(p, "x")

    best, _ = search_sizes(program, fails)
    assert [shape(best, "x", run)[0] for run in (Run.EXAMPLE, Run.FAILING)] == [2, 3]


def test_auto_dims_of_equal_size_shrink_together() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = called("x", drawn(40), auto), called("y", drawn(40), auto)
    first, *_ = MinimizeSizes().propose(view(listing(ADD, x, y)))
    assert first.changes == tuple(Resize(n, 0, 2, Run.EXAMPLE) for n in "xy")


@pytest.mark.parametrize(
    ("sizes", "needs", "least"),
    [
        ((33, 32), lambda x, y: x == y + 1, (2, 1)),
        ((64, 16), lambda x, y: x == 4 * y, (4, 1)),
        ((40, 24), lambda x, y: x == y + 16 and y > 1, (18, 2)),
    ],
)
def test_related_sizes_shrink_together(
    sizes: tuple[int, int], needs: Callable[[int, int], bool], least: tuple[int, int]
) -> None:
    x, y = sizes
    program = listing(ADD, given("x", drawn(x)), given("y", drawn(y)))
    best, asked = search_sizes(
        program, lambda p: needs(shape(p, "x")[0], shape(p, "y")[0])
    )
    assert (shape(best, "x")[0], shape(best, "y")[0]) == least
    assert asked <= 40


# --- what is left was asked about: of each size its least, and one less


@pytest.mark.parametrize("least", [2, 4, 600, 974])
def test_fixed_size_does_not_delay_shrinking_an_equal_size(least: int) -> None:
    """None of them can be 1."""
    program = listing(ADD, given("x", drawn(975)), given("y", drawn(975)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] >= least and shape(p, "y")[0] == 975

    best, asked = search_sizes(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((least,), (975,))
    assert asked <= 75


def test_auto_dims_of_equal_size_shrink_separately() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = called("x", drawn(40), auto), called("y", drawn(40), auto)

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] >= 4 and shape(p, "y")[0] == 40

    best, _ = search_sizes(listing(ADD, x, y), fails)
    assert (shape(best, "x"), shape(best, "y")) == ((4,), (40,))


def test_dim_with_only_a_derived_size_shrinks() -> None:
    x = called("x", drawn(81), {0: "2*n + 1"})
    program = listing(RELU, x, dims=[Dim("n", 8, 64)])
    best, _ = search_sizes(program, lambda p: shape(p, "x")[0] > 8)
    assert shape(best, "x") == (9,)


@st.composite
def cases(draw: st.DrawFn) -> tuple[PrintedProgram, Callable[[PrintedProgram], bool]]:
    """Draw a program and sizes at which it fails: from some up, or just at some."""
    few = st.lists(st.sampled_from([2, 3, 8, 12, 17]), min_size=1, max_size=2)
    sizes = {name: draw(few) for name in "xyz"}
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = (
        called(n, drawn(*sizes[n]), auto if draw(st.booleans()) else {}) for n in "xy"
    )
    text = "add = aten.add.Tensor(x, y)\nmul = aten.mul.Tensor(add, self.z)\nreturn mul"
    program = listing(text, x, y, given("z", drawn(*sizes["z"]), "parameter"))
    first = tuple(shape_of(program))
    ups = st.tuples(*(st.integers(1, size) for size in first))
    least = draw(ups)
    odd, dice = draw(st.booleans()), draw(st.integers(0, 1000))

    def fails(p: PrintedProgram) -> bool:
        now = tuple(shape_of(p))
        if not odd or now == first:
            return all(a >= b for a, b in zip(now, least, strict=True))
        return random.Random(f"{dice} {now}").random() < 0.2

    return program, fails


def shape_of(program: PrintedProgram) -> list[int]:
    return [size for each in program.given for size in each.recipe().shape]


def smaller_by_hand(program: PrintedProgram) -> Iterator[PrintedProgram]:
    """Make each size its least, and one less: with its equals, and alone."""
    places = [(g, d) for g in program.given for d in range(len(g.recipe().shape))]
    groups = defaultdict(list)
    for g, d in places:
        groups[g.recipe().shape[d], d in dict(g.open_dims)].append((g, d))
    for (size, is_open), group in groups.items():
        for goal in {2 if is_open else 1, size - 1}:
            for some in (group, *([place] for place in group)):
                if (2 if is_open else 1) <= goal < size:
                    run = Run.EXAMPLE if is_open else None
                    resizes = (Resize(g.name, d, goal, run) for g, d in some)
                    yield apply_changes(program, tuple(resizes))


@given_cases(cases())
def test_reduced_sizes_cannot_shrink_to_the_minimum_or_by_one(
    case: tuple[PrintedProgram, Callable[[PrintedProgram], bool]],
) -> None:
    program, fails = case
    best, _ = search_sizes(program, fails)
    assert not [shape_of(p) for p in smaller_by_hand(best) if fails(p)]


# --- of three equal sizes two that are tied


@dataclass(frozen=True)
class Tied(Fits):
    """As fake tensors: a size that an operator ties to another one follows it."""

    ties: tuple[tuple[str, str], ...] = ()

    def _fitted(self, program: PrintedProgram, rewrite: Rewrite) -> Rewrite | None:
        partners = {**dict(self.ties), **{b: a for a, b in self.ties}}
        changes = dict.fromkeys(rewrite.changes)
        for change in rewrite.changes:
            if isinstance(change, Resize) and change.name in partners:
                changes[replace(change, name=partners[change.name])] = None
        return super()._fitted(program, replace(rewrite, changes=(*changes,)))

    def is_tied(self, program: PrintedProgram) -> bool:
        return all(shape(program, a) == shape(program, b) for a, b in self.ties)


@settings(deadline=None)
@given_cases(
    st.sampled_from([8, 12, 17, 40]),
    st.sampled_from([("x", "y"), ("y", "z"), ("x", "z")]),
    st.tuples(*(st.integers(1, 40) for _ in "xyz")),
)
def test_two_tied_sizes_shrink_independently_of_a_third(
    size: int, tie: tuple[str, str], least: tuple[int, ...]
) -> None:
    text = "a = aten.cat.default([x, y, z])\nreturn a"
    program = listing(text, *(given(name, drawn(size)) for name in "xyz"))

    def fails(p: PrintedProgram) -> bool:
        return all(s >= min(size, n) for s, n in zip(shape_of(p), least, strict=True))

    fitter = Tied(ties=(tie,))
    best, _ = reduced(program, fails, SIZES, fitter.is_tied, fitter)
    needs = dict(zip("xyz", (min(size, n) for n in least), strict=True))
    needs |= dict.fromkeys(tie, max(needs[name] for name in tie))
    assert {name: shape(best, name) for name in "xyz"} == {
        name: (need,) for name, need in needs.items()
    }


def of_two(x: TensorSpec, y: TensorSpec) -> PrintedProgram:
    return listing(ADD, given("x", x), given("y", y))


def search_dims(
    start: PrintedProgram, fails: Callable[[PrintedProgram], bool] = lambda p: True
) -> tuple[PrintedProgram, int]:
    return reduced(start, fails, ["drop_dims"])


def test_all_unit_dims_are_dropped_in_one_query() -> None:
    best, questions = search_dims(of_two(drawn(1, 1, 5), drawn(1, 2, 1)))
    assert (shape(best, "x"), shape(best, "y")) == ((5,), (2,))
    assert questions == 1
    best, _ = search_dims(of_two(drawn(1, 1), drawn()))
    assert (shape(best, "x"), shape(best, "y")) == ((1,), ())


def test_relevant_dim_is_kept() -> None:
    start = of_two(drawn(1, 5, 1), drawn(1, 2, 1))
    best, questions = search_dims(start, lambda p: shape(p, "x")[-1] == 1)
    assert (shape(best, "x"), shape(best, "y")) == ((5, 1), (2,))
    assert questions <= 7


def test_dropping_a_dim_preserves_the_other_dims() -> None:
    turned = TensorSpec((1, 2, 3), "float32", drawn().fill, (1, 3, 1))
    made = apply_changes(of_two(turned, drawn(2, 3)), [Squeeze("x", 0)])
    assert made.find("x").recipe().stride is None
    turned = TensorSpec((1, 2, 3), "float32", drawn().fill, (1, 1, 2))
    made = apply_changes(of_two(turned, drawn(2, 3)), [Squeeze("x", 0)])
    assert made.find("x").recipe().stride == (1, 2)
    opened = called("x", drawn(1, 4, 3), {1: "n", 2: "m"}, failing=drawn(1, 9, 3))
    made = apply_changes(listing(ADD, opened, given("y", drawn())), [Squeeze("x", 0)])
    assert made.find("x").open_dims == ((0, "n"), (1, "m"))
    assert [recipe.shape for _, recipe in made.find("x").recipes] == [(4, 3), (9, 3)]


@pytest.mark.parametrize(
    "held",
    [
        given("x", drawn(2, 1)),
        given("x", drawn(1)),
        given("x", TensorSpec((1, 2), "float32", Saved("x"))),
        called("x", drawn(1, 2), {0: "n"}),
    ],
)
def test_dims_that_cannot_be_dropped_are_not_proposed(held: object) -> None:
    made = listing(ADD, held, given("y", drawn(2)))  # type: ignore[arg-type]
    assert Squeeze("x", 0) not in [
        c for edit in DropDims().propose(view(made)) for c in edit.changes
    ]
    with pytest.raises(InvalidEdit):
        apply_changes(made, [Squeeze("x", 0)])
