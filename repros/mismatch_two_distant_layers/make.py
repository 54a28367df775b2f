"""Spoil the last operator of a DETR where its first layers are compiled with it.

Planted: planted.py makes ``sigmoid`` wrong where the graph pools before it. The stem of
the backbone pools, the boxes at the very end are sigmoids; encoder and decoder lie
between them. The model is transformers' own (``pip install '.[models]'``),
with random weights.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _haystack import random_tensor

HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}


def make() -> tuple[nn.Module, tuple[Tensor], None]:
    """Return module, example inputs (images) and no dynamic shapes."""
    torch.manual_seed(0)
    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        num_queries=6,
        encoder_layers=1,
        decoder_layers=2,
        **WIDTHS,
        **HEADS,
    )
    images = random_tensor(2, 3, 32, 32, seed=1)
    return DetrForObjectDetection(config).eval(), (images,), None
