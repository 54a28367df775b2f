"""The functional form of a program, and what is counted in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.zoo import Fixing, export
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.graph.describe import count_operators, is_functional
from shrinkfx.worker.intake.watching import programs
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


# --- counts


class Sizes(nn.Module):
    """Operators, two of them in branches, and arithmetic on sizes."""

    def forward(self, x: Tensor) -> Tensor:
        half = torch.sym_max(x.numel() // 2, x.shape[0])
        y = torch.cond(x.shape[0] > 4, torch.sin, torch.cos, (x,))
        first: Tensor = (y.view(x.numel()) * half).chunk(2)[0]
        return first


def test_script_counts_the_same_operators_as_the_search() -> None:
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(Sizes(), (torch.randn(6, 4),), dynamic_shapes=sizes)
    nodes = [n for n in exported.graph.nodes if n.op == "call_function"]
    found = programs.count_operators(exported)
    assert found == count_operators(exported.graph_module)
    assert 0 < found < len(nodes)
