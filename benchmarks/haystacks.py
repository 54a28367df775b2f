"""Export a generated haystack: ``python haystacks.py FAMILY NODES NEEDLES FILE.pt2``.

FAMILY is transformer, cnn or dlrm; NODES about how many nodes its graph has; NEEDLES
which chain of ``planted_chain.py`` is in it: 1, 3 or 8 operators that cannot be
lowered, or 3-wrong, whose result is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "repros"))
from _haystack import Dlrm, ResidualCnn, Transformer, random_ids, random_tensor
from planted_chain import CHAINS


class Chain(nn.Module):
    """The operators of a chain, on values that each of them can take."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names

    def forward(self, hidden: Tensor) -> Tensor:
        value = hidden.tanh() * 0.5
        for name in self.names:
            value = getattr(torch, name)(value)
        return hidden + value


def transformer(needle: nn.Module, size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    blocks = max(1, size)
    return Transformer(needle, blocks=blocks), (random_ids(2, 8, high=64, seed=1),)


def cnn(needle: nn.Module, size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    return ResidualCnn(needle, blocks=size), (random_tensor(2, 3, 8, 8, seed=1),)


def dlrm(needle: nn.Module, size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    ids = [random_ids(4, 3, high=40, seed=i) for i in range(size)]
    batch = {"dense": random_tensor(4, 6, seed=1), "ids": ids}
    return Dlrm(needle, tables=size), (batch,)


FAMILIES: dict[str, Callable[..., Any]] = {
    "transformer": transformer,
    "cnn": cnn,
    "dlrm": dlrm,
}


def export(family: str, nodes: int, needles: str) -> torch.export.ExportedProgram:
    """Export the largest program of a family that has at most ``nodes`` nodes."""
    make, size = FAMILIES[family], 1
    needle = Chain(CHAINS[needles])
    best = _export(*make(needle, size))
    per_size = len(_export(*make(needle, 2)).graph.nodes) - len(best.graph.nodes)
    size += max(0, nodes - len(best.graph.nodes)) // per_size
    return _export(*make(needle, size))


def _export(module: nn.Module, args: tuple[Any, ...]) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), args)


if __name__ == "__main__":
    family, nodes, needles, file = sys.argv[1:]
    program = export(family, int(nodes), needles)
    torch.export.save(program, file)
    print(len(program.graph.nodes))
