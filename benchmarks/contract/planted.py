"""Let the lowering of one operator raise, the one that ``PLANTED`` names."""

import os

import torch
from torch._inductor.lowering import lowerings

OPERATOR = getattr(torch.ops.aten, os.environ["PLANTED"]).default


def refuse(*args: object, **kwargs: object) -> None:
    """Raise in the place of the lowering."""
    raise NotImplementedError(f"planted: no lowering of {OPERATOR}")


lowerings[OPERATOR] = refuse
