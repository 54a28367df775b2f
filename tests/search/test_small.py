"""All strategies for what a listing is given: whatever it is, and whatever it needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given as drawn_from
from hypothesis import settings
from hypothesis import strategies as st
from support.listings import listed, listing
from support.small import ALL, drawn, reduced, shape

from shrinkfx.program.listing.printed_program import (
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)
from shrinkfx.search.strategy import choose
from shrinkfx.testing import check_strategy

TEXT = """
    expand = aten.expand.default(x, [12, 40])
    add = aten.add.Tensor(expand, self.w)
    mul = aten.mul.Tensor(add, self.v)
    sub = aten.sub.Tensor(mul, y)
    return sub"""

FILLS: st.SearchStrategy[Initializer] = st.sampled_from(
    [
        *(Constant(0.0), Constant(2.5), Constant(math.nan), Counted()),
        *(Seeded("randn"), Seeded("randint", 0, 40), Saved("key")),
        Sparse(0.5, ((0, 1.0), (1, math.inf), (3, 7.5))),
    ]
)


@st.composite
def recipes(draw: st.DrawFn) -> TensorSpec:
    dims = tuple(draw(st.lists(st.sampled_from([1, 2, 12, 17, 40]), max_size=3)))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "int8", "complex64"]))
    made = TensorSpec(dims, dtype, draw(FILLS))
    turned = tuple(math.prod(dims[:dim]) for dim in range(len(dims)))
    return replace(made, stride=turned) if draw(st.booleans()) else made


@st.composite
def programs(draw: st.DrawFn) -> PrintedProgram:
    """Draw what a program is given: inputs of one run or of three, weights, dims."""
    held = [
        InputOrWeight(name, "parameter", ((Run.EXAMPLE, draw(recipes())),))
        for name in "wv"
    ]
    for name in "xy":
        made = draw(recipes())
        others = [(Run.PASSING, 8), (Run.FAILING, 33)] if draw(st.booleans()) else []
        dims = ((0, "n"),) if made.shape and made.fill != Saved("key") else ()
        runs = [(run, made.resized(0, size)) for run, size in others if dims]
        held.append(InputOrWeight(name, "input", ((Run.EXAMPLE, made), *runs), dims))
    return listing(TEXT, *held, dims=[Dim("n", 1, 64)])


@pytest.mark.parametrize("name", [*ALL, "drop_dims"])
@drawn_from(program=programs())
def test_strategy_keeps_the_laws_for_any_inputs(
    name: str, program: PrintedProgram
) -> None:
    (strategy,) = choose([name])
    check_strategy(strategy, listed(program))


@settings(deadline=None, max_examples=25)
@drawn_from(programs())
def test_all_tensor_specs_are_simplified_if_every_candidate_fails(
    program: PrintedProgram,
) -> None:
    best, _ = reduced(program, lambda p: True)
    for each in best.inputs:
        for _, recipe in each.recipes:
            assert set(recipe.shape) <= {1}
            assert isinstance(recipe.fill, Constant)
            assert recipe.stride is None
            assert recipe.dtype in ("float32", "int64")
    assert (best.weights, best.dims) == ((), ())


@settings(deadline=None, max_examples=25)
@drawn_from(programs(), st.data())
def test_only_the_needed_tensor_keeps_its_size(
    program: PrintedProgram, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from("wvxy"))
    needed = program.find(name).recipe()
    least = data.draw(st.sampled_from([s for s in needed.shape if s > 1] or [1]))

    def fails(p: PrintedProgram) -> bool:
        there = {each.name: each.recipe().shape for each in p.given}
        return max((*there.get(name, (0,)), 1 * (name in there))) >= least

    if not fails(program.normalised()):
        return
    best, _ = reduced(program, fails)
    assert max([*shape(best, name), 1]) == least
    others = [each.recipe() for each in best.given if each.name != name]
    assert {size for recipe in others for size in recipe.shape} <= {1}


# --- what a search costs


def usual() -> PrintedProgram:
    """What most programs look like: drawn inputs, big weights, in half precision."""
    half = "bfloat16"
    held = [
        InputOrWeight("w", "parameter", ((Run.EXAMPLE, drawn(12, 40, dtype=half)),)),
        InputOrWeight("v", "buffer", ((Run.EXAMPLE, drawn(40, dtype=half)),)),
        InputOrWeight("x", "input", ((Run.EXAMPLE, drawn(1, 40, dtype=half)),)),
        InputOrWeight("y", "input", ((Run.EXAMPLE, drawn(12, 40, dtype=half)),)),
    ]
    return listing(TEXT, *held)


@pytest.mark.parametrize(
    ("fails", "questions"),
    [
        (lambda p: True, 4),
        (lambda p: max(shape(p, "y")) > 16, 23),
        (lambda p: shape(p, "x")[1] == shape(p, "y")[1] > 1, 18),
        (lambda p: isinstance(p.find("y").recipe().fill, Seeded), 14),
        (lambda p: p.find("x").recipe().dtype == "bfloat16", 10),
        (lambda p: "w" in {weight.name for weight in p.weights}, 12),
    ],
)
def test_search_over_tensor_specs_takes_few_queries(
    fails: Callable[[PrintedProgram], bool], questions: int
) -> None:
    _, asked = reduced(usual(), fails)
    assert asked <= questions
