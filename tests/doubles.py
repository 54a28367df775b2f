"""What several folders of tests put in the place of the real thing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from shrinkfx.errors import BudgetExhausted
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Description, Ending, Printed, Unresolved
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.source import Expression, Input, Source
from shrinkfx.protocol.tasks import CheckOriginal, Task

Arguments = Mapping[str, Any]


def asked_of(request: Request) -> Arguments:
    """Gather a request's task and those of its options that are no defaults."""
    usual = asdict(CheckOptions())
    options = asdict(request.options)
    chosen = {name: v for name, v in options.items() if v != usual[name]}
    return {**chosen, **asdict(request.task)}


def request_of(
    vice: str,
    *,
    task: Task = CheckOriginal(),  # noqa: B008 - frozen
    timeout_s: float = 60.0,
    **arguments: Any,
) -> Request:
    """Ask for one of ``check/vices.py``, whatever the task.

    It is named where settings of Inductor would be.
    """
    options = CheckOptions(inductor={"vice": vice, **arguments})
    return Request(task, options, timeout_s=timeout_s)


class FakeServer:
    """Answers as it is told; keeps what it was asked."""

    def __init__(self, answer: Callable[[Arguments], Ending]) -> None:
        self._answer = answer
        self.asked: list[Arguments] = []

    def ask(self, request: Request) -> Ending:
        asked = asked_of(request)
        self.asked.append(asked)
        return self._answer(asked)


class Minutes:
    """A budget whose time is what a server's answers have taken.

    Attributes:
        left: seconds, what is kept for the repro included.
        kept: what a check of the program was said to take.
    """

    def __init__(self, left: float = math.inf) -> None:
        self.left = left
        self.kept = 0.0

    def has(self, seconds: float) -> bool:
        return self.left - 2 * self.kept >= seconds

    def share(self) -> float:
        return max(0.0, self.left - 2 * self.kept) / 4

    def keep(self, check_s: float) -> None:
        self.kept = max(self.kept, check_s)


class TimedServer:
    """Answers with one ending after the other, the last one for ever.

    Takes ``compile_s`` for what it compiles, ``run_s`` for a run of that and
    ``guarded_s`` for one with guard pages, and as ``LastingServer`` ends a check that
    goes beyond its limit by the clock, or beyond the minutes.
    """

    def __init__(
        self,
        *endings: Ending,
        compile_s: float,
        run_s: float,
        minutes: Minutes | None = None,
        then: Iterable[Ending] = (),
    ) -> None:
        self._endings = itertools.chain(endings, then, itertools.repeat(endings[-1]))
        self.compile_s, self.run_s = compile_s, run_s
        self.guarded_s: float | None = None
        self.minutes = minutes or Minutes()
        self.seconds = 0.0
        self.asked: list[Request] = []
        self._packages: set[object] = set()

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        package = request.options.package
        is_compiled = package in self._packages
        self._packages |= {package} if package else set()
        seconds = self.run_s if is_compiled else self.compile_s
        if self.guarded_s is not None and request.options.guard_pages is not Guard.OFF:
            seconds = self.guarded_s
        limit = math.inf if request.clock_s is None else request.clock_s
        if min(seconds, limit) > self.minutes.left:
            self.minutes.left = 0.0
            raise BudgetExhausted("the minutes are spent")
        self.minutes.left -= min(seconds, limit)
        self.seconds += min(seconds, limit)
        if seconds > limit:
            return Ending("late", stage="run", seconds=limit)
        return replace(next(self._endings), seconds=seconds)


DESCRIPTION = Description(
    skeleton="skeleton.json",
    eager_error="",
    stopped="",
    lies=(),
    liars=(),
    custom=(),
    inputs=1,
    dynamic_dims=0,
    keeps_state=False,
)
"""What a worker says of a program of one input that runs in eager."""

SOURCE = Source(
    weights=(),
    inputs=(Input("x", Expression("torch.randn(9)", ""), None),),
    branches=(),
    members={},
    body=("y = torch.ops.aten.relu.default(x)", "return (y,)"),
    dims=(),
    dynamic_shapes="None",
)
"""A printed program of one operator."""

PRINTED = Printed(
    source=SOURCE,
    unprintable="",
    two_sets=False,
    passes=False,
    limits=(),
    operators=1,
    nodes=3,
    inputs=1,
    dynamic_dims=0,
    random=False,
    mutates=False,
    targets=(),
)
"""What a worker says when it has printed that."""


def written(asked: Arguments, candidate: Candidate) -> Ending:
    """Print a program that tells in a line which one it is."""
    Path(asked["path"]).write_text(json.dumps(candidate.to_json()))
    Path(asked["data"]).write_bytes(b"values")
    body = f"candidate = {json.dumps(candidate.to_json())}", "return (x,)"
    operators = candidate.cost[0]
    printed = replace(PRINTED, operators=operators, nodes=operators + 2)
    return Ending("exit", answer=replace(printed, source=replace(SOURCE, body=body)))


def told(ending: Ending) -> Any:
    """Read the answer of a vice that is JSON in the place of a reason."""
    assert isinstance(ending.answer, Unresolved)
    return json.loads(ending.answer.why)
