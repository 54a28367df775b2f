"""Run the input program in eager, and get its description from the worker.

Test its custom operators before anything is compiled.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import LoadError
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.program.display_text import first_line, printable
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.descriptions import Description, Examined
from shrinkfx.protocol.operators import FakeMismatch, Misbehavior, OperatorFinding
from shrinkfx.protocol.tasks import Describe, Examine
from shrinkfx.report.caveats import OtherCauses, format_finding, merge_mismatch_lines
from shrinkfx.run.context import RunContext
from shrinkfx.system import scratch
from shrinkfx.wording import Flag, MessagePart, MessageText


@dataclass(frozen=True)
class Described:
    """The input program after its run in eager: its graph and its description."""

    skeleton: Skeleton
    description: Description

    @property
    def eager_error(self) -> str:
        """The error that eager raises, in one line, or ''."""
        return first_line(self.description.eager_error)

    @property
    def other_causes(self) -> OtherCauses:
        """Other possible causes of the failure, which the run in eager has shown."""
        warnings = (f"{_EAGER_FAILS}{self.eager_error}",) if self.eager_error else ()
        return OtherCauses(self.description.mismatches, warnings=warnings)


_EAGER_FAILS = "eager also fails on the input program: "


def is_eager_warning(warning: str) -> bool:
    """Return whether a warning says that eager fails; each graph form has its own."""
    return warning.startswith(_EAGER_FAILS)


def describe_program(
    context: RunContext, client: CheckClient, shown: Collection[FakeMismatch] = ()
) -> tuple[CheckClient, Described]:
    """Run the input program in eager, and return its description.

    Args:
        shown: fake-kernel mismatches that were already shown for another graph form.

    Returns:
        The client, without a reference result if eager fails, and the description.

    Raises:
        LoadError: eager did not get far enough to describe the program.
    """
    ending = client.ask(Describe())
    description = ending.answer
    if not isinstance(description, Description):
        path = context.options.inputs or context.options.model
        why = _why_undescribed(ending, client.limits.timeout_s)
        raise LoadError(str(path), *why)
    with open(description.skeleton, encoding="utf-8") as file:
        described = Described(Skeleton.from_json(json.load(file)), description)
    for line in merge_mismatch_lines(
        each for each in description.mismatches if each not in shown
    ):
        context.note(line)
    if line := described.eager_error:
        context.note(f"eager also fails ({line}): continuing without comparing results")
        client = client.with_options(reference=False)
    return client, described


def _why_undescribed(ending: Ending, timeout_s: float) -> tuple[str, MessagePart]:
    """Return the reason why there is no description, and advice."""
    error = ending.raised
    if error and error.type == LoadError.__name__:
        return error.message.partition(": ")[2], ""
    if error:
        reason = f"eager could not be run ({first_line(error.message)})"
        return reason, "check that the inputs fit the program's signature and ranges"
    place = f" in {ending.operator}" if ending.operator else ""
    if ending.how not in ("signal", "timeout"):
        reason = f"eager ended with {ending.how} {ending.code}{place}"
        return reason, f"its last lines:\n{ending.log[-1500:]}"
    frames = "\n  ".join(frames_of_death(ending.log))
    where = f"its innermost frames:\n  {frames}\n" if frames else ""
    if ending.how == "timeout":
        event = f"eager did not end in {timeout_s:.0f} s"
        verb = "hangs"
        longer = Flag("--timeout", stands="SECONDS")
        hint = MessageText("if it is only slow: ", longer)
    else:
        event = f"eager died of {signal.Signals(ending.code).name}"
        verb, hint = (
            "dies",
            MessageText("check that the script runs without AOTInductor"),
        )
    message = _NOT_COMPILED.format(does=verb, what=ending.operator or "the program")
    advice = MessageText(f"{where}{message}; ", hint)
    return f"{event}{place}, before anything was compiled", advice


_NOT_COMPILED = (
    "the program {does} without AOTInductor, too, so there is nothing to reduce: fix "
    "{what} or its inputs"
)


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
        findings = _list_reportable(_read(path), described.description.mismatches)
    findings += [died] if (died := _how_it_died(ending)) else []
    for each in findings:
        context.note(format_finding(each))
    if why := _cut_short(ending):
        context.note(f"custom operators: only partly tested, {why}")
    return tuple(findings)


def _list_reportable(
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
