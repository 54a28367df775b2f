"""Which size of a buffer compiled code has worked out wrongly."""

from __future__ import annotations

import torch
from torch import nn
from torch.export import Dim

from shrinkfx.worker.checking.compare import DEFAULT_TOLERANCES
from shrinkfx.worker.explaining.lowered import ComparedRun
from shrinkfx.worker.explaining.values import describe_wrong_size
from shrinkfx.worker.model import Inputs


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def run_at(rows: int) -> tuple[ComparedRun, tuple[object, ...]]:
    """Export ``(3*t + 1, 8)``, and give the sizes of its result as they are planned."""
    dims = {"x": {0: 3 * Dim("t", min=5, max=1000) + 1}}
    program = torch.export.export(Doubles(), (torch.ones(19, 8),), dynamic_shapes=dims)
    (made,) = (n for n in program.graph.nodes if n.op == "call_function")
    planned = tuple(getattr(s, "node", s) for s in made.meta["val"].shape)
    sizes = tuple(getattr(size, "expr", size) for size in planned)
    inputs = Inputs((torch.ones(rows, 8),), {})
    ran = ComparedRun(
        program, inputs, 1, DEFAULT_TOLERANCES.tolerance, lambda node: [node.name]
    )
    return ran, sizes


def test_size_that_differs_from_the_planned_one_is_reported() -> None:
    ran, planned = run_at(25)
    said = describe_wrong_size(torch.ones(22, 8), planned, ran)
    assert said.endswith("+ 1 is 25 at these inputs, and 22 in compiled code")


def test_planned_or_fixed_size_is_not_reported() -> None:
    ran, planned = run_at(25)
    assert describe_wrong_size(torch.ones(25, 8), planned, ran) == ""
    assert (
        describe_wrong_size(torch.ones(25, 9), planned, ran) == ""
    )  # fixed: not worked out
    assert describe_wrong_size(torch.ones(25), planned, ran) == ""
