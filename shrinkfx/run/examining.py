"""Test custom operators before anything is compiled."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.program.display_text import first_line, printable
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.descriptions import Examined
from shrinkfx.protocol.operators import FakeMismatch, Misbehavior, OperatorFinding
from shrinkfx.protocol.tasks import Examine
from shrinkfx.report.caveats import format_finding
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described
from shrinkfx.system import scratch

SECONDS = 10.0
"""Seconds that all runs in eager may take together; most programs need a few."""

_HANG_FACTOR = 3.0
"""Factor on ``SECONDS`` after which an operator that hangs is killed."""

_CLOCK = 10.0
"""Factor on ``SECONDS`` for the wall time, which is longer on a busy machine."""


def examine_operators(
    context: RunContext, client: CheckClient, described: Described
) -> tuple[OperatorFinding, ...]:
    """Test whether custom operators do what they declare, and note those that do not.

    The tests run in a process of their own, because an operator may crash or hang at
    sizes other than the program's.

    Returns:
        The new findings, which were shown to the user.
    """
    if not described.description.custom or described.description.stopped:
        return ()
    if context.budget.share() < SECONDS:
        context.note("not enough time left: skipping the tests of custom operators")
        return ()
    limits = Limits(SECONDS * _HANG_FACTOR, client.limits.max_rss_bytes)
    most_s = min(context.budget.share(), _CLOCK * SECONDS)
    bounded = client.with_limits(limits, client.meter).with_clock_limit(most_s)
    with scratch.make_scratch_folder("operators") as folder:
        path = Path(folder).resolve() / "findings"
        ending = bounded.ask(Examine(str(path), SECONDS))
        findings = _worth_telling(_read(path), described.description.mismatches)
    findings += [died] if (died := _how_it_died(ending)) else []
    for each in findings:
        context.note(format_finding(each))
    if why := _cut_short(ending):
        context.note(f"custom operators: only partly tested, {why}")
    return tuple(findings)


def _worth_telling(
    findings: Sequence[OperatorFinding], mismatches: Sequence[FakeMismatch]
) -> list[OperatorFinding]:
    """Remove findings that repeat what is known of an operator.

    A finding about the fault in a fake kernel, or a mismatch in the described run,
    implies that the fake kernel is wrong. An operator that leaves part of its result
    unfilled also returns other values each time.
    """
    faulty = {mismatch.operator for mismatch in mismatches}
    faulty |= {each.operator for each in findings if each.what is Misbehavior.FIXES}
    unfilled = {each.operator for each in findings if each.what is Misbehavior.UNFILLED}
    known = {Misbehavior.FAKE: faulty, Misbehavior.UNSTEADY: unfilled}
    return [f for f in findings if f.operator not in known.get(f.what, ())]


def _cut_short(ending: Ending) -> str:
    """Return why the tests ended early, if that is not a finding; else ''."""
    answer = ending.answer
    over = isinstance(answer, Examined) and answer.over
    if ending.how in ("timeout", "late") or over:
        return f"for {SECONDS:.0f} s"
    if error := ending.raised:
        return f"up to {error.type}: {first_line(error.message)}"
    if ending.how == "signal" and not ending.operator:
        return f"up to {signal.Signals(ending.code).name} in another operator"
    return "up to the memory limit" if ending.how == "memory" else ""


def _read(path: Path) -> list[OperatorFinding]:
    """Return the findings of all complete lines in a file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [OperatorFinding.from_line(line) for line in lines if line.endswith("}")]


def _how_it_died(ending: Ending) -> OperatorFinding | None:
    if ending.how != "signal" or not ending.operator:
        return None
    target, node, call = printable(ending.operator).split(" ", 2)
    name = signal.Signals(ending.code).name
    return OperatorFinding(target, Misbehavior.DIES, node.strip("()"), call, error=name)
