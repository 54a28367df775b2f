"""Hide one wrong sum among the 45 of a T5: that which finds the encoder's buckets.

Planted: planted.py wraps the lowering of ``add`` and forgets the second operand where
that comes from ``where``. The decoder's buckets are ``where + 0``, and right. The
model is transformers' own (``pip install '.[models]'``), with random weights.
"""

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration


def make() -> tuple[nn.Module, tuple[()], None]:
    """Return module, no positional inputs and no dynamic shapes."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=3,
        num_heads=4,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config).eval(), (), None


def kwargs() -> dict[str, Tensor]:
    """Return token ids for encoder and decoder."""
    generator = torch.Generator().manual_seed(1)
    sizes = {"input_ids": (3, 9), "decoder_input_ids": (3, 5)}
    return {
        name: torch.randint(3, 64, size, generator=generator)
        for name, size in sizes.items()
    }
