"""Printed programs, made from text, for tests of strategies that simplify them."""

from __future__ import annotations

from hypothesis import strategies as st

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.listing import MAIN, Block, Given, Listing, Run
from shrinkfx.program.listing.recipes import Constant, Counted, Fill, Recipe, Seeded
from shrinkfx.program.listing.statements import Statement
from shrinkfx.program.listing.strides import row_major
from shrinkfx.program.listing.types import ListedType, Types
from shrinkfx.testing.programs import chain, whole

ROWS = Recipe((2, 3), "float32", Seeded("randn"))
"""The default initializer of the inputs of ``listing``."""


def listing(text: str, **inputs: Recipe) -> Listing:
    """Make a printed program from its statements and inputs.

    Args:
        text: the statements, one per line.
        inputs: the initializer of each input, by name; by default, one input ``x`` with
            the initializer ``ROWS``.
    """
    lines = [row.strip() for row in text.strip().splitlines()]
    main = tuple(Statement.parsed(line) for line in lines)
    held = inputs or {"x": ROWS}
    given = [Given(n, "input", ((Run.EXAMPLE, made),)) for n, made in held.items()]
    return Listing((Block(MAIN, tuple(held), (), main),), tuple(given))


def listed(program: Listing) -> Candidate:
    """Make a candidate whose printed program is ``program``."""
    names = [statement.name for _, statement in program.operators()]
    return whole(chain("_", *names)).listed(program)


def types_of(program: Listing) -> Types:
    """Return types for a program in which each value has the type of the first input.

    This holds for programs of pointwise operators on inputs of one type.
    """
    first = program.inputs[0].recipe()
    steps = first.stride or tuple(row_major(first.shape))
    known = ListedType(first.dtype, first.shape, steps, first.device)
    names = [
        (block.name, name)
        for block in program.blocks
        for name in (*block.arguments, *(s.name for s in block.statements if s.yields))
    ]
    return dict.fromkeys(names, known)


_FILLS: list[Fill] = [Constant(0.0), Constant(2.5), Counted(), Seeded("randn")]


@st.composite
def listings(draw: st.DrawFn, max_operators: int = 6) -> Listing:
    """Draw a printed program of ``add`` operators with a number as argument."""
    shape = tuple(draw(st.lists(st.integers(1, 8), max_size=3)))
    recipes = st.sampled_from(_FILLS).map(lambda f: Recipe(shape, "float32", f))
    inputs = {name: draw(recipes) for name in ("x", "y")}
    values, lines = ["x", "y"], []
    for number in range(draw(st.integers(1, max_operators))):
        left, right = (draw(st.sampled_from(values)) for _ in range(2))
        alpha = draw(st.integers(0, 3))
        values.append(f"n{number}")
        call = f"torch.ops.aten.add.Tensor({left}, {right}, alpha={alpha})"
        lines.append(f"n{number} = {call}")
    return listing("\n".join([*lines, f"return {values[-1]}"]), **inputs).normalised()
