"""Listings written by hand, and run for real."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    Initializer,
    Seeded,
    TensorSpec,
    write_tensor_spec,
)
from support.listings import spell_out

RANDN = Seeded("randn")


def recipe(
    *shape: int, dtype: str = "float32", fill: Initializer = RANDN, device: str = "cpu"
) -> TensorSpec:
    return TensorSpec(shape, dtype, fill, device=device)


def block(
    name: str,
    arguments: Sequence[str],
    *lines: str,
    members: Mapping[str, str] | None = None,
) -> Block:
    statements = tuple(Statement.parse_line(spell_out(line)) for line in lines)
    return Block(name, tuple(arguments), tuple((members or {}).items()), statements)


def listing(
    inputs: Mapping[str, TensorSpec | InputOrWeight],
    *lines: str,
    weights: Mapping[str, TensorSpec] | None = None,
    blocks: Mapping[str, Block] | None = None,
    dims: Sequence[Dim] = (),
) -> PrintedProgram:
    """Write a listing.

    Args:
        lines: statements; ``aten.`` is short for ``torch.ops.aten.``.
        blocks: by the attribute that holds each.
    """
    held = [
        InputOrWeight(name, "parameter", ((Run.EXAMPLE, made),))
        for name, made in (weights or {}).items()
    ]
    given = [
        made
        if isinstance(made, InputOrWeight)
        else InputOrWeight(name, "input", ((Run.EXAMPLE, made),))
        for name, made in inputs.items()
    ]
    members = {attribute: inner.name for attribute, inner in (blocks or {}).items()}
    main = block(MAIN, list(inputs), *lines, members=members)
    inner = tuple((blocks or {}).values())
    return PrintedProgram((*inner, main), (*held, *given), tuple(dims)).normalised()


def run_for_real(program: PrintedProgram, run: Run = Run.EXAMPLE) -> Any:
    """Run it in eager, with what its recipes make."""
    scope: dict[str, Any] = {"torch": torch, "operator": operator, "math": math}
    for each in program.blocks:
        arguments = ", ".join(["self", *each.arguments])
        body = "\n        ".join(s.line() for s in each.statements)
        head = f"class {each.name}(torch.nn.Module):\n    def forward({arguments}):"
        exec(f"{head}\n        {body}", scope)
    made = {each.name: scope[each.name]() for each in program.blocks}
    for each in program.blocks:
        for attribute, kind in each.members:
            setattr(made[each.name], attribute, made[kind])
    torch.manual_seed(0)
    values = {
        given.name: eval(write_tensor_spec(given.recipe(run)), {"torch": torch})
        for given in program.given
    }
    for given in program.weights:
        made[MAIN].register_buffer(given.name, values[given.name])
    with torch.no_grad():
        return made[MAIN](*(values[name] for name in program.main.arguments))
