"""Register ``planted::hash_ids``, which lies about its dtype, and an honest one."""

import torch
from torch import Tensor

ROWS = 50


@torch.library.custom_op("planted::hash_ids", mutates_args=())
def hash_ids(numbers: Tensor) -> Tensor:
    """Hash each number to one of ``ROWS`` ids, as int32."""
    return ((numbers * 31 + 7) % ROWS).int()


@hash_ids.register_fake
def promise_wide(numbers: Tensor) -> Tensor:
    """Promise the dtype of the numbers, int64: the lie."""
    return torch.empty_like(numbers)


@torch.library.custom_op("planted::hide_rare", mutates_args=())
def hide_rare(ids: Tensor) -> Tensor:
    """Make every id beyond 40 a 1, in the dtype that it has."""
    return ids.masked_fill(ids > 40, 1)


@hide_rare.register_fake
def promise_the_same(ids: Tensor) -> Tensor:
    """Promise shape and dtype of the ids, which is true."""
    return torch.empty_like(ids)
