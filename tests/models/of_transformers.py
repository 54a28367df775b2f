"""Models of transformers, from configurations: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from samples import (
    BATCH,
    BATCHES,
    HEADS,
    IMAGE,
    LAYERS,
    LENGTH,
    TOKENS,
    VOCABULARY,
    WIDTH,
    Sample,
    picture,
    text,
    tokens,
)
from torch.export import Dim

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
    return text(GPT2LMHeadModel(config))


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

    sample = text(LlamaForCausalLM(LlamaConfig(**_llama_like())))
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    mask[0, :2] = 0
    arguments = {**sample.arguments, "attention_mask": mask}
    return Sample(
        sample.module, arguments, {**sample.dynamic, "attention_mask": TOKENS}
    )


def mixtral() -> Sample:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_llama_like(), num_local_experts=4, num_experts_per_tok=2)
    return text(MixtralForCausalLM(config))


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
    answer = {"decoder_input_ids": tokens(BATCH, 5)}
    sample = text(T5ForConditionalGeneration(config), **answer)
    target = {0: BATCHES, 1: Dim("target", min=2, max=16)}
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
    return text(BertForSequenceClassification(config))


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
    return Sample(module, {"input_ids": tokens()}, {"input_ids": {0: BATCHES}})


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
    return Sample(module, {"input_ids": tokens()}, {"input_ids": {0: BATCHES}})


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
        "decoder_input_ids": tokens(),
    }
    dynamic = {"input_features": {0: BATCHES}, "decoder_input_ids": TOKENS}
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
    return picture(ViTForImageClassification(config))


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
    return picture(SwinForImageClassification(config))


def convnext() -> Sample:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 2, 1])
    return picture(ConvNextForImageClassification(config))


def efficientnet() -> Sample:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=IMAGE,
        width_coefficient=0.25,
        depth_coefficient=0.5,
        hidden_dim=320,
    )
    return picture(EfficientNetForImageClassification(config))


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
    return picture(DetrForObjectDetection(config))
