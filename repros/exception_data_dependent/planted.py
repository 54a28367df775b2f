"""Make Inductor call ``linalg.cholesky_ex`` with ``check_errors=True``.

A matrix that is not positive definite raises then; eager says so in ``info``.
Importing this twice is harmless; eager never sees it.
"""

import torch
from torch._inductor import ir
from torch._inductor.lowering import fallback_handler, lowerings

CHOLESKY = torch.ops.aten.linalg_cholesky_ex.default

call = fallback_handler(CHOLESKY, add_to_fallback_set=False)


def lower_cholesky(x: ir.TensorBox, **_: bool) -> object:
    """Call the operator and have it raise."""
    return call(x, upper=False, check_errors=True)


lowerings[CHOLESKY] = lower_cholesky
