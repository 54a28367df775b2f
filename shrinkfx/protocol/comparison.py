"""User options that every check in a worker needs.

``Options`` and ``CheckOptions`` both inherit these fields, so no layer between them has
to pass them on.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.flags import option, require_not_negative


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """Differences from eager's results that do not count as failures."""

    rtol: float | None = option(
        None,
        metavar="R",
        help="relative tolerance for comparing values with eager (default: that of "
        "`torch.testing` for the dtype)",
        more="A difference counts only if it also exceeds eager's own rounding "
        "error. `repro.py` uses the same comparison",
        check=require_not_negative,
    )
    atol: float | None = option(
        None,
        metavar="A",
        help="absolute tolerance for comparing values with eager",
        check=require_not_negative,
    )
    strict: bool = option(
        False, help="also require the same strides as in eager, for dims larger than 1"
    )
