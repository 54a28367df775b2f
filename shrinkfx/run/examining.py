"""Custom operators, examined before anything is compiled."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.program.words import first_line, printable
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.descriptions import Examined
from shrinkfx.protocol.operators import FakeMismatch, OperatorFinding, What
from shrinkfx.protocol.tasks import Examine
from shrinkfx.report.warned import of_examined
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described

SECONDS = 10.0
"""What the runs in eager may take together; a few of them, of most programs."""

_HANG_FACTOR = 3.0
"""A factor on that, within which one that hangs is ended."""

_CLOCK = 10.0
"""A factor on it by the clock, which a busy machine may make of it."""


def examine_operators(
    context: RunContext, client: CheckClient, described: Described
) -> tuple[OperatorFinding, ...]:
    """See whether custom operators do what they declare, and warn where they don't.

    It is done in a process of its own: at other sizes than the program's an operator
    may crash, or hang.

    Returns:
        What was found and is news, which the user has been told.
    """
    if not described.said.custom or described.said.stopped:
        return ()
    if context.budget.share() < SECONDS:
        context.note("not enough time left: skipping the tests of custom operators")
        return ()
    limits = Limits(SECONDS * _HANG_FACTOR, client.limits.max_rss_bytes)
    most_s = min(context.budget.share(), _CLOCK * SECONDS)
    bounded = client.with_limits(limits, client.meter).within(most_s)
    with scratch.folder("operators") as folder:
        path = Path(folder).resolve() / "findings"
        ending = bounded.ask(Examine(str(path), SECONDS))
        found = _worth_telling(_read(path), described.said.mismatches)
    found += [died] if (died := _how_it_died(ending)) else []
    for each in found:
        context.note(of_examined(each))
    if why := _cut_short(ending):
        context.note(f"custom operators: only partly tested, {why}")
    return tuple(found)


def _worth_telling(
    found: Sequence[OperatorFinding], mismatches: Sequence[FakeMismatch]
) -> list[OperatorFinding]:
    """Leave out what has been said of an operator in other words.

    Why a fake kernel is wrong says that it is; and of one whose results were others in
    the run that was described, it has been said. What fills its result in part gives
    other values each time.
    """
    told = {lie.operator for lie in mismatches}
    told |= {each.operator for each in found if each.what is What.FIXES}
    unfilled = {each.operator for each in found if each.what is What.UNFILLED}
    known = {What.FAKE: told, What.UNSTEADY: unfilled}
    return [f for f in found if f.operator not in known.get(f.what, ())]


def _cut_short(ending: Ending) -> str:
    """Say why not all was seen that was to be, where that is no finding."""
    said = ending.answer
    over = isinstance(said, Examined) and said.over
    if ending.how in ("timeout", "late") or over:
        return f"for {SECONDS:.0f} s"
    if error := ending.raised:
        return f"up to {error.type}: {first_line(error.message)}"
    if ending.how == "signal" and not ending.operator:
        return f"up to {signal.Signals(ending.code).name} in another operator"
    return "up to the memory limit" if ending.how == "memory" else ""


def _read(path: Path) -> list[OperatorFinding]:
    """Read the findings, as far as they were written."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [OperatorFinding.from_line(line) for line in lines if line.endswith("}")]


def _how_it_died(ending: Ending) -> OperatorFinding | None:
    if ending.how != "signal" or not ending.operator:
        return None
    target, node, call = printable(ending.operator).split(" ", 2)
    name = signal.Signals(ending.code).name
    return OperatorFinding(target, What.DIES, node.strip("()"), call, error=name)
