"""Register ``planted::drop_first``, whose result does not begin where memory does."""

import torch
from torch import Tensor


@torch.library.custom_op("planted::drop_first", mutates_args=())
def drop_first(vector: Tensor) -> Tensor:
    """Return all elements but the first, in memory that holds that one, too."""
    return vector.clone()[1:]


@drop_first.register_fake
def promise(vector: Tensor) -> Tensor:
    """Promise memory of its own: the lie."""
    return vector.new_empty(vector.shape[0] - 1)
