"""An RWKV of transformers' own, which AOTInductor compiles and cannot run (2.11, 2.13).

Nothing is planted. In inference the model divides weights of each block in place,
before its first layer. Export keeps that; AOTInductor hands back what each ``div_`` has
written as one more result, and its loader then refuses to put five into the place of
one: "treespec.unflatten(leaves): `leaves` has length 5 but the spec refers to a pytree
that holds 1 items". Any parameter that is written in place does that, no buffer does.

Found with ``tests/models/`` (``pip install '.[models]'``), with random weights.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import RwkvConfig, RwkvForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_ids


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (token ids) and no dynamic shapes."""
    torch.manual_seed(0)
    config = RwkvConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        context_length=16,
        use_cache=False,
    )
    model = RwkvForCausalLM(config).eval()
    return model, (random_ids(3, 7, high=64, seed=1),), None
