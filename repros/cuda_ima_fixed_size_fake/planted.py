"""Register ``planted::whiten``, whose fake kernel has a size hard-coded."""

import torch
from torch import Tensor

BATCH = 4


@torch.library.custom_op("planted::whiten", mutates_args=())
def whiten(hidden: Tensor) -> Tensor:
    """Give each state of ``(batch, seq, width)`` mean 0 and variance 1."""
    centred = hidden - hidden.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).add(1e-5).sqrt()


@whiten.register_fake
def promise(hidden: Tensor) -> Tensor:
    """Promise the example's batch, whatever the batch is: the lie."""
    return hidden.new_empty((BATCH, *hidden.shape[1:]))
