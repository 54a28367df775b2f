"""Non-maximum suppression as a custom operator, for want of torchvision's."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("boxes::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Number the boxes (n, 4) that overlap none of a higher score, best first."""
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    shared = (high.minimum(boxes[:, 2:]) - low.maximum(boxes[:, :2])).clamp(min=0)
    common, areas = shared.prod(-1), (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlap = common / (areas[:, None] + areas - common)
    kept: list[int] = []
    for box in scores.argsort(descending=True).tolist():
        if not kept or float(overlap[box, kept].max()) <= threshold:
            kept.append(box)
    return torch.tensor(kept, dtype=torch.int64)


@nms.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    return boxes.new_empty(
        torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64
    )
