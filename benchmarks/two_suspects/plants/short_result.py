"""Register ``planted::keep_loud``, whose result is shorter than promised."""

import torch
from torch import Tensor


@torch.library.custom_op("planted::keep_loud", mutates_args=())
def keep_loud(hidden: Tensor) -> Tensor:
    """Keep the louder half of ``(batch, seq, width)``."""
    loudness = hidden.abs().mean((1, 2))
    return hidden[loudness.topk(hidden.shape[0] // 2).indices]


@keep_loud.register_fake
def promise_all(hidden: Tensor) -> Tensor:
    """Promise the whole batch: the lie."""
    return hidden.new_empty(hidden.shape)
