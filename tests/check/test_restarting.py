"""A server whose process dies, whose time is up, or whose disk is full."""

from __future__ import annotations

import errno
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of as request

from shrinkfx.check.client.restarting import LIVES, RestartingServer
from shrinkfx.errors import BudgetExhausted, StorageError, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.protocol.answers import Unresolved
from shrinkfx.protocol.files import LOWERING
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CompileOriginal,
    Describe,
    FindSpace,
    Task,
)
from shrinkfx.system import scratch

pytestmark = pytest.mark.processes

Start = Callable[..., RestartingServer]
Survivors = Callable[[], list[str]]


@pytest.fixture(name="start")
def _start(vices: Path, marked: Callable[[], list[int]]) -> Iterator[Start]:
    servers = []

    def start(**settings: Any) -> RestartingServer:
        server = RestartingServer(command=[sys.executable, str(vices)], **settings)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture(name="deaths")
def _deaths(tmp_path: Path) -> Callable[[int], Path]:
    def write(count: int) -> Path:
        path = tmp_path / "deaths"
        path.write_text(str(count))
        return path

    return write


def test_query_that_kills_the_worker_is_repeated(
    start: Start, deaths: Callable[[int], Path], survivors: Survivors
) -> None:
    server = start()
    before = server.pid
    ending = server.ask(request("kill_server", deaths=str(deaths(1))))
    assert ending.answer == Unresolved("survived")
    assert server.pid != before
    server.close()
    assert survivors() == []


def test_task_is_reported_before_it_starts(start: Start) -> None:
    told: list[Task] = []
    server = start(asking=told.append)
    for task in (FindSpace(), CompileOriginal()):
        server.ask(request("raise_error", task=task))
    assert told == [FindSpace(), CompileOriginal()]
    assert all(task.doing for task in Task.__subclasses__())


def test_query_that_kills_the_worker_twice_is_unresolved(
    start: Start, deaths: Callable[[int], Path], survivors: Survivors
) -> None:
    server = start()
    ending = server.ask(request("kill_server", deaths=str(deaths(2))))
    assert ending.how == "server"
    seen = classify_ending(ending)
    assert "the worker died in each attempt" in seen.unresolved
    assert (seen.signature, seen.invalid) == (None, "")
    assert server.ask(request("echo", word="next")).answer == Unresolved("next")
    server.close()
    assert survivors() == []


def test_worker_that_dies_on_every_query_is_an_error(
    start: Start, deaths: Callable[[int], Path], survivors: Survivors
) -> None:
    server, died = start(), deaths(1000)
    asked = request("kill_server", deaths=str(died))
    for _ in range((LIVES - 1) // 2):  # it is asked twice each time
        assert server.ask(asked).how == "server"
    with pytest.raises(WorkerError, match="SIGKILL"):
        server.ask(asked)
    assert int(died.read_text()) == 1000 - LIVES
    assert survivors() == []


@pytest.mark.parametrize("at_work", [False, True])
def test_first_lowering_is_skipped_after_it_kills_a_worker(
    start: Start, deaths: Callable[[int], Path], *, at_work: bool
) -> None:
    server = start()
    if at_work:
        (server.directory / LOWERING).touch()
    server.ask(request("kill_server", deaths=str(deaths(1))))
    assert server._setup.first_lowering is not at_work
    server.ask(request("kill_server", deaths=str(deaths(1))))
    assert server._setup.first_lowering is not at_work


def test_restarted_worker_describes_the_program_again(
    start: Start, deaths: Callable[[int], Path], tmp_path: Path
) -> None:
    server, calls = start(), tmp_path / "calls"
    server.ask(request("count_calls", task=Describe(), calls=str(calls)))
    cut = CheckCandidate({})
    server.ask(request("kill_server", task=cut, deaths=str(deaths(1))))
    assert calls.read_text().count("call") == 2


def test_restart_does_not_exceed_the_time_limit(
    vices: Path, tmp_path: Path, deaths: Callable[[int], Path], survivors: Survivors
) -> None:
    slow, ends = tmp_path / "slow", math.inf
    serve = shlex.join([sys.executable, str(vices)])
    starter = f"if [ -e {slow} ]; then exec sleep 120; fi; exec {serve}"
    with RestartingServer(
        command=["sh", "-c", starter],
        seconds_left=lambda: max(0.0, ends - time.monotonic()),
    ) as server:
        slow.touch()
        ends = time.monotonic() + 3.0
        with pytest.raises(BudgetExhausted, match="time limit reached"):
            server.ask(request("kill_server", deaths=str(deaths(1))))
        assert time.monotonic() < ends + 60.0
    assert survivors() == []


@pytest.mark.parametrize(
    ("manner", "said"), [("--refuses", "m.pt2: not a zip"), ("--dies", "status 1")]
)
def test_failed_restart_is_an_error_until_a_restart_succeeds(
    vices: Path, tmp_path: Path, deaths: Callable[[int], Path], manner: str, said: str
) -> None:
    broken = tmp_path / "broken"
    serve = shlex.join([sys.executable, str(vices)])
    starter = f"if [ -e {broken} ]; then exec {serve} {manner}; fi; exec {serve}"
    asked = request("kill_server", deaths=str(deaths(1)))
    with RestartingServer(command=["sh", "-c", starter]) as server:
        broken.touch()
        for _ in range(2):  # whoever sums up asks again
            with pytest.raises(WorkerError, match=said):
                server.ask(asked)
        broken.unlink()
        assert server.ask(asked).answer == Unresolved("survived")


KILLED = """
number=$(($(cat {count}) + 1))
echo $number > {count}
case " {times} " in *" $number "*) kill -9 $$;; esac
exec {serve}
"""


@pytest.mark.parametrize(
    ("times", "starts"), [("1", 2), ("2", 3), ("2 3", 4), ("2 3 4", 5)]
)
def test_worker_killed_while_loading_is_restarted(
    vices: Path,
    tmp_path: Path,
    deaths: Callable[[int], Path],
    times: str,
    starts: int,
) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    serve = shlex.join([sys.executable, str(vices)])
    starter = KILLED.format(count=count, times=times, serve=serve)
    with RestartingServer(command=["sh", "-c", starter]) as server:
        asked = request("kill_server", deaths=str(deaths(int(times != "1"))))
        assert server.ask(asked).answer == Unresolved("survived")
    assert int(count.read_text()) == starts


def test_worker_killed_in_every_loading_is_an_error(
    survivors: Survivors,
) -> None:
    with pytest.raises(WorkerError, match="SIGKILL while loading") as caught:
        RestartingServer(command=["sh", "-c", "kill -9 $$"])
    assert caught.value.killed
    assert survivors() == []


def test_restart_without_disk_space_is_a_storage_error(
    start: Start, deaths: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    server, asked = start(), request("kill_server", deaths=str(deaths(1)))
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for _ in range(2):
        with pytest.raises(StorageError, match="No space"):
            server.ask(asked)


def test_check_ends_with_the_time_limit_of_the_run(start: Start) -> None:
    left = 600.0
    server = start(seconds_left=lambda: left)
    left = 0.5
    with pytest.raises(BudgetExhausted, match="time limit reached"):
        server.ask(request("hang"))
    left = 60.0
    assert server.ask(request("hang", timeout_s=0.2)).how == "timeout"
    left = 0.0
    with pytest.raises(BudgetExhausted):
        server.ask(request("echo", word="too late"))


@pytest.mark.parametrize("vice", ["remove_server_folder", "remove_child_folder"])
def test_check_with_a_removed_folder_is_inconclusive(start: Start, vice: str) -> None:
    server = start()
    assert server.ask(request(vice)).how == "server"
    assert server.ask(request("echo", word="next")).answer == Unresolved("next")


def test_restart_with_a_removed_scratch_folder_is_a_storage_error(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(scratch, "root", lambda: tmp_path)
    server = start()
    shutil.rmtree(tmp_path)
    with pytest.raises(StorageError, match=r"(?s)removed during the run.*\$TMPDIR"):
        server.ask(request("echo", word=""))


def test_folder_removed_while_loading_is_a_storage_error() -> None:
    remove = 'rm -r "$(dirname "$(readlink /proc/$$/fd/2)")"; exit 1'
    with pytest.raises(StorageError, match="the folder was removed during the run"):
        RestartingServer(command=["sh", "-c", remove])


def test_full_disk_in_a_check_is_a_storage_error(start: Start) -> None:
    with pytest.raises(StorageError, match="disk is full"):
        start().ask(request("fill_the_disk"))


def test_storage_error_names_the_file_on_the_full_disk(start: Start) -> None:
    with pytest.raises(StorageError) as full:
        start().ask(request("fill_the_disk", place="/home/me/.cache/x.o"))
    assert full.value.subject == "/home/me/.cache/x.o"
    assert str(full.value.advice) == "free some space"


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("/usr/bin/ld: final link failed: No space left on device", ""),
        ("ld: cannot open output file /c/a.so: No space left on device", "/c/a.so"),
        (
            "a.cpp:3:1: fatal error: error writing to /c/a.s: No space left on device",
            "/c/a.s",
        ),
    ],
)
def test_file_on_the_full_disk_is_parsed_from_a_compiler_message(
    start: Start, line: str, place: str
) -> None:
    server = start()
    with pytest.raises(StorageError) as full:
        server.ask(request("fill_the_disk", line=line))
    assert full.value.subject == (place or str(server.directory))


def test_full_temporary_disk_error_recommends_tmpdir(start: Start) -> None:
    server = start()
    place = str(server.directory / "child-1" / "x.o")
    with pytest.raises(StorageError) as full:
        server.ask(request("fill_the_disk", place=place))
    assert full.value.subject == place
    assert "set TMPDIR to a folder on a disk with more space" in str(full.value.advice)


def test_removed_output_folder_is_a_storage_error(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    server = start(folders=(out,))
    assert server.ask(request("echo", word="there")).answer == Unresolved("there")
    out.rmdir()
    with pytest.raises(
        StorageError, match=r"out: the folder was removed during the run"
    ):
        server.ask(request("echo", word="gone"))


def test_lost_gpu_is_a_worker_error(start: Start) -> None:
    with pytest.raises(WorkerError, match=r"the GPU is no longer available \("):
        start().ask(request("lose_gpu"))


def test_storage_error_states_the_required_space(start: Start) -> None:
    why = "weights in a package take 5.1 GB of disk, and 4.3 GB are free"
    with pytest.raises(StorageError) as full:
        start().ask(request("fill_the_disk", why=f": {why}"))
    assert full.value.reason == why
    assert str(full.value.advice).endswith("or raise --max-disk")


def test_crash_on_a_full_disk_is_a_storage_error(
    start: Start,
) -> None:
    server = start(folders=(Path("/proc"),))  # it never has any space
    assert server.ask(request("echo", word="fits")).answer == Unresolved("fits")
    with pytest.raises(StorageError, match="/proc: the disk is full"):
        server.ask(request("segfault"))
