"""Listings from texts, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Constant, TensorSpec
from shrinkfx.testing import chain, whole

ATEN = "torch.ops.aten."


def floats(*shape: int, dtype: str = "float32") -> TensorSpec:
    """A recipe of ones."""
    return TensorSpec(shape, dtype, Constant(1.0))


def given(name: str, recipe: TensorSpec, kind: str = "input") -> InputOrWeight:
    return InputOrWeight(name, kind, ((Run.EXAMPLE, recipe),))


def block(name: str, head: str, text: str) -> Block:
    """Make a block.

    Args:
        head: names of arguments, and of members as ``attribute=Class``.
        text: the statements; ``aten.`` is short for ``torch.ops.aten.``.
    """
    words = head.split()
    members = [word.split("=") for word in words if "=" in word]
    lines = [line.strip() for line in text.strip().splitlines()]
    return Block(
        name,
        tuple(word for word in words if "=" not in word),
        tuple((attribute, kind) for attribute, kind in members),
        tuple(Statement.parse_line(spell_out(line)) for line in lines),
    )


def listing(
    text: str,
    *held: InputOrWeight,
    blocks: Iterable[Block] = (),
    members: str = "",
    dims: Iterable[Dim] = (),
) -> PrintedProgram:
    """List a program by the statements of its main block."""
    inputs = " ".join(each.name for each in held if each.is_input)
    main = block(MAIN, f"{inputs} {members}", text)
    return PrintedProgram((*blocks, main), held, tuple(dims))


def listed(made: PrintedProgram) -> Candidate:
    """Make a candidate of one."""
    return whole(chain("_in", "_relu")).with_listing(made)


def codes(made: PrintedProgram, name: str = MAIN) -> list[str]:
    """Write the lines of a block, in short."""
    return [line.line().replace(ATEN, "aten.") for line in made.block(name).statements]


def spell_out(line: str) -> str:
    """Write ``aten.add`` in full, unless it is."""
    return line.replace("aten.", ATEN).replace("torch.ops.torch.ops.", "torch.ops.")
