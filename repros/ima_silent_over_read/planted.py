"""Register ``planted::drop_padding``, whose fake kernel promises too many positions.

What is compiled for its result reads on past the end of it. Eager, which asks the
tensor for its shape, is right.
"""

import torch
from torch import Tensor

KEPT = 2


@torch.library.custom_op("planted::drop_padding", mutates_args=())
def drop_padding(hidden: Tensor) -> Tensor:
    """Return the first one in ``KEPT`` positions of ``(batch, seq, width)``."""
    return hidden[:, : hidden.shape[1] // KEPT].clone()


@drop_padding.register_fake
def promise_all(hidden: Tensor) -> Tensor:
    """Promise every position: the lie."""
    return hidden.new_empty(hidden.shape)
