"""Check whether the inputs of a failing operator are already wrong.

    floor -> matmul -> embedding       floor -> matmul
                       fails                    is wrong

The failing operator is removed, and its inputs are returned instead. The program then
completes, and the kernel at fault is found as for any wrong result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.explain.operators import find_dependencies, find_last_operators
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.explain.values import values
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.listing.calls import cut_before
from shrinkfx.protocol.choices import CandidateForm, Probe
from shrinkfx.report.explanation.values import WrongValue

_KINDS = {Kind.ASSERT, Kind.IMA, Kind.CRASH, Kind.EXCEPTION}

_WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)


def find_wrong_input(
    reduced: ReducedProgram, failed: Collection[str]
) -> WrongValue | None:
    """Look for a wrong value among the inputs of operators that fail.

    This compiles the program before them, and once more if a value is wrong.

    Args:
        failed: names of the failing operators, or of a failing kernel's operators. The
            last of them are removed; if it is empty, the last operators of the program.

    Returns:
        None if no wrong value was found, or if the failure is of another kind.
    """
    target, options = reduced.target, reduced.client.options
    if target.stage is not Stage.RUN or target.kind not in _KINDS:
        return None
    if not options.reference or options.probe not in (None, Probe.REAL):
        return None
    last = find_last_operators(reduced.candidate, failed or reduced.candidate.operators)
    before = _before(reduced.candidate, [one.name for one in last])
    if before is None:
        return None
    # It usually passes, and a second run of the source form would not add to that.
    client = reduced.client.with_options(form=CandidateForm.PROGRAM)
    query = replace(reduced, client=client, candidate=before, target=_WRONG)
    found = values(query)
    if found is None or found.wrong is None or found.tiny:
        return None
    return replace(found, without=last)


def _before(candidate: Candidate, failed: Collection[str]) -> Candidate | None:
    """Return the program before some operators; None if it has no operators."""
    try:
        if candidate.listing is not None:
            return candidate.with_listing(cut_before(candidate.listing, failed))
        needed = find_dependencies(candidate, failed).difference(failed)
        cut = replace(candidate, keep=frozenset(needed))
        return cut.returning(Outputs.SINKS)
    except InvalidEdit:
        return None
