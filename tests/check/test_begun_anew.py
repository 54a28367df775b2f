"""What the next process is asked before a candidate, and how long that may take.

The processes are fakes: each lives until it is asked what it dies of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.doubles import DESCRIPTION

from shrinkfx.check.client.restarting import LIVES, RestartingServer
from shrinkfx.check.client.server import Server
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.protocol.answers import Ending, Raised
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    CheckOriginal,
    Describe,
    Request,
)
from shrinkfx.system import scratch

PLAIN, INLINED = GraphForm.FUNCTIONAL, GraphForm.INLINED_COND
IN_PLACE = GraphForm.IN_PLACE
START = "start"
DESCRIBE, CANDIDATE = Describe.__name__, CheckCandidate.__name__
ORIGINAL = CheckOriginal.__name__


class World:
    """The processes of one server, on a clock of their own.

    Attributes:
        deaths: how often a process dies of each task.
        takes_s: what each task takes, 1 s if it is not here.
        left_s: of the run, or None.
        done: what was done, with the form that it was about.
        clocks: what each of these might take by the clock.
        said: what a description is answered with.
    """

    def __init__(self) -> None:
        self.deaths: dict[str, int] = {}
        self.takes_s: dict[str, float] = {}
        self.left_s: float | None = None
        self.done: list[tuple[str, str]] = []
        self.clocks: list[float] = []
        self.said = [Ending("exit", answer=DESCRIPTION)]
        self.is_alive = False

    def start(self, clock_s: float = math.inf) -> None:
        self.is_alive = True
        self._do(START, "", clock_s)

    def ask(self, request: Request) -> Ending:
        if not self.is_alive:
            raise WorkerError("the worker is closed")
        task = type(request.task).__name__
        in_time = self._do(task, request.options.graph, request.wall_clock_limit_s)
        if not in_time:
            return Ending("late")
        if task != DESCRIBE:
            return Ending("exit", stage="done")
        return self.said.pop() if len(self.said) > 1 else self.said[0]

    def _do(self, task: str, form: str, clock_s: float) -> bool:
        self.done.append((task, form))
        self.clocks.append(clock_s)
        seconds = self.takes_s.get(task, 1.0)
        if self.left_s is not None:
            self.left_s = max(0.0, self.left_s - min(seconds, clock_s))
        if self.deaths.get(task, 0):
            self.deaths[task] -= 1
            self.is_alive = False
            raise WorkerError("the worker died with SIGKILL", killed=True)
        if task == START and seconds > clock_s:
            raise WorkerError("the worker did not answer")
        return seconds <= clock_s

    def close(self) -> None:
        self.is_alive = False


@pytest.fixture(name="world")
def _world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    world = World()
    monkeypatch.setattr(scratch, "root", lambda: tmp_path)
    monkeypatch.setattr(Server, "start", lambda _, *given: world.start(*given))
    monkeypatch.setattr(Server, "ask", lambda _, request: world.ask(request))
    monkeypatch.setattr(Server, "close", lambda _: world.close())
    return world


@pytest.fixture(name="server")
def _server(world: World) -> Iterator[RestartingServer]:
    with RestartingServer(seconds_left=lambda: world.left_s) as server:
        world.done.clear()
        world.clocks.clear()
        yield server


def describe(form: GraphForm) -> Request:
    return Request(Describe(), CheckOptions(graph=form))


def candidate(form: GraphForm) -> Request:
    return Request(CheckCandidate({}), CheckOptions(graph=form))


@pytest.mark.parametrize("form", [PLAIN, INLINED, IN_PLACE])
def test_restarted_worker_describes_the_form_of_the_candidate(
    world: World, server: RestartingServer, form: GraphForm
) -> None:
    """Each was described before, in the order in which a run tries them."""
    for each in (PLAIN, INLINED, IN_PLACE):
        server.ask(describe(each))
    world.done.clear()
    world.deaths[CANDIDATE] = 1
    assert server.ask(candidate(form)).how == "exit"
    again = [(START, ""), (DESCRIBE, form), (CANDIDATE, form)]
    assert world.done == [(CANDIDATE, form), *again]


def test_form_is_described_once_per_process(
    world: World, server: RestartingServer
) -> None:
    for form in (PLAIN, INLINED):
        server.ask(describe(form))
    world.deaths[CANDIDATE] = 1
    server.ask(candidate(INLINED))
    world.done.clear()
    for form in (INLINED, PLAIN, PLAIN, INLINED):
        server.ask(candidate(form))
    described = [form for task, form in world.done if task == DESCRIBE]
    assert described == [PLAIN]
    assert len(world.done) == 5


def test_restarted_worker_describes_no_form_for_the_input_program(
    world: World, server: RestartingServer
) -> None:
    server.ask(describe(PLAIN))
    world.deaths[ORIGINAL] = 1
    world.done.clear()
    server.ask(Request(CheckOriginal()))
    assert world.done == [(ORIGINAL, PLAIN), (START, ""), (ORIGINAL, PLAIN)]


def test_form_described_after_a_restart_is_not_described_twice(
    world: World, server: RestartingServer
) -> None:
    server.ask(describe(PLAIN))
    world.deaths[ORIGINAL] = 1
    server.ask(Request(CheckOriginal()))
    server.ask(describe(PLAIN))
    world.done.clear()
    server.ask(candidate(PLAIN))
    assert world.done == [(CANDIDATE, PLAIN)]


def test_form_without_a_description_is_not_described_after_a_restart(
    world: World, server: RestartingServer
) -> None:
    world.said = [Ending("exit", answer=Raised("E", ""))]
    server.ask(describe(INLINED))
    world.deaths[CANDIDATE] = 1
    server.ask(candidate(PLAIN))
    server.ask(candidate(INLINED))
    assert [task for task, _ in world.done].count(DESCRIBE) == 1


def test_restart_is_bounded_by_the_remaining_time(
    world: World, server: RestartingServer
) -> None:
    server.ask(describe(PLAIN))
    world.left_s, world.deaths[CANDIDATE] = 50.0, 1
    world.takes_s = {START: 4.0, DESCRIBE: 6.0, CANDIDATE: 10.0}
    world.clocks.clear()
    server.ask(candidate(PLAIN))
    assert world.clocks == [50.0, 40.0, 36.0, 30.0]
    assert world.left_s == 20.0


@pytest.mark.parametrize("slow", [START, DESCRIBE])
def test_slow_restart_ends_with_the_time_limit(
    world: World, server: RestartingServer, slow: str
) -> None:
    server.ask(describe(PLAIN))
    world.left_s, world.deaths[CANDIDATE] = 20.0, 1
    world.takes_s = {slow: 1000.0}
    with pytest.raises(BudgetExhausted, match="time limit reached"):
        server.ask(candidate(PLAIN))
    assert world.left_s == 0.0
    assert world.done[-1][0] == slow


def test_restart_happens_only_while_time_remains(
    world: World, server: RestartingServer
) -> None:
    """Verification may go on beyond them, with what there was to cut from."""
    server.ask(describe(IN_PLACE))
    world.left_s, world.deaths[CANDIDATE] = 1.0, 1
    world.done.clear()
    with pytest.raises(BudgetExhausted):
        server.ask(candidate(IN_PLACE))
    assert world.done == [(CANDIDATE, IN_PLACE)]
    assert not world.is_alive
    world.left_s = 30.0
    assert server.ask(candidate(IN_PLACE)).how == "exit"
    again = [(START, ""), (DESCRIBE, IN_PLACE), (CANDIDATE, IN_PLACE)]
    assert world.done[1:] == again


def test_start_of_the_first_process_ends_with_the_time_limit(world: World) -> None:
    world.left_s, world.takes_s = 5.0, {START: 1000.0}
    with pytest.raises(BudgetExhausted):
        RestartingServer(seconds_left=lambda: world.left_s)
    assert world.clocks == [5.0]


def test_failed_start_within_the_time_limit_is_a_worker_error(
    world: World,
) -> None:
    world.left_s, world.deaths[START] = 50.0, 1
    with pytest.raises(WorkerError, match="SIGKILL"):
        RestartingServer(seconds_left=lambda: world.left_s)


def test_inconclusive_description_is_repeated(
    world: World, server: RestartingServer
) -> None:
    """Of a candidate that is cut from none, the worker would say that it is invalid."""
    server.ask(describe(PLAIN))
    world.deaths[CANDIDATE] = 1
    world.said += [Ending("memory"), Ending("signal", 9)]
    assert server.ask(candidate(PLAIN)).how == "exit"
    tasks = [task for task, _ in world.done]
    assert tasks.count(START) == 3
    assert tasks[-2:] == [DESCRIBE, CANDIDATE]


def test_run_ends_if_the_program_cannot_be_described_again(
    world: World, server: RestartingServer
) -> None:
    server.ask(describe(PLAIN))
    world.deaths[CANDIDATE] = 1
    world.said = [Ending("memory")]
    with pytest.raises(
        WorkerError,
        match=("could not be described again: the worker ended with memory"),
    ):
        server.ask(candidate(PLAIN))
    assert [task for task, _ in world.done].count(START) == LIVES - 1
