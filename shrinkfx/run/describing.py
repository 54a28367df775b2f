"""What the worker says of a program, before anything is compiled."""

from __future__ import annotations

import json
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import LoadError
from shrinkfx.failure.classify import first_line
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.tasks import Describe
from shrinkfx.report.record import OtherCauses
from shrinkfx.run.context import Job


@dataclass(frozen=True)
class Described:
    """What the worker says of the program after its run in eager.

    Attributes:
        liars: operators that yield something else than their fake kernels say.
        stopped: the operator at which eager fails, or ''.
        custom: its operators that are not PyTorch's own.
        mismatches: in which way the results of ``liars`` are others, in words.
        eager_error: what eager raises, in a line, or ''.
    """

    skeleton: Skeleton
    inputs: int
    dynamic_dims: int
    keeps_state: bool
    liars: tuple[str, ...]
    stopped: str
    custom: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    eager_error: str = ""

    @property
    def other_causes(self) -> OtherCauses:
        """What a run in eager says of other causes of the failure."""
        fails = f"eager fails on the original too: {self.eager_error}"
        warnings = (fails,) if self.eager_error else ()
        return OtherCauses(self.mismatches, warnings=warnings)


def describe_program(
    job: Job, compiler: Compiler, told: Collection[str] = ()
) -> tuple[Compiler, Described]:
    """Run the original in eager and fetch its graph.

    Args:
        told: mismatches that the user knows of, since another form has them.

    Raises:
        LoadError: eager could not be run far enough to tell.
    """
    ending = compiler.ask(Describe())
    answer: Mapping[str, Any] = ending.answer
    if "skeleton" not in answer:
        subject = job.options.inputs or job.options.model
        raise LoadError(str(subject), *_why_undescribed(ending))
    described = _read(answer)
    for mismatch in described.mismatches:
        if mismatch not in told:
            job.note(f"lying operator: {mismatch}")
    if line := described.eager_error:
        job.note(f"eager fails too ({line}): going on without comparing")
        compiler = compiler.with_options(reference=False)
    return compiler, described


def _read(answer: Mapping[str, Any]) -> Described:
    with open(answer["skeleton"], encoding="utf-8") as file:
        skeleton = Skeleton.from_json(json.load(file))
    error = answer["eager_error"]
    return Described(
        skeleton,
        inputs=answer["inputs"],
        dynamic_dims=answer["dynamic_dims"],
        keeps_state=answer["keeps_state"],
        liars=tuple(answer["liars"]),
        stopped=answer["stopped"],
        custom=tuple(answer.get("custom", ())),
        mismatches=tuple(answer["lies"]),
        eager_error=first_line(error) if error else "",
    )


def _why_undescribed(ending: Ending) -> tuple[str, str]:
    """Say why there is no graph, and what to look at."""
    error = ending.answer.get("error")
    if error and error["type"] == LoadError.__name__:
        return str(error["message"]).partition(": ")[2], ""
    if error:
        reason = f"eager could not be run ({first_line(error['message'])})"
        return reason, "do the inputs fit the program's signature and ranges?"
    place = f" in {ending.operator}" if ending.operator else ""
    if ending.how != "signal":
        reason = f"eager ended with {ending.how} {ending.code}{place}"
        return reason, f"its last lines:\n{ending.log[-1500:]}"
    name = signal.Signals(ending.code).name
    reason = f"eager died of {name}{place}, before anything was compiled"
    frames = "\n  ".join(frames_of_death(ending.log))
    where = f"its innermost frames:\n  {frames}\n" if frames else ""
    return reason, f"{where}does it run without shrinkfx, in eager?"
