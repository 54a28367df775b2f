"""Operators know the line and the module that they come from, exported anew too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shrinkfx.worker.origin import copy_origins, origin_of
from shrinkfx.worker.printing.graph import GraphPrinter

HERE = Path(__file__).name


class Block(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x).chunk(2)[0]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def export(model: torch.nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(model, (torch.randn(8),))


class Bare(torch.nn.Module):
    """The same operators, from nowhere that anybody knows."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        self.twice = twice
        scope: dict[str, Any] = {}
        exec("def step(x):\n    return x.relu().chunk(2)[0]", scope)
        self.step = scope["step"]

    def forward(self, x: Tensor) -> Tensor:
        x = self.step(x)
        return self.step(x) if self.twice else x


def origins(program: torch.export.ExportedProgram) -> list[str]:
    return [origin for n in program.graph.nodes if (origin := origin_of(n))]


def test_printed_lines_show_the_source_line_and_module() -> None:
    program = export(Model())
    printed = GraphPrinter(program.graph_module, {}).body()
    relu, chunk, getitem, *_ = printed
    assert f"  # {HERE}:" in relu
    assert relu.endswith(", blocks.0")
    assert "#" in chunk
    assert "#" not in getitem
    assert any(line.endswith(", blocks.1") for line in printed)


def test_origins_are_copied_only_to_the_same_operators() -> None:
    before = export(Model())
    same, shorter = export(Bare(twice=True)), export(Bare(twice=False))
    copy_origins(before.graph_module, same.graph_module)
    assert origins(same) == origins(before)
    known = origins(shorter)
    copy_origins(before.graph_module, shorter.graph_module)
    assert origins(shorter) == known
