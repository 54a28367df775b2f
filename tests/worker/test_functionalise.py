"""In-place operators are taken out where that gives the same program."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.export import Dim
from zoo import Fixing, export

from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.graph.describe import is_functional
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Program


def loaded(exported: torch.export.ExportedProgram, folder: Path) -> Program:
    torch.export.save(exported, folder / "model.pt2")
    return load(Setup(str(folder), model=str(folder / "model.pt2")))


def targets(program: Program) -> set[str]:
    return {str(n.target) for n in program.graph.graph.nodes}


def is_dynamic(program: Program) -> bool:
    (x,) = program.graph.graph.find_nodes(op="placeholder")
    return any(not str(size).isdigit() for size in x.meta["val"].shape)


def test_program_with_computed_dims_is_functionalised(tmp_path: Path) -> None:
    program = loaded(export("computed_dims"), tmp_path)
    assert "aten.mul_.Tensor" not in targets(program)
    assert is_dynamic(program)


def test_symbol_that_occurs_only_in_expressions_gets_its_value(tmp_path: Path) -> None:
    exported = torch.export.export(
        torch.nn.Tanh(), (torch.randn(19),), dynamic_shapes=({0: 3 * Dim("t") + 1},)
    )
    program = loaded(exported, tmp_path)
    for form in (program.original, program.graph):
        (x,) = form.graph.find_nodes(op="placeholder")
        size = x.meta["val"].shape[0].node
        (symbol,) = size.expr.free_symbols
        assert size.shape_env.backed_var_to_val[symbol] == 6


def test_functional_form_with_fewer_dynamic_dims_is_rejected(tmp_path: Path) -> None:
    # With torch 2.13 a write into one result of unbind fixes the other dims.
    exported = torch.export.export(
        Fixing(), (torch.randn(3, 5),), dynamic_shapes=({1: Dim("t")},)
    )
    program = loaded(exported, tmp_path)
    assert is_dynamic(program)
    program.graph.module()(torch.randn(3, 9))


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("weights", True),
        ("dynamic", True),
        ("nested", True),
        ("branches", False),
        ("in_place", False),
        ("writes", False),
    ],
)
def test_functional_program_writes_nothing_and_takes_no_branch(
    name: str, is_so: bool
) -> None:
    assert is_functional(export(name)) is is_so
