"""Feed an encoder-decoder a longer source than it was exported for.

Not planted: the program allows up to 16 positions, the failing inputs have 20. Only
AOTI_RUNTIME_CHECK_INPUTS=1 makes the compiled program say so.
"""

import sys
from pathlib import Path

from torch import Tensor, nn
from torch.export import Dim

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import EncoderDecoder, random_tensor


class Fade(nn.Module):
    """Mix a little of the memory's mean into every position."""

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        return hidden + 0.1 * memory.mean(1, keepdim=True)


def inputs(length: int) -> tuple[Tensor, Tensor]:
    """Draw a source of this length, and a target of another."""
    return random_tensor(2, length, 16, seed=1), random_tensor(2, 9, 16, seed=2)


def make() -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[dict[int, object], ...]]:
    """Return module, example inputs and a dynamic length of each input."""
    source, target = Dim("source", min=2, max=16), Dim("target", min=2, max=64)
    return EncoderDecoder(Fade()).eval(), inputs(6), ({1: source}, {1: target})


def run_args() -> tuple[Tensor, Tensor]:
    """Return the inputs that fail: a source beyond the program's range."""
    return inputs(20)
