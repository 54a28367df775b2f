"""What several folders of tests put in the place of the real thing."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Listener, ignore_event
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Description, Ending, Printed, Ready, Unresolved
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Request, Task
from shrinkfx.protocol.source import Expression, Input, Source
from shrinkfx.run.context import RunContext

Arguments = Mapping[str, Any]


def asked_of(request: Request) -> Arguments:
    """Gather a request's task and those of its options that are no defaults."""
    usual = asdict(CheckOptions())
    options = asdict(request.options)
    chosen = {name: v for name, v in options.items() if v != usual[name]}
    return {**chosen, **asdict(request.task)}


def candidates_in(script: str) -> list[dict[str, Any]]:
    """Read the candidates that statements of a fake script state, not its comments."""
    rows = (row for row in script.splitlines() if not row.startswith("#"))
    stated = [row.partition("candidate = ")[2] for row in rows]
    return [json.loads(text) for text in stated if text]


def request_of(
    vice: str,
    *,
    task: Task = CheckOriginal(),  # noqa: B008 - frozen
    timeout_s: float = 60.0,
    **arguments: Any,
) -> Request:
    """Ask for one of ``vices.py``, whatever the task.

    It is named where settings of Inductor would be.
    """
    options = CheckOptions(inductor={"vice": vice, **arguments})
    return Request(task, options, timeout_s=timeout_s)


def context_with(
    server: object,
    options: Options,
    folder: Path,
    listener: Listener = ignore_event,
    journal: Journal | None = None,
) -> RunContext:
    """Return the context of a run whose worker is a double."""
    context = RunContext(options, folder, listener, journal)
    context.worker = cast(Server, server)
    return context


Told = Ending | Callable[[Arguments], Ending]
"""An ending, or what makes one of what is asked."""


class FakeServer:
    """Gives one ending after the other, and those of ``then``.

    After all of these it gives the last of the former for ever.

    Attributes:
        asked: every request, in order.
    """

    ready = Ready()

    def __init__(self, *told: Told, then: Iterable[Told] = ()) -> None:
        for_ever = itertools.cycle(told[-1:])
        self._told = itertools.chain(told, then, for_ever)
        self.asked: list[Request] = []

    @property
    def arguments(self) -> list[Arguments]:
        """Name of each request what is no default."""
        return [asked_of(request) for request in self.asked]

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        return self._reply(request)

    def _reply(self, request: Request) -> Ending:
        told = next(self._told)
        return told(asked_of(request)) if callable(told) else told


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


class TimedServer(FakeServer):
    """Takes its time as a real one does.

    It takes ``compile_s`` for what it compiles, ``run_s`` for a run of that and
    ``guarded_s`` for one with guard pages, and as ``LastingServer`` ends a check that
    goes beyond its limit by the clock, or beyond the minutes.
    """

    def __init__(
        self,
        *told: Told,
        compile_s: float,
        run_s: float,
        minutes: Minutes | None = None,
        then: Iterable[Told] = (),
    ) -> None:
        super().__init__(*told, then=then)
        self.compile_s, self.run_s = compile_s, run_s
        self.guarded_s: float | None = None
        self.minutes = minutes or Minutes()
        self.seconds = 0.0
        self._packages: set[object] = set()

    def _reply(self, request: Request) -> Ending:
        package = request.options.package
        is_compiled = package in self._packages
        self._packages |= {package} if package else set()
        seconds = self.run_s if is_compiled else self.compile_s
        if self.guarded_s is not None and request.options.guard_pages is not Guard.OFF:
            seconds = self.guarded_s
        limit = math.inf if request.clock_s is None else request.clock_s
        if min(seconds, limit) > self.minutes.left:
            self.minutes.left = 0.0
            raise BudgetExhausted("time limit reached")
        self.minutes.left -= min(seconds, limit)
        self.seconds += min(seconds, limit)
        if seconds > limit:
            return Ending("late", stage="run", seconds=limit)
        return replace(super()._reply(request), seconds=seconds)


DESCRIPTION = Description(
    skeleton="skeleton.json",
    eager_error="",
    stopped="",
    mismatches=(),
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
