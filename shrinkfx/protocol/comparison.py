"""Options of a user's that each check of a worker sees.

A field here is one of ``Options`` and of ``CheckOptions``: nothing between has to hand
it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.flags import from_zero_on, option


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """What may differ from eager's results and is no failure."""

    rtol: float | None = option(
        None,
        metavar="R",
        help="relative tolerance for comparing values with eager (default: that of "
        "`torch.testing` for the dtype)",
        more="A difference counts only if it also exceeds eager's own rounding "
        "error. `repro.py` uses the same comparison",
        check=from_zero_on,
    )
    atol: float | None = option(
        None,
        metavar="A",
        help="absolute tolerance for comparing values with eager",
        check=from_zero_on,
    )
    strict: bool = option(
        False, help="also require the same strides as in eager, for dims larger than 1"
    )
