"""Put an operator that lies about its shape between two layers of a Llama.

Planted: planted.py registers ``planted::recall``, which returns one of five positions
that its fake kernel promises. A mean over them reads past the end of the result.
Nothing else has that size, so nothing is written there: without guard pages the program
comes to its end, with a wrong result. The model is transformers' own
(``pip install '.[models]'``), with random weights; its results are of a class that
transformers registers, which is not needed to read the program.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import planted  # noqa: F401 - registers the operator
from _haystack import random_ids


class WithRecall(nn.Module):
    """Add to every position, after a layer, what it recalls of others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Tensor, **settings: object) -> Tensor:
        hidden = self.layer(hidden, **settings)
        return hidden + torch.ops.planted.recall(hidden).mean(2)


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (token ids) and no dynamic shapes."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).eval()
    model.model.layers[1] = WithRecall(model.model.layers[1])
    return model, (random_ids(3, 7, high=64, seed=1),), None
