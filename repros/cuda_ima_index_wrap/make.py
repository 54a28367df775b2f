"""Hide an index that wraps at 32 bits in a transformer.

Planted: the kernel of ``planted::through_cache`` multiplies a row's slot with the
stride of a cache of 2.2 GB, both of 32 bits. In the slots beyond 2^31 bytes the
product is negative. No memory is needed for the cache: it is touched in few places.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted
from _haystack import Transformer, random_ids


class Cached(nn.Module):
    """Send the states of ``(batch, seq, width)`` through a cache and back."""

    def __init__(self) -> None:
        super().__init__()
        slots = torch.arange(8) * (planted.SLOTS - 1) // 7
        self.register_buffer("slots", slots.to(torch.int32))

    def forward(self, hidden: Tensor) -> Tensor:
        signs = (hidden > 0).to(torch.int8).flatten(0, 1)
        cached = torch.ops.planted.through_cache(signs, self.slots)
        return hidden + 0.1 * cached.to(hidden.dtype).view_as(hidden)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs ((batch, seq) ids) and no dynamic shapes."""
    ids = random_ids(2, 4, high=64, seed=1)
    return Transformer(Cached(), blocks=2).eval(), (ids,), None
