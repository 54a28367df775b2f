"""Run the input program in eager, and get its description from the worker."""

from __future__ import annotations

import json
import signal
from collections.abc import Collection
from dataclasses import dataclass

from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import LoadError
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.program.display_text import first_line
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.descriptions import Description
from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.protocol.tasks import Describe
from shrinkfx.report.caveats import OtherCauses, merge_mismatch_lines
from shrinkfx.run.context import RunContext
from shrinkfx.wording import Flag, MessagePart, MessageText


@dataclass(frozen=True)
class Described:
    """The input program after its run in eager: its graph and its description."""

    skeleton: Skeleton
    description: Description

    @property
    def eager_error(self) -> str:
        """The error that eager raises, in one line, or ''."""
        return (
            first_line(self.description.eager_error)
            if self.description.eager_error
            else ""
        )

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
