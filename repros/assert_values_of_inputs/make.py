"""Count the positions of a RoBERTa one too far, which only a full row shows.

RoBERTa numbers the tokens of a row that are no padding, and looks the numbers up in
its table of positions. Planted: planted.py makes the sum that numbers them one too
large. The example has padding in every row and passes; a row without ends beyond the
table, and Inductor's own bounds check throws. The model is transformers' own
(``pip install '.[models]'``), with random weights.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForMaskedLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_ids

LENGTH, PADDING = 8, 1


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (token ids, padded) and no dynamic shapes."""
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=LENGTH + PADDING + 1,
        pad_token_id=PADDING,
    )
    return RobertaForMaskedLM(config).eval(), (tokens(4, 6, 7),), None


def run_args() -> tuple[Tensor]:
    """Return the inputs that fail: a row without padding."""
    return (tokens(4, LENGTH, 7),)


def tokens(*lengths: int) -> Tensor:
    """Draw rows of tokens, each padded from a length of its own on."""
    drawn = 2 + random_ids(len(lengths), LENGTH, high=62, seed=1)
    padded = torch.arange(LENGTH) >= torch.tensor(lengths)[:, None]
    return drawn.masked_fill(padded, PADDING)
