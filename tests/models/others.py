"""Models of timm and torchvision, a head of a detector, and quantised models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from of_transformers import bert, convnext, llama
from samples import BATCHES, HEADS, IMAGE, LAYERS, WIDTH, Sample, image
from torch import Tensor, nn

# --- timm and torchvision


def _of_timm(name: str, **settings: Any) -> Sample:
    import timm

    module = timm.create_model(name, pretrained=False, num_classes=5, **settings)
    return Sample(module, {"x": image()}, {"x": {0: BATCHES}})


def timm_vit() -> Sample:
    return _of_timm(
        "vit_tiny_patch16_224",
        img_size=IMAGE,
        embed_dim=WIDTH,
        depth=LAYERS,
        num_heads=HEADS,
    )


def timm_swin() -> Sample:
    return _of_timm(
        "swin_tiny_patch4_window7_224",
        img_size=IMAGE,
        window_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(2, 4),
    )


def timm_convnext() -> Sample:
    return _of_timm("convnext_atto", depths=(1, 1, 2, 1), dims=(8, 16, 16, 32))


def timm_efficientnet() -> Sample:
    return _of_timm("efficientnet_b0", channel_multiplier=0.25, depth_multiplier=0.5)


class _Boxes(nn.Module):
    """What follows a detector: scores above a threshold, then NMS."""

    def __init__(self, nms: Callable[[Tensor, Tensor, float], Tensor]) -> None:
        super().__init__()
        self.nms = nms
        self.features = nn.Conv2d(3, 8, 8, 8)
        self.scores = nn.Conv2d(8, 1, 1)
        self.corners = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.relu(self.features(x))
        scores = self.scores(features).flatten(1).sigmoid()
        corners = self.corners(features).flatten(2).transpose(1, 2)
        low, size = corners.chunk(2, -1)
        boxes = torch.cat([low, low + size.exp()], -1)
        picture, place = torch.nonzero(scores > 0.4, as_tuple=True)
        found = boxes[picture, place] + 100.0 * picture.unsqueeze(-1)
        kept = self.nms(found, scores[picture, place], 0.5)
        return found[kept], scores[picture, place][kept]


def detection_head() -> Sample:
    import boxes

    return Sample(_Boxes(boxes.nms), {"x": image()}, {"x": {0: BATCHES}})


def torchvision_head() -> Sample:
    from torchvision.ops import nms

    return Sample(_Boxes(nms), {"x": image()}, {"x": {0: BATCHES}})


# --- quantised


def _steps(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise to int8, with a scale for each row (out, in) -> (out, in), (out,)."""
    scales = weight.abs().amax(1).clamp(min=1e-6) / 127
    return (weight / scales[:, None]).round().to(torch.int8), scales


class _Int8(nn.Module):
    """A linear layer in the form that quantising in PyTorch 2 export leaves."""

    weight: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        steps, scales = _steps(of.weight.detach())
        self.register_buffer("weight", steps)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(len(scales), dtype=torch.int64))
        self.bias = of.bias

    def forward(self, x: Tensor) -> Tensor:
        quantised = torch.ops.quantized_decomposed
        given = 0.05, 3, -128, 127, torch.int8
        x = quantised.quantize_per_tensor.default(x, *given)
        x = quantised.dequantize_per_tensor.default(x, *given)
        weight = quantised.dequantize_per_channel.default(
            *(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        )
        result: Tensor = nn.functional.linear(x, weight, self.bias)
        return result


class _PackedInt8(nn.Module):
    """A linear layer whose weights alone are int8, multiplied as they are."""

    weight: Tensor
    scales: Tensor

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        steps, scales = _steps(of.weight.detach())
        self.register_buffer("weight", steps)
        self.register_buffer("scales", scales.to(torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        packed = self.weight, self.scales
        found: Tensor = torch.ops.aten._weight_int8pack_mm(rows, *packed)
        return found.reshape(*x.shape[:-1], -1)


def _with_layers(module: nn.Module, kind: Callable[[nn.Linear], nn.Module]) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, kind(child))
        else:
            _with_layers(child, kind)


def int8_bert() -> Sample:
    import torch.ao.quantization.fx._decomposed  # noqa: F401 - registers operators

    sample = bert()
    _with_layers(sample.module, _Int8)
    return sample


def int8_llama() -> Sample:
    sample = bf16_llama()
    _with_layers(sample.module, _PackedInt8)
    return sample


def bf16_llama() -> Sample:
    sample = llama()
    sample.module.to(torch.bfloat16)
    return sample


def bf16_convnext() -> Sample:
    sample = convnext()
    sample.module.to(torch.bfloat16)
    pixels = sample.arguments["pixel_values"].to(torch.bfloat16)
    return Sample(sample.module, {"pixel_values": pixels}, sample.dynamic)
