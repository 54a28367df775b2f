"""The server's side of the pipe, spoken to line by line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of

from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.forkserver.serve import Line, ParentGone

pytestmark = pytest.mark.processes

ROOT = str(Path(__file__).parents[2])
CANCEL = '"cancel"\n'

Survivors = Callable[[], list[str]]
WaitFor = Callable[[Callable[[], object]], None]


class Worker:
    """A server's process and both ends of its line."""

    def __init__(self, vices: Path, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, vices],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ROOT},
            start_new_session=True,
        )
        self.say(Setup(directory=str(directory)).to_line())
        assert Ready.from_json(self.hear()).error == ""

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def is_silent(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        return not select.select([self.process.stdout], [], [], seconds)[0]

    def hang_up(self) -> int:
        """Close both ends and wait for the server's end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=600)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "server"
    path.mkdir()
    return path


@pytest.fixture
def worker(
    vices: Path, directory: Path, marked: Callable[[], list[int]]
) -> Iterator[Worker]:
    worker = Worker(vices, directory)
    yield worker
    worker.process.kill()
    worker.hang_up()


def ask(vice: str, **arguments: Any) -> str:
    return request_of(vice, **arguments).to_line()


def test_serve_answers_requests_in_order(worker: Worker, directory: Path) -> None:
    for word in ("one", "two"):
        worker.say(ask("echo", word=word))
        assert worker.hear()["answer"] == {"Unresolved": {"why": word}}
    # The second request is read after the first one's folder is gone.
    assert not (directory / "child-1").exists()


def test_serve_cancels_the_running_check(
    worker: Worker, tmp_path: Path, wait_for: WaitFor
) -> None:
    ready = tmp_path / "ready"
    worker.say(ask("hang_deaf", ready=str(ready)))
    wait_for(ready.exists)
    worker.say(CANCEL)
    ending = worker.hear()
    assert (ending["how"], ending["stage"]) == ("cancelled", "vice")


def test_serve_ignores_a_cancel_after_the_check_has_ended(worker: Worker) -> None:
    worker.say(ask("echo", word="before"))
    assert worker.hear()["answer"] == {"Unresolved": {"why": "before"}}
    worker.say(CANCEL)
    assert worker.is_silent(0.2)
    worker.say(CANCEL + ask("echo", word="after"))
    assert worker.hear()["answer"] == {"Unresolved": {"why": "after"}}
    assert worker.is_silent(0.2)


def test_serve_reads_a_cancel_that_comes_in_pieces(
    worker: Worker, tmp_path: Path, wait_for: WaitFor
) -> None:
    ready = tmp_path / "ready"
    worker.say(ask("hang", ready=str(ready)))
    wait_for(ready.exists)
    worker.say(CANCEL[:4])
    assert worker.is_silent(0.2)
    worker.say(CANCEL[4:])
    assert worker.hear()["how"] == "cancelled"


@pytest.mark.parametrize("vice", ["hang_deaf", "daemonise_and_hang"])
def test_serve_ends_with_all_its_processes_when_the_pipe_closes(
    worker: Worker,
    directory: Path,
    tmp_path: Path,
    survivors: Survivors,
    wait_for: WaitFor,
    vice: str,
) -> None:
    ready = tmp_path / "ready"
    worker.say(ask(vice, ready=str(ready)))
    wait_for(ready.exists)
    assert worker.hang_up() == 0
    assert survivors() == []
    assert not directory.exists()


def test_serve_ends_when_the_answer_pipe_is_closed(
    worker: Worker, directory: Path, survivors: Survivors
) -> None:
    assert worker.process.stdout is not None
    worker.process.stdout.close()
    worker.say(ask("big_answer"))
    assert worker.process.wait(timeout=600) == 0
    assert survivors() == []
    assert not directory.exists()


def test_serve_closes_the_line_in_its_children(worker: Worker) -> None:
    worker.say(ask("list_pipes"))
    assert worker.hear()["answer"] == {"Unresolved": {"why": '{"pipes": []}'}}


def test_line_reads_lines_that_arrive_in_pieces() -> None:
    source, sink = os.pipe()
    line = Line(source, os.dup(sink))
    try:
        assert line.read(timeout_s=0) is None
        os.write(sink, b"one\ntwo\nthr")
        assert [line.read(), line.read(), line.read(timeout_s=0)] == [
            "one",
            "two",
            None,
        ]
        os.write(sink, b"ee\n")
        assert line.read() == "three"
    finally:
        os.close(sink)
        line.close()


def test_line_raises_when_the_parent_is_gone() -> None:
    to_server, from_parent = os.pipe()
    to_parent, from_server = os.pipe()
    line = Line(to_server, from_server)
    os.close(from_parent)
    os.close(to_parent)
    try:
        with pytest.raises(ParentGone):
            line.read()
        with pytest.raises(ParentGone):
            line.write(Ready())
    finally:
        line.close()
