"""What an operator that dies was given: is that wrong already?

    floor -> matmul -> embedding       floor -> matmul
                       dies                     is wrong

What dies is left out, and what it was given is returned: so the program comes to its
end, and the kernel that errs is found as that of any wrong result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.explain.minimum import Minimum
from shrinkfx.explain.operators import computed_from, last_among
from shrinkfx.explain.values import values
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.listing.calls import cut_before
from shrinkfx.protocol.choices import CandidateForm, Probe
from shrinkfx.report.explanation.values import WrongValue

_KINDS = {Kind.ASSERT, Kind.IMA, Kind.CRASH, Kind.EXCEPTION}

_WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)


def given(minimum: Minimum, dying: Collection[str]) -> WrongValue | None:
    """Look for a wrong value in what operators that die are given.

    Compiles what they are computed from, and if that is wrong once more.

    Args:
        dying: their names, or those of a kernel that dies: the last of them are left
            out, and where none is known, the last of all.

    Returns:
        None where nothing wrong was found, or where it is no such failure.
    """
    target, options = minimum.target, minimum.client.options
    if target.stage is not Stage.RUN or target.kind not in _KINDS:
        return None
    if not options.reference or options.probe not in (None, Probe.REAL):
        return None
    last = last_among(minimum.candidate, dying or minimum.candidate.operators)
    before = _before(minimum.candidate, [one.name for one in last])
    if before is None:
        return None
    # That it passes is the usual answer, which source would only give once more.
    client = minimum.client.with_options(form=CandidateForm.PROGRAM)
    asked = replace(minimum, client=client, candidate=before, target=_WRONG)
    found = values(asked)
    if found is None or found.wrong is None or found.tiny:
        return None
    return replace(found, without=last)


def _before(candidate: Candidate, dying: Collection[str]) -> Candidate | None:
    """Cut out what operators are computed from; None where nothing is left of that."""
    try:
        if candidate.listing is not None:
            return candidate.listed(cut_before(candidate.listing, dying))
        needed = computed_from(candidate, dying).difference(dying)
        cut = replace(candidate, keep=frozenset(needed))
        return cut.returning(Outputs.SINKS)
    except InvalidEdit:
        return None
