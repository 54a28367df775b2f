"""Register ``planted::standardise``, which writes into its argument undeclared."""

import torch
from torch import Tensor


@torch.library.custom_op("planted::standardise", mutates_args=())
def standardise(hidden: Tensor) -> Tensor:
    """Give each row of ``(rows, width)`` mean 0 and variance 1, in place: the lie."""
    hidden.sub_(hidden.mean(1, keepdim=True))
    return hidden.div_(hidden.std(1, keepdim=True)).clone()


@standardise.register_fake
def promise(hidden: Tensor) -> Tensor:
    """Promise what is true of the result."""
    return torch.empty_like(hidden)
