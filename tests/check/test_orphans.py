"""What is left where a run and its server are both killed, and who clears it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.errors import StorageError
from shrinkfx.system import scratch

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

PARENT = """
import sys
from pathlib import Path
from shrinkfx.system import scratch
from shrinkfx.check.client.server import Server
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.requests import CheckOriginal

vices, ready, note = sys.argv[1:4]
command, scratched = [sys.executable, vices], scratch.make_scratch_folder("candidate")
with Server(command=command) as server, scratched:
    Path(note).write_text(f"{server.pid} {scratch.root()}")
    vice = {"vice": sys.argv[4], "ready": ready, "note": f"{ready}-daemon"}
    server.ask(Request(CheckOriginal(), CheckOptions(inductor=vice), timeout_s=60))
"""


def run(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PARENT, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT)


def test_next_run_removes_processes_and_files_of_a_killed_run(
    vices: Path,
    marked: Callable[[], list[int]],
    survivors: Callable[[], list[str]],
    wait_for: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready, note = tmp_path / "ready", tmp_path / "note"
    # Runs of other tests, beside this one, would clear it away in a common folder.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parent = run(vices, ready, note, "leave_compiler_and_hang")
    wait_for(ready.exists)
    server, folder = note.read_text().split()
    wait_for(lambda: len(marked()) >= 4)
    clear_orphans()  # of others; this one lives
    assert len(marked()) >= 4
    assert Path(folder).exists()
    os.kill(int(server), signal.SIGSTOP)  # lest it notices its parent's end
    parent.kill()
    parent.wait()
    os.kill(int(server), signal.SIGKILL)
    time.sleep(2)
    assert marked() != []
    assert list(Path(folder).glob("candidate-*"))

    clear_orphans()
    assert survivors() == []
    assert not Path(folder).exists()


def has_ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def test_next_run_ends_a_daemon_with_an_empty_environment(
    vices: Path,
    marked: Callable[[], list[int]],
    wait_for: Callable[[Callable[[], object]], None],
    tmp_path: Path,
) -> None:
    ready, note = tmp_path / "ready", tmp_path / "note"
    parent = run(vices, ready, note, "leave_daemon_and_hang")
    wait_for(ready.exists)
    daemon = int((tmp_path / "ready-daemon").read_text())
    os.kill(int(note.read_text().split()[0]), signal.SIGSTOP)
    parent.kill()
    parent.wait()
    os.kill(int(note.read_text().split()[0]), signal.SIGKILL)
    assert not has_ended(daemon)
    clear_orphans()
    wait_for(lambda: has_ended(daemon))


def test_scratch_folder_of_this_process_is_not_abandoned() -> None:
    root = scratch.root()
    assert root not in list(scratch.remove_abandoned_roots())
    with scratch.make_scratch_folder("package") as folder:
        assert Path(folder).parent == root
    assert not Path(folder).exists()


def test_error_without_a_temporary_folder_recommends_tmpdir(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such is a container whose file system is read-only."""

    def find_none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", find_none)
    with pytest.raises(StorageError, match=r"No usable .*\nset TMPDIR"):
        clear_orphans()
    with pytest.raises(StorageError, match=r"No usable .*\nset TMPDIR"):
        scratch.root.__wrapped__()


def test_folder_without_a_lock_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = tmp_path / "shrinkfx-of-somebody"
    others.mkdir()
    clear_orphans()
    assert others.exists()
