"""Hide ``cumsum(pad(x))``, whose planted lowering raises, in a residual network.

Planted: planted.py wraps the lowering of ``cumsum`` and raises when the operand is a
padded tensor, whatever upstream's own lowering does. The batch is dynamic.
"""

import sys
from pathlib import Path

from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import ResidualCnn, random_tensor


class LocalMean(nn.Module):
    """Subtract the mean of each 3 x 3 window, read off a summed-area table."""

    def forward(self, features: Tensor) -> Tensor:
        table = F.pad(features, (1, 0, 1, 0)).cumsum(-1).cumsum(-2)
        below = table[:, :, 3:, 3:] - table[:, :, :-3, 3:]
        window = below - table[:, :, 3:, :-3] + table[:, :, :-3, :-3]
        return features - F.pad(window / 9, (1, 1, 1, 1))


def make() -> tuple[nn.Module, tuple[Tensor], tuple[dict[int, object]]]:
    """Return module, example inputs (one batch of images) and a dynamic batch."""
    images = random_tensor(3, 3, 12, 12, seed=1)
    batch = Dim("batch", min=2, max=64)
    return ResidualCnn(LocalMean()).eval(), (images,), ({0: batch},)
