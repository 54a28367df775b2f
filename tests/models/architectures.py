"""Models of public libraries: their own code, small configurations, random weights.

Nothing is downloaded. Each is a function that imports its library, so that a list of
them can be made where none is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

WIDTH, HEADS, LAYERS, VOCABULARY = 32, 4, 2, 64
BATCH, LENGTH, IMAGE = 3, 7, 64


@dataclass(frozen=True)
class Sample:
    """A module, keyword arguments for it, and which of their dims may vary.

    Attributes:
        dynamic: argument -> dim -> its declaration; other dims stay fixed.
    """

    module: nn.Module
    arguments: Mapping[str, Any]
    dynamic: Mapping[str, Any] = field(default_factory=dict)

    def export(self, *, dynamic: bool) -> ExportedProgram:
        """Export as users do, for inference."""
        shapes = {name: self.dynamic.get(name) for name in self.arguments}
        with torch.no_grad():
            return torch.export.export(
                self.module.eval(),
                (),
                dict(self.arguments),
                dynamic_shapes=shapes if dynamic and self.dynamic else None,
            )


Maker = Callable[[], Sample]

_BATCH = Dim("batch", min=2, max=64)
_LENGTH = Dim("length", min=2, max=16)
_TOKENS = {0: _BATCH, 1: _LENGTH}


def _tokens(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY, shape or (BATCH, LENGTH))


def _image(channels: int = 3) -> Tensor:
    return torch.randn(BATCH, channels, IMAGE, IMAGE)


def _text(module: nn.Module, **others: Any) -> Sample:
    return Sample(module, {"input_ids": _tokens(), **others}, {"input_ids": _TOKENS})


def _picture(module: nn.Module) -> Sample:
    return Sample(module, {"pixel_values": _image()}, {"pixel_values": {0: _BATCH}})


# --- transformers: text


def gpt2() -> Sample:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        use_cache=False,
    )
    return _text(GPT2LMHeadModel(config))


def _llama_like() -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "max_position_embeddings": 16,
        "use_cache": False,
    }


def llama() -> Sample:
    from transformers import LlamaConfig, LlamaForCausalLM

    sample = _text(LlamaForCausalLM(LlamaConfig(**_llama_like())))
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[0, :2] = 0
    arguments = {**sample.arguments, "attention_mask": mask}
    return Sample(
        sample.module, arguments, {**sample.dynamic, "attention_mask": _TOKENS}
    )


def mixtral() -> Sample:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_llama_like(), num_local_experts=4, num_experts_per_tok=2)
    return _text(MixtralForCausalLM(config))


def t5() -> Sample:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        use_cache=False,
    )
    answer = {"decoder_input_ids": _tokens(BATCH, 5)}
    sample = _text(T5ForConditionalGeneration(config), **answer)
    target = {0: _BATCH, 1: Dim("target", min=2, max=16)}
    dynamic = {**sample.dynamic, "decoder_input_ids": target}
    return Sample(sample.module, sample.arguments, dynamic)


def bert() -> Sample:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=16,
    )
    return _text(BertForSequenceClassification(config))


def mamba() -> Sample:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        state_size=4,
        num_hidden_layers=LAYERS,
        use_cache=False,
    )
    module = MambaForCausalLM(config)
    # The scan is a loop over the length, which export unrolls.
    return Sample(module, {"input_ids": _tokens()}, {"input_ids": {0: _BATCH}})


def rwkv() -> Sample:
    from transformers import RwkvConfig, RwkvForCausalLM

    config = RwkvConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        context_length=16,
        use_cache=False,
    )
    module = RwkvForCausalLM(config)
    return Sample(module, {"input_ids": _tokens()}, {"input_ids": {0: _BATCH}})


# --- transformers: sound and pictures


def whisper() -> Sample:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * WIDTH,
        decoder_ffn_dim=2 * WIDTH,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    arguments = {
        "input_features": torch.randn(BATCH, 8, 20),
        "decoder_input_ids": _tokens(),
    }
    dynamic = {"input_features": {0: _BATCH}, "decoder_input_ids": _TOKENS}
    return Sample(WhisperForConditionalGeneration(config), arguments, dynamic)


def vit() -> Sample:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH,
        image_size=IMAGE,
        patch_size=16,
    )
    return _picture(ViTForImageClassification(config))


def swin() -> Sample:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=IMAGE,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
    )
    return _picture(SwinForImageClassification(config))


def convnext() -> Sample:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 2, 1])
    return _picture(ConvNextForImageClassification(config))


def efficientnet() -> Sample:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=IMAGE,
        width_coefficient=0.25,
        depth_coefficient=0.5,
        hidden_dim=320,
    )
    return _picture(EfficientNetForImageClassification(config))


def detr() -> Sample:
    """A ResNet, an encoder and a decoder with queries."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

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
        d_model=WIDTH,
        encoder_layers=1,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=2 * WIDTH,
        decoder_ffn_dim=2 * WIDTH,
    )
    return _picture(DetrForObjectDetection(config))


# --- timm and torchvision


def _of_timm(name: str, **settings: Any) -> Sample:
    import timm

    module = timm.create_model(name, pretrained=False, num_classes=5, **settings)
    return Sample(module, {"x": _image()}, {"x": {0: _BATCH}})


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

    return Sample(_Boxes(boxes.nms), {"x": _image()}, {"x": {0: _BATCH}})


def torchvision_head() -> Sample:
    from torchvision.ops import nms

    return Sample(_Boxes(nms), {"x": _image()}, {"x": {0: _BATCH}})


# --- quantised


class _Int8(nn.Module):
    """A linear layer in the form that quantising in PyTorch 2 export leaves."""

    weight: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        weight = of.weight.detach()
        scales = weight.abs().amax(1).clamp(min=1e-6) / 127
        steps = (weight / scales[:, None]).round().to(torch.int8)
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
        weight = of.weight.detach()
        scales = weight.abs().amax(1).clamp(min=1e-6) / 127
        steps = (weight / scales[:, None]).round().to(torch.int8)
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
