"""Find fake-kernel mismatches in the reduced program.

One eager run checks its custom operators at the sizes of the reduced program, without
compiling. Findings of the input program are used for operators that this run does not
report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.minimum import Minimum
from shrinkfx.explain.operators import operators_left
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.operators import (
    OF_VALUES,
    FakeMismatch,
    OperatorFinding,
    What,
)
from shrinkfx.protocol.tasks import ExamineCandidate
from shrinkfx.report.explanation.lies import Lie
from shrinkfx.report.explanation.operators import Operator

SECONDS = 10.0
"""Time limit of the eager run."""

_BLAMED = {What.FAKE, What.FIXES, *OF_VALUES}


def lying(minimum: Minimum, in_original: Mapping[str, FakeMismatch]) -> tuple[Lie, ...]:
    """Return the fake-kernel mismatches of the reduced program, in operator order.

    Args:
        in_original: mismatches in the input program, by operator node.

    Returns:
        Nothing for a failure in compilation, because no result exists then.
    """
    if minimum.target.stage is Stage.COMPILE:
        return ()
    left = operators_left(minimum.candidate)
    found = _examined(minimum) if any(one.is_custom for one in left) else ()
    return tuple(_lies(left, found, in_original))


def _lies(
    left: tuple[Operator, ...],
    found: tuple[OperatorFinding, ...],
    in_original: Mapping[str, FakeMismatch],
) -> Iterator[Lie]:
    for operator in left:
        of_it = [one for one in found if one.operator == operator.operator]
        # Nodes of a re-exported program may have other names.
        by_node = [one for one in of_it if one.node == operator.name] or of_it
        if by_node:
            one = by_node[0]
            place = "" if one.place is None else f"[{one.place}]"
            was = one.declared, one.made
            facts = one.said, one.fake_kernel, False, place, *was
            yield Lie(operator, *facts, what=one.what)
        elif operator.name in in_original:
            lie = in_original[operator.name]
            said = f"{lie.said} (result {lie.place})" if lie.place else lie.said
            was = lie.declared, lie.made
            yield Lie(operator, said, "", True, lie.place, *was)


def _examined(minimum: Minimum) -> tuple[OperatorFinding, ...]:
    share = minimum.budget.share()
    if share < SECONDS:
        return ()
    client = minimum.client.within(share)
    with scratch.folder("operators") as folder:
        path = Path(folder) / "findings"
        candidate = minimum.candidate.to_json()
        with contextlib.suppress(BudgetExhausted):
            client.ask(ExamineCandidate(candidate, str(path.resolve()), SECONDS))
        rows = path.read_text().splitlines() if path.exists() else []
    found = [OperatorFinding.from_line(row) for row in rows if row.endswith("}")]
    return tuple(one for one in found if one.what in _BLAMED)
