"""Ask a failing program which of its operators the failure comes from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.oracle import RUNS_PER_CHILD, CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.blame import Evidence, suspects
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Checked, Ending
from shrinkfx.protocol.tasks import CheckCandidate

_PRINTER = {"aot_inductor.debug_intermediate_value_printer": "3"}
"""Prints each launch before and after, and no value."""

_COPIES = 8
"""What a value takes that is returned: compiled, eager twice, and in float64."""


def interrogate(
    client: CheckClient,
    whole: Candidate,
    target: Signature,
    known: Evidence,
    note: Callable[[str], None],
    seconds: float = 0.0,
    budget: Allowance = UNLIMITED,
) -> Evidence:
    """Compile once more where what is known names no operator, thrice at most.

    A wrong result is traced to the first wrong value, a death without a word to the
    kernel that was running.

    Args:
        seconds: what it takes to compile it.
        budget: where it is short, the search begins without knowing more.
    """
    again = _Again(whole, note, seconds, budget)
    if target.stage is Stage.COMPARE:
        return _with_values(again, client, target, known)
    has_names = bool(suspects(known, whole.skeleton, target))
    if has_names or target.stage is not Stage.RUN or client.options.probe:
        return known
    printing = {**client.options.inductor, **_PRINTER}
    said = "running it once more, with each kernel launch printed"
    ending = again.run(said, client.with_options(inductor=printing))
    shows = ending is not None and target.admits(observe(ending).signature)
    return replace(known, printed=ending.log) if ending and shows else known


@dataclass(frozen=True)
class _Again:
    """Compiles and runs the failing program again, as long as there is time to."""

    whole: Candidate
    note: Callable[[str], None]
    seconds: float
    budget: Allowance

    def run(self, what: str, client: CheckClient) -> Ending | None:
        """Run it; a flaky one until it fails, or as often as a child may."""
        share = self.budget.share()
        if self.seconds > share:
            self.note(f"localizing: not enough time left, skipped {what}")
            return None
        self.note(f"localizing: {what}")
        often = client.with_options(runs=RUNS_PER_CHILD)
        whole = CheckCandidate(self.whole.to_json())
        with contextlib.suppress(BudgetExhausted):
            return often.within(share).ask(whole)
        return None


def _with_values(
    again: _Again, client: CheckClient, target: Signature, known: Evidence
) -> Evidence:
    """Have it return all that it computes, and see what differs from eager's.

    Returned values are not fused away, which may hide the failure; then fewer are.
    """
    skeleton = again.whole.skeleton
    values = [v for name in skeleton.operators for v in skeleton.values(name)]
    for taps in _rows(values):
        size = sum(skeleton.node(value).nbytes for value in taps)
        if size * _COPIES > client.limits.max_rss_bytes:
            continue
        said = f"comparing {len(taps)} intermediate values with eager"
        ending = again.run(said, client.with_options(taps=tuple(taps)))
        if ending is None:
            break
        answer = ending.answer
        differing = answer.differing if isinstance(answer, Checked) else ()
        if differing and target.admits(observe(ending).signature):
            seen = dict.fromkeys([*taps, *skeleton.outputs])
            agreeing = tuple(v for v in seen if v not in differing)
            return replace(known, differing=differing, agreeing=agreeing)
    return known


def _rows(values: list[str]) -> Iterator[list[str]]:
    """List what to return: all, then one of several, then those half-way between.

    Where few values hide the failure, one of them is amid the operators at fault.
    Those are few, so the other row hardly meets them.
    """
    yield values
    step = math.isqrt(len(values))
    if step > 1:
        yield values[::step]
        yield values[step // 2 :: step]
