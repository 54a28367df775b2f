"""Divide by the norm of a blank image's features in a Swin, version 2.

That attends by cosines: queries and keys are divided by their norms, of which none is
taken for less than 1e-12. A blank image's are zero. Planted: planted.py makes that
bound none, so what is compiled gives NaN for the one image, and is right for the
others. The model is transformers' own (``pip install '.[models]'``), with random
weights.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Swinv2Config, Swinv2ForImageClassification

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (images, one blank) and no dynamic shapes."""
    torch.manual_seed(0)
    config = Swinv2Config(
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 4],
        window_size=4,
    )
    images = random_tensor(3, 3, 32, 32, seed=1)
    images[1] = 0.0
    return Swinv2ForImageClassification(config).eval(), (images,), None
