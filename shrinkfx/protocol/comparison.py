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
        help="how far a value may be from eager's, relative to that (default: that of "
        "`torch.testing` for its dtype)",
        more="What differs is also beyond what rounding does to eager's own. "
        "`repro.py` compares likewise",
        check=from_zero_on,
    )
    atol: float | None = option(
        None, metavar="A", help="the same, absolutely", check=from_zero_on
    )
    strict: bool = option(
        False, help="strides must be eager's as well, of dims larger than 1"
    )
