"""What children have unpacked below /tmp goes, whoever dies of whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.doubles import request_of

from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.check.client.server import Server

pytestmark = pytest.mark.processes

WaitFor = Callable[[Callable[[], object]], None]

ROOT = Path(__file__).resolve().parents[2]

PARENT = """
import sys
from pathlib import Path
from shrinkfx.check.client.server import Server
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.requests import CheckOriginal

vices, ready, note = sys.argv[1:]
with Server(command=[sys.executable, vices]) as server:
    Path(f"{note}-server").write_text(str(server.pid))
    vice = {"vice": "unpack_and_hang", "ready": ready, "note": note}
    server.ask(Request(CheckOriginal(), CheckOptions(inductor=vice), timeout_s=60))
"""


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Where a child says which folder it has made."""
    return tmp_path / "note"


def folder_in(note: Path) -> Path:
    return Path(note.read_text())


def require_nothing_left(server: Server, note: Path) -> None:
    """See that a folder is gone when the server has come to its next question."""
    server.ask(request_of("echo", word="next"))
    assert not folder_in(note).exists()


def test_server_removes_unpacked_files_after_a_crash(vices: Path, note: Path) -> None:
    with Server(command=[sys.executable, str(vices)]) as server:
        ending = server.ask(request_of("unpack_and_die", note=str(note)))
        assert (ending.how, ending.code) == ("signal", signal.SIGABRT)
        require_nothing_left(server, note)


def test_server_removes_unpacked_files_after_a_hang(vices: Path, note: Path) -> None:
    asked = request_of("unpack_and_hang", note=str(note), timeout_s=0.5)
    with Server(command=[sys.executable, str(vices)]) as server:
        assert server.ask(asked).how == "timeout"
        require_nothing_left(server, note)


@pytest.fixture
def parent(
    vices: Path,
    marked: Callable[[], list[int]],
    note: Path,
    tmp_path: Path,
    wait_for: WaitFor,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose server has a child that has unpacked, and hangs."""
    # Runs of other tests, beside this one, would clear it away in a common folder.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", PARENT, str(vices), str(ready), str(note)]
    parent = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    wait_for(ready.exists)
    assert folder_in(note).exists()
    yield parent
    parent.kill()
    parent.wait()


def test_unpacked_files_are_removed_after_ctrl_c(
    parent: subprocess.Popen[bytes], note: Path
) -> None:
    parent.send_signal(signal.SIGINT)
    parent.wait()
    assert not folder_in(note).exists()


def test_server_removes_unpacked_files_if_its_parent_is_killed(
    parent: subprocess.Popen[bytes], note: Path, wait_for: WaitFor
) -> None:
    parent.kill()
    parent.wait()
    wait_for(lambda: not folder_in(note).exists())


def test_server_removes_unpacked_files_when_terminated(
    parent: subprocess.Popen[bytes], note: Path, wait_for: WaitFor
) -> None:
    os.kill(int(Path(f"{note}-server").read_text()), signal.SIGTERM)
    wait_for(lambda: not folder_in(note).exists())
    parent.wait()


def test_parent_removes_unpacked_files_if_its_server_is_killed(
    parent: subprocess.Popen[bytes], note: Path
) -> None:
    os.kill(int(Path(f"{note}-server").read_text()), signal.SIGKILL)
    parent.wait()
    assert not folder_in(note).exists()


def test_next_run_removes_unpacked_files_if_parent_and_server_are_killed(
    parent: subprocess.Popen[bytes], note: Path
) -> None:
    server = int(Path(f"{note}-server").read_text())
    os.kill(server, signal.SIGSTOP)  # lest it notices its parent's end
    parent.kill()
    parent.wait()
    os.kill(server, signal.SIGKILL)
    assert folder_in(note).exists()
    clear_orphans()
    assert not folder_in(note).exists()
