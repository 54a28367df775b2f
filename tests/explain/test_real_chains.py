"""Chains of programs that are compiled and fail here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.whole_programs import reduced_program
from torch import Tensor, nn

from shrinkfx.explain.chain import chain
from shrinkfx.findings.chain import Chain
from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.requests import CheckOptions

REPROS = Path(__file__).resolve().parents[2] / "repros"


class Positions(nn.Module):
    """Look up the numbers of the tokens that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.cumsum(ids.ne(1).int(), 1) + 1
        return nn.functional.embedding(places, self.table.weight)


class Rows(nn.Module):
    """Look up rows of ``(rows, 4)`` by numbers, one of them computed."""

    def forward(self, rows: Tensor, ids: Tensor) -> Tensor:
        return torch.sin(rows)[ids * 2 + 1]


class Shares(nn.Module):
    """Divide by what is of fewer dims: within a branch, and outside as well, or not."""

    def __init__(self, *, outside: bool) -> None:
        super().__init__()
        self.outside = outside

    def forward(self, parts: Tensor, of: Tensor, rows: Tensor, by: Tensor) -> Tensor:
        def divided(rows: Tensor, by: Tensor) -> Tensor:
            return rows / by

        found: Tensor = torch.cond(parts.max() > 0, divided, divided, (rows, by))
        return found.sum() + (parts / of if self.outside else parts.sum())


def chain_of(folder: Path, module: nn.Module, *args: Any, **settings: Any) -> Chain:
    """Export a program, see it fail, and follow its failure."""
    with reduced_program(folder, module, *args, **settings) as reduced:
        found = chain(reduced)
    assert found is not None
    return found


@pytest.mark.aoti
@pytest.mark.every_run
def test_wrong_cumsum_is_culprit_of_an_out_of_bounds_index(tmp_path: Path) -> None:
    padded, full = torch.full((4, 8), 5), torch.full((4, 8), 5)
    padded[:, 6:] = 1
    planted = REPROS / "assert_values_of_inputs" / "planted.py"
    found = chain_of(tmp_path, Positions(), (padded,), failing=(full,), preload=planted)
    # What it is computed from is left, too.
    assert found.culprits[-1].operator == "aten.cumsum.default"
    assert {o.name for o in found.culprits}.isdisjoint({"add", "embedding"})
    assert found.culprits[-1].line.startswith("test_real_chains.py:")
    assert (found.value, found.limit and found.limit.value) == (10, 10)
    assert (found.launch, found.launches) == (2, 2)


@pytest.mark.torch
def test_index_on_the_interpreter_is_traced_to_input_and_dim(tmp_path: Path) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    example = (torch.randn(30, 4), torch.arange(7))
    failing = (torch.randn(9, 4), torch.arange(7))
    found = chain_of(
        tmp_path,
        Rows(),
        example,
        failing=failing,
        dynamic_shapes=({0: rows}, {}),
        on_interpreter=True,
    )
    assert found.eager_fails
    assert [o.operator for o in found.culprits] == ["aten.index.Tensor"]
    assert found.value == 9
    assert found.limit is not None
    (symbol,) = found.limit.symbols
    assert (symbol.input, symbol.dim, symbol.value) == ("rows", 0, 9)
    assert (symbol.least, symbol.most) == ("2", "64")
    assert [step.reads.name for step in found.steps if step.reads] == ["ids"]
    named = {o.operator for step in found.steps for o in step.operators}
    assert {"aten.mul.Tensor", "aten.add.Tensor"} <= named
    assert found.grid


@pytest.mark.torch
@pytest.mark.skipif(torch.__version__ < "2.13", reason="a mistake of torch 2.13")
@pytest.mark.parametrize("outside", [False, True])
def test_benchmark_of_a_branch_with_a_wrong_size_is_reported(
    *, outside: bool, tmp_path: Path
) -> None:
    """pytorch#195604: each graph has its own table of precomputed sizes."""
    shapes = (2, 5, 7), (5, 7), (3, 2, 4), (2, 4)
    example = tuple(torch.ones(shape) for shape in shapes)
    names = [torch.export.Dim(name, min=2, max=64) for name in "abcd"]
    (a, b, c, d) = names
    found = chain_of(
        tmp_path,
        Shares(outside=outside),
        example,
        dynamic_shapes=({1: a, 2: b}, {0: a, 1: b}, {1: c, 2: d}, {0: c, 1: d}),
        on_interpreter=True,
        options=CheckOptions(probe=Probe.HINTS),
    )
    assert "cond" in [operator.operator for operator in found.culprits]
    (timed,) = found.cause
    assert timed.startswith("When AOTInductor benchmarks kernels")
    # The branch that is timed first.
    branch = "false" if torch.__version__ >= "2.14" else "true"
    assert f"generated for buffer {branch}_graph_0." in timed
