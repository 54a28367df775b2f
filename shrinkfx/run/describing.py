"""What the worker says of a program, before anything is compiled."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import LoadError
from shrinkfx.failure.classify import first_line
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.tasks import Describe
from shrinkfx.run.context import Job


@dataclass(frozen=True)
class Described:
    """What the worker says of the program after its run in eager.

    Attributes:
        liars: operators that yield something else than their fake kernels say.
        stopped: the operator at which eager fails, or ''.
        custom: its operators that are not PyTorch's own.
    """

    skeleton: Skeleton
    inputs: int
    dynamic_dims: int
    keeps_state: bool
    liars: tuple[str, ...]
    stopped: str
    custom: tuple[str, ...] = ()


def describe_program(job: Job, compiler: Compiler) -> tuple[Compiler, Described]:
    """Run the original in eager and fetch its graph.

    Raises:
        LoadError: eager could not be run far enough to tell.
    """
    ending = compiler.ask(Describe())
    answer: Mapping[str, Any] = ending.answer
    if "skeleton" not in answer:
        subject = job.options.inputs or job.options.model
        raise LoadError(str(subject), *_why_undescribed(ending))
    with open(answer["skeleton"], encoding="utf-8") as file:
        skeleton = Skeleton.from_json(json.load(file))
    for lie in answer["lies"]:
        if lie not in job.lies:  # of another form of the program
            job.note(f"lying operator: {lie}")
    job.lies[:] = answer["lies"]
    if eager_error := answer["eager_error"]:
        line = first_line(eager_error)
        job.note(f"eager fails too ({line}): going on without comparing")
        job.warnings[:] = [f"eager fails on the original too: {line}"]
        compiler = compiler.with_options(reference=False)
    sizes = (answer["inputs"], answer["dynamic_dims"])
    state, liars = answer["keeps_state"], tuple(answer["liars"])
    others = answer["stopped"], tuple(answer.get("custom", ()))
    return compiler, Described(skeleton, *sizes, state, liars, *others)


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
