"""Find fake-kernel mismatches in the reduced program.

One eager run checks its custom operators at the sizes of the reduced program, without
compiling. Findings of the input program are used for operators that this run does not
report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.operators import list_operators
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.operator_mismatch import OperatorMismatch
from shrinkfx.findings.operators import Operator
from shrinkfx.protocol.operators import (
    VALUE_DEPENDENCIES,
    FakeMismatch,
    Misbehavior,
    OperatorFinding,
)
from shrinkfx.protocol.tasks import ExamineCandidate
from shrinkfx.system import scratch

SECONDS = 10.0
"""Time limit of the eager run."""

_BLAMED = {Misbehavior.FAKE, Misbehavior.FIXES, *VALUE_DEPENDENCIES}


def find_reduced_mismatches(
    reduced: ReducedProgram, in_original: Mapping[str, FakeMismatch]
) -> tuple[OperatorMismatch, ...]:
    """Return the fake-kernel mismatches of the reduced program, in operator order.

    Args:
        in_original: mismatches in the input program, by operator node.

    Returns:
        Nothing for a failure in compilation, because no result exists then.
    """
    if reduced.target.stage is Stage.COMPILE:
        return ()
    operators = list_operators(reduced.candidate)
    findings = _examined(reduced) if any(one.is_custom for one in operators) else ()
    return tuple(_find_in_operators(operators, findings, in_original))


def _find_in_operators(
    operators: tuple[Operator, ...],
    findings: tuple[OperatorFinding, ...],
    in_original: Mapping[str, FakeMismatch],
) -> Iterator[OperatorMismatch]:
    for operator in operators:
        matching = [one for one in findings if one.operator == operator.operator]
        # Nodes of a re-exported program may have other names.
        by_node = [one for one in matching if one.node == operator.name] or matching
        if by_node:
            one = by_node[0]
            place = "" if one.place is None else f"[{one.place}]"
            was = one.declared, one.made
            facts = one.behavior_text, one.fake_kernel, False, place, *was
            yield OperatorMismatch(operator, *facts, what=one.what)
        elif operator.name in in_original:
            mismatch = in_original[operator.name]
            result = f" (result {mismatch.place})" if mismatch.place else ""
            text = f"{mismatch.difference_text}{result}"
            was = mismatch.declared, mismatch.made
            yield OperatorMismatch(operator, text, "", True, mismatch.place, *was)


def _examined(reduced: ReducedProgram) -> tuple[OperatorFinding, ...]:
    share = reduced.budget.share()
    if share < SECONDS:
        return ()
    client = reduced.client.with_clock_limit(share)
    with scratch.make_scratch_folder("operators") as folder:
        path = Path(folder) / "findings"
        candidate = reduced.candidate.to_json()
        with contextlib.suppress(BudgetExhausted):
            client.ask(ExamineCandidate(candidate, str(path.resolve()), SECONDS))
        rows = path.read_text().splitlines() if path.exists() else []
    found = [OperatorFinding.from_line(row) for row in rows if row.endswith("}")]
    return tuple(one for one in found if one.what in _BLAMED)
