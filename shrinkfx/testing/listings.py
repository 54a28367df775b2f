"""Printed programs, made from text, for tests of strategies that simplify them."""

from __future__ import annotations

from hypothesis import strategies as st

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    InputOrWeight,
    ListedType,
    PrintedProgram,
    Run,
    Statement,
    Types,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Seeded,
    TensorSpec,
    row_major,
)
from shrinkfx.testing.programs import chain, whole

ROWS = TensorSpec((2, 3), "float32", Seeded("randn"))
"""The default initializer of the inputs of ``listing``."""


def listing(text: str, **inputs: TensorSpec) -> PrintedProgram:
    """Make a printed program from its statements and inputs.

    Args:
        text: the statements, one per line.
        inputs: the initializer of each input, by name; by default, one input ``x`` with
            the initializer ``ROWS``.
    """
    lines = [row.strip() for row in text.strip().splitlines()]
    main = tuple(Statement.parse_line(line) for line in lines)
    specs = inputs or {"x": ROWS}
    declared = [
        InputOrWeight(n, "input", ((Run.EXAMPLE, made),)) for n, made in specs.items()
    ]
    return PrintedProgram((Block(MAIN, tuple(specs), (), main),), tuple(declared))


def listed(program: PrintedProgram) -> Candidate:
    """Make a candidate whose printed program is ``program``."""
    names = [statement.name for _, statement in program.operators()]
    return whole(chain("_", *names)).with_listing(program)


def types_of(program: PrintedProgram) -> Types:
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


_INITIALIZERS: list[Initializer] = [
    Constant(0.0),
    Constant(2.5),
    Counted(),
    Seeded("randn"),
]


@st.composite
def listings(draw: st.DrawFn, max_operators: int = 6) -> PrintedProgram:
    """Draw a printed program of ``add`` operators with a number as argument."""
    shape = tuple(draw(st.lists(st.integers(1, 8), max_size=3)))
    recipes = st.sampled_from(_INITIALIZERS).map(
        lambda f: TensorSpec(shape, "float32", f)
    )
    inputs = {name: draw(recipes) for name in ("x", "y")}
    values, lines = ["x", "y"], []
    for number in range(draw(st.integers(1, max_operators))):
        left, right = (draw(st.sampled_from(values)) for _ in range(2))
        alpha = draw(st.integers(0, 3))
        values.append(f"n{number}")
        call = f"torch.ops.aten.add.Tensor({left}, {right}, alpha={alpha})"
        lines.append(f"n{number} = {call}")
    return listing("\n".join([*lines, f"return {values[-1]}"]), **inputs).normalised()
