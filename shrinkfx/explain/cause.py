"""All that is asked of a minimum about its failure's cause, in order."""

from __future__ import annotations

import logging

from shrinkfx.explain.minimum import Minimum
from shrinkfx.explain.operators import operators
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation

logger = logging.getLogger(__name__)


def explain(minimum: Minimum, minimal: bool) -> Explanation:
    """Find out what the failure of a minimum comes from.

    Args:
        minimal: no single operator of it can be left out.
    """
    left = operators(minimum.candidate)
    return Explanation(
        cause=_without_knowing(left, minimal),
        operators=left,
        guilty=left if len(left) == 1 else (),
    )


def _without_knowing(left: tuple[Operator, ...], minimal: bool) -> tuple[str, ...]:
    """Say what the search alone has shown."""
    if len(left) == 1:
        return (f"{left[0]}: it fails alone.",)
    if not minimal:
        return ()
    named = ", ".join(dict.fromkeys(operator.operator for operator in left))
    return (f"It takes all {len(left)} operators that are left: {named}.",)
