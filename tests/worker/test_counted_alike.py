"""A program has as many operators for a script's processes as for the search."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shrinkfx.worker.graph.describe import count_operators
from shrinkfx.worker.intake.watching import programs


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
