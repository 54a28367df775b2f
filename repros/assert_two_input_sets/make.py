"""Hide a batch reversal that knows only the example's batch in an LSTM.

Planted: planted.py lowers ``flip`` with the size that the dim had in the example, 3.
The exported example passes; a larger batch, which the program allows, indexes below
zero and Inductor's own bounds check throws.
"""

import sys
from pathlib import Path

from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import LstmTagger, random_ids


class MixWithOpposite(nn.Module):
    """Blend each sentence of the batch with the one at the other end."""

    def forward(self, hidden: Tensor) -> Tensor:
        return 0.9 * hidden + 0.1 * hidden.flip(0).sigmoid()


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object]]]:
    """Return module, example inputs ((batch, steps) word ids) and a dynamic batch."""
    ids = random_ids(3, 5, high=50, seed=1)
    batch = Dim("batch", min=2, max=64)
    return LstmTagger(MixWithOpposite()).eval(), (ids,), ({0: batch},)


def run_args() -> tuple[Tensor]:
    """Return the inputs that fail: a batch larger than the example's."""
    return (random_ids(7, 5, high=50, seed=2),)
