"""A model to be exported, and what small inputs for one are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


BATCHES = Dim("batch", min=2, max=64)
LENGTHS = Dim("length", min=2, max=16)
TOKENS = {0: BATCHES, 1: LENGTHS}


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY, shape or (BATCH, LENGTH))


def image(channels: int = 3) -> Tensor:
    return torch.randn(BATCH, channels, IMAGE, IMAGE)


def text(module: nn.Module, **others: Any) -> Sample:
    return Sample(module, {"input_ids": tokens(), **others}, {"input_ids": TOKENS})


def picture(module: nn.Module) -> Sample:
    return Sample(module, {"pixel_values": image()}, {"pixel_values": {0: BATCHES}})
