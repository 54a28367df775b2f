"""One child under supervision, in a process of its own: supervising kills widely."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of, told

from shrinkfx.failure.classify import classify_ending
from shrinkfx.protocol.answers import Answer, Ending, Unresolved
from shrinkfx.protocol.requests import Request
from shrinkfx.system.processes import (
    kernel_lists_children,
    list_children_by_kernel,
    list_descendants,
    scan_children,
)
from shrinkfx.worker.forkserver.supervise import describe_error, write_answer

pytestmark = pytest.mark.processes

ROOT = str(Path(__file__).parents[2])

Once = Callable[[Request], Ending]


@pytest.fixture
def once(vices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Once:
    """Supervise one child that has a vice."""
    monkeypatch.setenv("PYTHONPATH", ROOT)

    def once(request: Request) -> Ending:
        command = [
            sys.executable,
            str(vices),
            "--once",
            request.to_line(),
            str(tmp_path),
        ]
        line = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        return Ending.from_line(line)

    return once


def test_supervise_returns_exit_status_and_answer(once: Once, tmp_path: Path) -> None:
    ending = once(request_of("echo", word="ü\ud800"))
    assert (ending.how, ending.code, ending.stage) == ("exit", 0, "vice")
    assert ending.answer == Unresolved("ü\ud800")
    assert ending.log == ""
    assert ending.seconds > 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["answer.json", "log", "stage"]


def test_supervise_reports_a_child_reaped_by_another_waiter(
    once: Once,
) -> None:
    ending = once(request_of("hang", lost=True))
    assert ending.how == "lost"
    seen = classify_ending(replace(ending, stage="run"))
    assert "does a preload wait" in seen.unresolved
    assert seen.signature is None


def test_supervise_ends_a_child_over_its_memory_limit(once: Once) -> None:
    limit = 200 << 20
    ending = once(replace(request_of("allocate"), max_rss_bytes=limit))
    assert ending.how == "memory"
    assert limit < ending.peak_rss_bytes < 4 * limit


@pytest.mark.parametrize(
    ("vice", "timeout_s", "how"),
    [("hang_on_the_gil", 0.7, "timeout"), ("allocate", 60.0, "memory")],
)
def test_supervise_logs_the_stack_of_a_child_over_its_limits(
    once: Once, tmp_path: Path, vice: str, timeout_s: float, how: str
) -> None:
    asked = request_of(vice, timeout_s=timeout_s, ready=str(tmp_path / "ready"))
    limited = replace(asked, max_rss_bytes=200 << 20)
    ending = once(limited)
    assert (ending.how, ending.code) == (how, 0)
    assert f"in {vice}\n" in ending.log


@pytest.fixture(name="crowded")
def _crowded() -> Iterator[int]:
    """Have five processes want the same core, and tell which."""
    core = max(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    command = [sys.executable, "-S", "-c", spin]
    # The kernel may share out a core among sessions.
    others = [subprocess.Popen(command, start_new_session=True) for _ in range(5)]
    yield core
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.parametrize(("cpu_s", "how"), [(0.3, "exit"), (1e9, "timeout")])
def test_supervise_separates_a_hang_from_waiting_for_a_core(
    once: Once, crowded: int, cpu_s: float, how: str
) -> None:
    asked = request_of("spin", timeout_s=0.8, core=crowded, cpu_s=cpu_s)
    ending = once(replace(asked, clock_s=300.0))
    assert ending.how == how
    assert ending.seconds > 0.8
    assert ending.waited_s > 0.4
    assert ending.runnable > 3


def test_supervise_has_no_verdict_on_a_child_starved_of_its_core(
    once: Once, crowded: int
) -> None:
    asked = request_of("spin", core=crowded, cpu_s=1e9)
    ending = once(replace(asked, clock_s=0.7))
    assert ending.how == "late"
    assert classify_ending(replace(ending, stage="run")).signature is None


def test_supervise_leaves_no_core_file(once: Once, tmp_path: Path) -> None:
    ending = once(request_of("core_limit"))
    assert told(ending) == {"limit": 0}


@pytest.mark.parametrize("old_kernel", [False, True])
@pytest.mark.parametrize("vice", ["daemonise", "storm", "runaways"])
def test_supervise_leaves_no_process_behind(
    once: Once, survivors: Callable[[], list[str]], vice: str, old_kernel: bool
) -> None:
    assert once(request_of(vice, old_kernel=old_kernel)).how == "exit"
    assert survivors() == []


@pytest.mark.parametrize(
    ("vice", "timeout_s", "how"),
    [
        ("segfault", 60.0, "signal"),
        ("hang", 0.7, "timeout"),
        ("allocate_in_children", 60.0, "memory"),
    ],
)
def test_supervise_works_on_an_old_kernel(
    once: Once, vice: str, timeout_s: float, how: str
) -> None:
    asked = request_of(vice, old_kernel=True, timeout_s=timeout_s)
    assert once(replace(asked, max_rss_bytes=200 << 20)).how == how


IDLE = """
import os, signal
for _ in range(300):
    if os.fork() == 0:
        break
else:
    print("all", flush=True)
signal.pause()
"""


@pytest.mark.skipif(not kernel_lists_children(), reason="this kernel lists no children")
def test_supervise_inspects_only_its_own_processes(once: Once, tmp_path: Path) -> None:
    """Else its own CPU-seconds would grow with what the machine runs."""
    told = str(tmp_path / "looked_at")
    command = [sys.executable, "-S", "-c", IDLE]
    others = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert others.stdout is not None
        assert others.stdout.readline() == b"all\n"
        ending = once(request_of("fork_and_hang", timeout_s=1.2, looked_at=told))
    finally:
        os.killpg(others.pid, signal.SIGKILL)
        others.communicate()
    assert ending.how == "timeout"
    numbers = [name for name in Path(told).read_text().split() if name.isdigit()]
    assert 3 < len(numbers) <= 2 + 12  # the server, its child, what that has forked


def test_supervise_fails_with_a_message_if_its_folder_is_missing(
    once: Once, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path.rmdir()
    with pytest.raises(subprocess.CalledProcessError):
        once(request_of("echo", word=""))
    assert "was removed, together with the results in it" in capfd.readouterr().err


Below = Callable[[int], list[int]]


@pytest.fixture(name="below", params=["told", "scanned"])
def _below(request: pytest.FixtureRequest) -> Below:
    """List what runs below a process, as a kernel tells it and as one finds out."""
    if request.param == "scanned":
        return lambda pid: [*list_descendants(pid, scan_children())]
    if not kernel_lists_children():
        pytest.skip("this kernel lists no children")
    return lambda pid: [*list_descendants(pid, list_children_by_kernel)]


def test_descendants_include_every_generation(
    wait_for: Callable[[Callable[[], object]], None], below: Below
) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", "sh -c 'sleep 1000; true'; true"], start_new_session=True
    )
    try:
        wait_for(lambda: len(below(shell.pid)) == 2)
    finally:
        for pid in [*below(shell.pid), shell.pid]:
            subprocess.run(["kill", "-9", str(pid)], check=False)
        shell.wait()


def test_descendants_include_children_of_every_thread(
    wait_for: Callable[[Callable[[], object]], None], below: Below
) -> None:
    start = "subprocess.run(['sleep', '1000'])"
    code = f"import subprocess, threading; run = lambda: {start}\n"
    code += "threading.Thread(target=run).start(); run()"
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        wait_for(lambda: len(below(parent.pid)) == 2)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_descendants_include_zombies(
    wait_for: Callable[[Callable[[], object]], None], below: Below
) -> None:
    code = "import os, time; os.fork() or os._exit(0); time.sleep(1000)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for(lambda: len(below(parent.pid)) == 1)
        time.sleep(0.1)
        assert len(below(parent.pid)) == 1
    finally:
        parent.kill()
        parent.wait()


def test_write_answer_is_atomic(tmp_path: Path) -> None:
    write_answer(tmp_path, Unresolved("whole"))
    half: Any = object()
    with pytest.raises(TypeError, match="no place in JSON"):
        write_answer(tmp_path, Unresolved(half))
    written = (tmp_path / "answer.json").read_text()
    assert Answer.from_line(written) == Unresolved("whole")


def test_describe_error_names_frames_from_the_outside_in() -> None:
    def inner() -> None:
        raise KeyError("missing")

    try:
        inner()
    except KeyError as error:
        described = describe_error(error)
    assert (described.type, described.message) == ("KeyError", "'missing'")
    assert [frame.rpartition(":")[2] for frame in described.frames] == [
        "test_describe_error_names_frames_from_the_outside_in",
        "inner",
    ]
