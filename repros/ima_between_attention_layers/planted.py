"""Register ``planted::recall``, whose fake kernel promises too many positions.

What is compiled for its result reads on past the end of it. Eager, which asks the
tensor for its shape, is right.
"""

import torch
from torch import Tensor

PROMISED = 5


@torch.library.custom_op("planted::recall", mutates_args=())
def recall(hidden: Tensor) -> Tensor:
    """Find the position before each one, ``(batch, seq, 1, features)``."""
    return hidden.roll(1, 1).unsqueeze(2)


@recall.register_fake
def promise_more(hidden: Tensor) -> Tensor:
    """Promise ``PROMISED`` positions for each: the lie."""
    batch, length, features = hidden.shape
    return hidden.new_empty(batch, length, PROMISED, features)
