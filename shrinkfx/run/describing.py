"""What the worker says of a program, before anything is compiled."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass

from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import LoadError
from shrinkfx.failure.classify import first_line
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Description, Ending
from shrinkfx.protocol.tasks import Describe
from shrinkfx.run.context import Job


@dataclass(frozen=True)
class Described:
    """The program after its run in eager: its graph, and what was said of it."""

    skeleton: Skeleton
    said: Description


def describe_program(job: Job, compiler: Compiler) -> tuple[Compiler, Described]:
    """Run the original in eager and fetch its graph.

    Raises:
        LoadError: eager could not be run far enough to tell.
    """
    ending = compiler.ask(Describe())
    said = ending.answer
    if not isinstance(said, Description):
        subject = job.options.inputs or job.options.model
        raise LoadError(str(subject), *_why_undescribed(ending))
    with open(said.skeleton, encoding="utf-8") as file:
        skeleton = Skeleton.from_json(json.load(file))
    for lie in said.lies:
        if lie not in job.lies:  # of another form of the program
            job.note(f"lying operator: {lie}")
    job.lies[:] = said.lies
    if said.eager_error:
        line = first_line(said.eager_error)
        job.note(f"eager fails too ({line}): going on without comparing")
        job.warnings[:] = [f"eager fails on the original too: {line}"]
        compiler = compiler.with_options(reference=False)
    return compiler, Described(skeleton, said)


def _why_undescribed(ending: Ending) -> tuple[str, str]:
    """Say why there is no graph, and what to look at."""
    error = ending.raised
    if error and error.type == LoadError.__name__:
        return error.message.partition(": ")[2], ""
    if error:
        reason = f"eager could not be run ({first_line(error.message)})"
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
