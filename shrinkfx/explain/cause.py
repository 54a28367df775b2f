"""All that is asked of a minimum about its failure's cause, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.explain.chain import chain
from shrinkfx.explain.compiling import compiling
from shrinkfx.explain.decisions import decisions
from shrinkfx.explain.guide import guide
from shrinkfx.explain.minimum import Minimum
from shrinkfx.explain.operators import operators_left
from shrinkfx.explain.values import values
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.report.explanation.chain import Chain
from shrinkfx.report.explanation.compiling import Halted
from shrinkfx.report.explanation.decisions import lines
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.explanation.values import WrongValue

logger = logging.getLogger(__name__)

Part = TypeVar("Part")

Finding = Chain | WrongValue | Halted
"""What points at operators; of one failure there is one at the most."""

SENTENCES = 3
"""Of a cause, at most."""


@dataclass(frozen=True)
class Shown:
    """What a run has shown of a minimum before it is asked.

    Attributes:
        minimal: no single operator of it can be left out.
        rate: the part of its runs that fail.
        memory: what AddressSanitizer has said of it, or None.
    """

    minimal: bool = False
    rate: float = 1.0
    memory: MemoryReport | None = None


@dataclass
class _Asking:
    """Asks part by part; one that goes wrong ends no other."""

    unknown: list[str] = field(default_factory=list)

    def __call__(self, what: str, ask: Callable[[], Part]) -> Part | None:
        try:
            return ask()
        except (BudgetExhausted, WorkerError) as reason:
            self.unknown.append(f"{what}: {reason}")
        except Exception as error:
            logger.exception("%s", what)
            self.unknown.append(f"{what}: the asking failed: {error!r}")
        return None


def explain(minimum: Minimum, shown: Shown, folder: Path | None = None) -> Explanation:
    """Find out what the failure of a minimum comes from.

    Args:
        folder: set to ask for the compiler's decisions and the guide's flags as well;
            what these leave for a reader goes there.
    """
    asking = _Asking()
    left = operators_left(minimum.candidate)
    found = Explanation(
        operators=left,
        chain=asking("its kernel", lambda: chain(minimum, shown.memory)),
        values=asking("its values", lambda: values(minimum)),
        halted=asking("where it stops", lambda: compiling(minimum)),
    )
    parts = [p for p in (found.chain, found.values, found.halted) if p is not None]
    found = _told(found, next((part for part in parts if part.cause), None), shown)
    if folder is not None:
        found = _with_more(minimum, shown, found, asking, folder)
    unknown = [*asking.unknown, *(text for part in parts for text in part.unknown)]
    if found.decisions is not None:
        unknown += found.decisions.unknown
    return replace(found, unknown=tuple(dict.fromkeys(unknown)))


def _told(found: Explanation, part: Finding | None, shown: Shown) -> Explanation:
    """State the cause as the part does that knows one, or else what the search says."""
    left = found.operators
    if part is not None:
        return replace(found, cause=tuple(part.cause), guilty=tuple(part.guilty))
    guilty = left if len(left) == 1 else ()
    return replace(found, cause=_without_knowing(left, shown.minimal), guilty=guilty)


def _without_knowing(left: tuple[Operator, ...], minimal: bool) -> tuple[str, ...]:
    """Say what the search alone has shown."""
    if len(left) == 1:
        return (f"{left[0]}: it fails alone.",)
    if not minimal:
        return ()
    named = ", ".join(dict.fromkeys(operator.operator for operator in left))
    return (f"It takes all {len(left)} operators that are left: {named}.",)


def _with_more(
    minimum: Minimum,
    shown: Shown,
    found: Explanation,
    asking: _Asking,
    folder: Path,
) -> Explanation:
    """Ask for the compiler's decisions, and what the flags of the guide say."""
    parts = found.chain, found.values, found.halted
    kernels = tuple(part.kernel for part in parts if part is not None and part.kernel)
    decided = asking("decisions", lambda: decisions(minimum, rate=shown.rate))
    guided = asking("the guide", lambda: guide(minimum, kernels, folder))
    cause = found.cause
    if decided is not None:
        cause = (*cause[: SENTENCES - 1], *lines(decided, minimum.target)[:1])
    return replace(found, decisions=decided, guide=guided, cause=cause)
