"""Register ``planted::row_mean``, whose result has other strides than promised."""

import torch
from torch import Tensor


@torch.library.custom_op("planted::row_mean", mutates_args=())
def row_mean(features: Tensor) -> Tensor:
    """Give each element of ``(rows, features)`` its row's mean, held once a row."""
    return features.mean(1, keepdim=True).expand_as(features)


@row_mean.register_fake
def promise_dense(features: Tensor) -> Tensor:
    """Promise as much memory as there are elements: the lie."""
    return features.new_empty(features.shape)
