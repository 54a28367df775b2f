"""Several questions at once: real processes, and what becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of

from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.check.worker_slots import (
    Fork,
    ForkPool,
    ForkQuery,
    ForkSlots,
    choose_least_used_gpu,
)
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.verdict import ConcurrentQueryError, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Built, Ending, Unresolved
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.testing import chain, whole

processes = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[2]

LIMIT = 300 << 20
Marked = Callable[[], list[int]]
Survivors = Callable[[], list[str]]
WaitFor = Callable[[Callable[[], object]], None]


@dataclass(frozen=True)
class Asking:
    """An oracle that has a server do one thing, whatever it is asked about."""

    client: CheckClient
    request: Request
    endings: list[Ending]

    def with_client(self, client: CheckClient) -> Asking:
        return replace(self, client=client)

    def answer(self, candidate: Candidate) -> Verdict:
        limits = self.client.limits
        ending = self.client.server.ask(
            replace(self.request, max_rss_bytes=limits.max_rss_bytes)
        )
        ending = replace(ending, stage="run", built=Built(Build.FAST, Step.LINK))
        self.client.builds.add(self.client.meter.add(ending))
        self.endings.append(ending)
        return Verdict(Outcome.PASSED, classify_ending(ending))


@dataclass(frozen=True)
class House:
    """A server, and the forks of it."""

    server: RestartingServer
    forks: ForkPool

    def lanes(self, vice: str, timeout_s: float = 60.0, **told: Any) -> ForkSlots:
        client = CheckClient(self.server, Limits(timeout_s, LIMIT))
        asked = request_of(vice, timeout_s=timeout_s, **told)
        return ForkSlots(Asking(client, asked, []), self.forks)

    def begin(self, vice: str, **told: Any) -> ForkQuery:
        return self.lanes(vice, **told).begin(SOME)

    def answer(self, vice: str, timeout_s: float = 60.0, **told: Any) -> Verdict:
        """Ask in a lane, and alone if that decides nothing."""
        lanes = self.lanes(vice, timeout_s, **told)
        try:
            return lanes.begin(SOME).result()
        except ConcurrentQueryError:
            return lanes.alone(SOME)


SOME = whole(chain("x", "relu"))


def reason_of(question: ForkQuery) -> str:
    return question.result().observation.unresolved


Open = Callable[..., House]


@pytest.fixture(name="open_house")
def _open_house(vices: Path, marked: Marked) -> Iterator[Open]:
    houses = []

    def open_house(
        count: int = 2,
        seconds_left: Callable[[], float | None] = lambda: None,
        gpus: int = 1,
    ) -> House:
        command = [sys.executable, str(vices)]
        server = RestartingServer(command=command)
        server.seconds_left = seconds_left
        houses.append(House(server, ForkPool(server, count, gpus=gpus)))
        return houses[-1]

    yield open_house
    for house in houses:
        house.forks.close()
        house.server.close()


@processes
def test_two_queries_run_at_once_next_to_the_server(
    open_house: Open, tmp_path: Path, survivors: Survivors
) -> None:
    house, (a, b) = open_house(), (str(tmp_path / name) for name in "ab")
    one = house.begin("meet", mine=a, other=b)
    assert not one.done()
    # What ends below the server is no end of what its forks have started.
    assert house.server.ask(request_of("echo", word="I")).answer == Unresolved("I")
    assert house.server.ask(request_of("segfault")).how == "signal"
    two = house.begin("meet", mine=b, other=a)
    assert (reason_of(one), reason_of(two)) == ("met", "met")
    assert one.done()
    house.forks.close()
    house.forks.close()
    house.server.close()
    assert survivors() == []
    assert not house.server.directory.exists()


@processes
def test_third_query_waits_for_a_free_fork(open_house: Open) -> None:
    house = open_house()
    questions = [house.begin("echo", word=str(n)) for n in range(6)]
    assert [reason_of(question) for question in questions] == list("012345")
    house.forks.wait_for_all()
    folders = list(house.server.directory.glob("fork-*"))
    assert 1 <= len(folders) <= 2
    assert all((folder / "server.log").exists() for folder in folders)


@processes
def test_forks_are_spread_over_the_gpus(open_house: Open, tmp_path: Path) -> None:
    house = open_house(4, gpus=2)
    places = [str(tmp_path / str(n)) for n in range(4)]
    # None ends before the last has begun.
    pairs = zip(places, [*places[-1:] * 3, places[0]], strict=True)
    questions = [house.begin("meet", mine=mine, other=other) for mine, other in pairs]
    assert sorted(question.gpu for question in questions) == [0, 0, 1, 1]
    assert [reason_of(question) for question in questions] == ["met"] * 4


def test_least_used_gpu_is_chosen_next() -> None:
    assert [choose_least_used_gpu(2, used) for used in ([], [0], [0, 1], [1, 1])] == [
        0,
        1,
        0,
        0,
    ]
    assert choose_least_used_gpu(1, [0, 0]) == 0


@processes
def test_cancelled_query_leaves_no_process_and_its_fork_is_reused(
    open_house: Open, tmp_path: Path, marked: Marked, wait_for: WaitFor
) -> None:
    house, ready = open_house(), tmp_path / "ready"
    hanging = house.begin("leave_compiler_and_hang", ready=str(ready))
    wait_for(ready.exists)
    assert len(marked()) == 4  # the server, its fork, a child and a compiler
    began = time.monotonic()
    hanging.cancel()
    house.lanes("echo").wait([hanging])
    assert time.monotonic() - began < 20
    assert len(marked()) == 2
    hanging.cancel()  # it has ended: the next question is not meant
    assert reason_of(house.begin("echo", word="next")) == "next"
    assert len(list(house.server.directory.glob("fork-*"))) == 1


@processes
def test_query_that_kills_a_fork_is_repeated_alone(
    open_house: Open, tmp_path: Path, survivors: Survivors
) -> None:
    house, deaths = open_house(), tmp_path / "deaths"
    deaths.write_text("1")
    pid = house.server.pid
    lanes = house.lanes("kill_server", deaths=str(deaths))
    question, other = lanes.begin(SOME), house.begin("echo", word="other")
    with pytest.raises(
        ConcurrentQueryError, match="a fork of the worker died while compiling"
    ):
        question.result()
    assert lanes.alone(SOME).observation.unresolved == "survived"
    assert reason_of(other) == "other"
    assert house.server.pid == pid
    assert reason_of(house.begin("echo", word="next")) == "next"
    house.forks.close()
    house.server.close()
    assert survivors() == []


@processes
def test_forks_end_with_their_server(
    open_house: Open, tmp_path: Path, wait_for: WaitFor
) -> None:
    house, ready = open_house(), tmp_path / "ready"
    hanging = house.begin("hang", ready=str(ready))
    wait_for(ready.exists)
    os.kill(house.server.pid, signal.SIGKILL)
    wait_for(hanging.done)
    assert house.answer("echo", word="next").observation.unresolved == "next"
    assert (
        reason_of(house.begin("echo", word="next")) == "next"
    )  # in a lane of the next server


@processes
def test_query_that_exceeds_its_memory_share_is_repeated_alone(
    open_house: Open,
) -> None:
    house = open_house()
    lanes = house.lanes("hold")  # which takes 200 MB, of 150 in each lane
    with pytest.raises(ConcurrentQueryError, match="memory in run"):
        lanes.begin(SOME).result()
    lanes.alone(SOME)
    endings = lanes.oracle.endings  # type: ignore[attr-defined]
    assert [ending.how for ending in endings] == ["memory", "exit"]
    meter, total = lanes.oracle.client.meter, sum(e.cpu_seconds for e in endings)
    assert 0 <= meter.cpu_seconds - total < 0.1  # what forking took


@processes
def test_timeout_of_a_child_counts_its_own_cpu_time(
    open_house: Open,
) -> None:
    house, core = open_house(3), min(os.sched_getaffinity(0))
    lanes = house.lanes("spin", 1.5, core=core, cpu_s=1.0)
    questions = [lanes.begin(SOME) for _ in range(3)]
    for question in questions:
        question.result()
    endings = lanes.oracle.endings  # type: ignore[attr-defined]
    assert [ending.how for ending in endings] == ["exit"] * 3
    assert max(ending.seconds for ending in endings) > 1.5  # by the clock
    with pytest.raises(
        ConcurrentQueryError, match="timeout"
    ):  # for a lock of another, perhaps
        house.lanes("hang", 1.0).begin(SOME).result()
    core = min(os.sched_getaffinity(0))
    endless = house.lanes("spin", 1.0, core=core, cpu_s=1000).begin(SOME).result()
    assert endless.observation.unresolved == "timeout in run"


@dataclass(frozen=True)
class LookingAgain(Asking):
    """An oracle that asks something else after the first answer."""

    def answer(self, candidate: Candidate) -> Verdict:
        super().answer(candidate)
        again = request_of("echo", word="again")
        return replace(self, request=again).answer_once(candidate)

    def answer_once(self, candidate: Candidate) -> Verdict:
        return super().answer(candidate)


@processes
def test_repeated_query_decides_the_verdict_after_a_hang(open_house: Open) -> None:
    """What hangs, for a lock of another perhaps, may have an answer the next time."""
    house = open_house()
    client = CheckClient(house.server, Limits(1.0, LIMIT))
    oracle = LookingAgain(client, request_of("hang", timeout_s=1.0), [])
    question = ForkSlots(oracle, house.forks).begin(SOME)
    assert reason_of(question) == "again"
    assert [ending.how for ending in oracle.endings] == ["timeout", "exit"]


@processes
def test_forks_are_usable_after_ctrl_c(
    open_house: Open, tmp_path: Path, marked: Marked, wait_for: WaitFor
) -> None:
    house, ready = open_house(), tmp_path / "ready"
    questions = [
        house.begin("fork_and_hang", ready=str(ready)),
        house.begin("daemonise_and_hang"),
    ]
    wait_for(ready.exists)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        house.lanes("echo").wait(questions)
    house.forks.cancel()
    assert len(marked()) == 3
    assert reason_of(house.begin("echo", word="next")) == "next"


@processes
def test_closing_forks_ends_running_queries(
    open_house: Open, tmp_path: Path, marked: Marked, wait_for: WaitFor
) -> None:
    house, ready = open_house(), tmp_path / "ready"
    question = house.begin("daemonise_and_hang", ready=str(ready))
    wait_for(ready.exists)
    house.forks.close()
    assert question.done()
    wait_for(lambda: [house.server.pid] == marked())


PARENT = """
import sys
from shrinkfx.check.worker_slots import Fork
from shrinkfx.check.client.server import Server
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.requests import CheckOriginal

vices, ready = sys.argv[1:3]
with Server(command=[sys.executable, vices]) as server:
    fork = Fork(server, CheckOptions(), 2)
    vice = {"vice": "leave_compiler_and_hang", "ready": ready}
    request = Request(CheckOriginal(), CheckOptions(inductor=vice), timeout_s=60)
    fork.send(request)
    fork.receive(request)
"""


@processes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_forks_leave_no_process_if_the_parent_is_killed(
    vices: Path, tmp_path: Path, survivors: Survivors, wait_for: WaitFor, number: int
) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", PARENT, str(vices), str(ready)]
    parent = subprocess.Popen(command, cwd=ROOT)
    wait_for(ready.exists)
    parent.send_signal(number)
    parent.wait()
    assert survivors() == []


@processes
def test_fork_works_in_a_folder_with_a_path_too_long_for_a_socket(
    open_house: Open, tmp_path: Path
) -> None:
    server = open_house().server
    server.directory = tmp_path.joinpath(*["long" * 10] * 4)
    server.directory.mkdir(parents=True)
    fork = Fork(server, CheckOptions(), 2)
    asked = request_of("echo", word="far")
    fork.send(asked)
    assert fork.receive(asked).answer == Unresolved("far")
    fork.close()
    assert not fork.directory.exists()


@processes
def test_query_cut_off_by_the_time_limit_is_repeated_alone(
    open_house: Open,
) -> None:
    left = [None, 0.3]
    house = open_house(seconds_left=lambda: left[-1])
    lanes = house.lanes("hang")
    with pytest.raises(ConcurrentQueryError):
        lanes.begin(SOME).result()
    left.append(0.0)
    with pytest.raises(BudgetExhausted):
        lanes.alone(SOME)


@processes
def test_fast_build_counts_once_its_verdict_is_used(open_house: Open) -> None:
    lanes = open_house().lanes("echo", word="")
    question, unwanted = lanes.begin(SOME), lanes.begin(SOME)
    lanes.forks.wait_for_all()
    builds = lanes.oracle.client.builds
    assert unwanted.done()
    assert builds.fast == 0
    question.result()  # which it may have been ahead
    assert builds.fast == 0
    question.count()
    question.count()
    assert builds.fast == 1


@processes
def test_ending_of_a_check_is_reported_once_its_verdict_is_used(
    open_house: Open,
) -> None:
    house = open_house()
    heard: list[str] = []
    house.forks.heard = lambda ending: heard.append(ending.how)
    question = house.begin("echo", word="")
    question.result()
    assert heard == []
    question.count()
    question.count()
    assert heard == ["exit"]
