"""Hide a ``torch.cond`` whose operands are two views of one tensor, in an LSTM.

Not planted: AOTInductor takes operands that share memory for outputs that alias
them, and refuses. Eager and export have no objection. A cond that captures a
parameter and a state is beside it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import LstmTagger, random_ids


class ByHalves(nn.Module):
    """Merge the halves of the state, and scale the result, as the state says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, hidden: Tensor) -> Tensor:
        low, high = hidden[:, :8], hidden[:, 8:]
        merged = torch.cond(hidden.mean() > 0, torch.add, torch.sub, (low, high))
        whole = torch.cat([merged, merged.tanh()], -1)
        return torch.cond(
            whole.max() > 1,
            lambda x: x * self.gain,
            lambda x: x - hidden,
            (whole,),
        )


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, steps) word ids) and no dynamic shapes."""
    ids = random_ids(2, 5, high=50, seed=1)
    return LstmTagger(ByHalves(16)).eval(), (ids,), None
