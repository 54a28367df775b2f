"""Hide a product of int8 matrices, which AOTInductor widens to int64, among casts.

Not planted: https://github.com/pytorch/pytorch/issues/191308. Eager's product wraps
around, the compiled one does not. The inputs are nested, half of them keyword
arguments, in float32, float16, bfloat16, int8 and complex64.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import TransformerBlock, random_tensor


class CachedDecoder(nn.Module):
    """Decode one more token from a cache of quantised keys.

    ``past`` holds ``keys`` (1, width, 24) int8, their ``scales`` (24) float16, and
    ``values``: two halves of (1, 24, width / 2) bfloat16.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        width, heads = 32, 4
        self.before = TransformerBlock(width, heads)
        self.query = nn.Linear(width, width)
        self.after = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(2)))

    def forward(self, tokens: Tensor, *, past: dict, turns: list[Tensor]) -> Tensor:
        hidden = self.before(tokens)
        query = self.query(hidden[:, -1:]).unflatten(-1, (-1, 2)).contiguous()
        for turn in turns:
            query = torch.view_as_real(torch.view_as_complex(query) * turn)
        query = (query.flatten(-2) * 40).clamp(-100, 100).to(torch.int8)
        scores = torch.matmul(query, past["keys"]).half() * past["scales"]
        weights = scores.float().softmax(-1).bfloat16()
        read = torch.matmul(weights, torch.cat(past["values"], -1))
        return self.after(hidden + read.float())


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (one sequence of embeddings), nothing dynamic."""
    return CachedDecoder().eval(), (random_tensor(1, 6, 32, seed=1),), None


def kwargs() -> dict[str, object]:
    """Return the keyword arguments: the cache, and angles to turn the query by."""
    angles = [random_tensor(16, seed=seed) for seed in (2, 3)]
    values = [random_tensor(1, 24, 16, seed=seed).bfloat16() for seed in (4, 5)]
    past = {
        "keys": (random_tensor(1, 32, 24, seed=6) * 30).to(torch.int8),
        "scales": random_tensor(24, seed=7).abs().half() / 50,
        "values": tuple(values),
    }
    return {"past": past, "turns": [torch.exp(1j * angle) for angle in angles]}
