"""Models of public libraries: their own code, small configurations, random weights.

Each is a function that imports its library, so that a list of them can be made where
none is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from of_transformers import (
    bert,
    convnext,
    detr,
    efficientnet,
    gpt2,
    llama,
    mamba,
    mixtral,
    rwkv,
    swin,
    t5,
    vit,
    whisper,
)
from others import (
    bf16_convnext,
    bf16_llama,
    detection_head,
    int8_bert,
    int8_llama,
    timm_convnext,
    timm_efficientnet,
    timm_swin,
    timm_vit,
    torchvision_head,
)
from samples import Sample

Maker = Callable[[], Sample]

_NEEDS_TORCHVISION = (
    *(timm_vit, timm_swin, timm_convnext, timm_efficientnet, torchvision_head),
)
MODELS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        *(gpt2, llama, mixtral, t5, whisper, bert, vit, swin, convnext),
        *(efficientnet, detr, mamba, rwkv, detection_head),
        *(int8_bert, int8_llama, bf16_llama, bf16_convnext),
        *_NEEDS_TORCHVISION,
    )
}
LIBRARIES: dict[str, tuple[str, ...]] = {
    "detection_head": (),
    "torchvision_head": ("torchvision",),
    **{maker.__name__: ("torchvision", "timm") for maker in _NEEDS_TORCHVISION[:-1]},
}
"""What a model is made with, if that is not transformers."""

PRELOADS: dict[str, tuple[str, ...]] = {
    "mixtral": ("transformers.integrations.moe",),
    "detection_head": (str(Path(__file__).with_name("boxes.py")),),
    "torchvision_head": ("torchvision",),
}
"""What registers the operators of its own that a program has."""
