"""What a hostile program achieves in the sandbox: nothing outside the run's folders."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.doubles import request_of

from shrinkfx.check.client.server import Server
from shrinkfx.errors import UsageError
from shrinkfx.protocol.requests import MARK
from shrinkfx.system import sandbox, scratch
from shrinkfx.system.sandbox import Sandbox, find_problem, to_exit_status

pytestmark = pytest.mark.processes
works = pytest.mark.skipif(bool(find_problem()), reason=find_problem() or "it works")

Survivors = Callable[[], list[str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a key, which stays readable without its secrets."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("a key")
    (home / ".netrc").write_text("a password")
    (home / "model").write_text("a model")
    monkeypatch.setenv("HOME", str(home))
    return home


def run(code: str, box: Sandbox, mark: str = "") -> subprocess.CompletedProcess[str]:
    command = box.wrap_command([sys.executable, "-c", code], None)
    return subprocess.run(
        command,
        env=box.change_environment({**os.environ, MARK: mark}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


HARMLESS = {
    "writes to the home folder": "open({home!r} + '/.bashrc', 'w')",
    "changes a file there": "__import__('os').chmod({home!r} + '/model', 0o777)",
    "reads a key": "open({home!r} + '/.ssh/id')",
    "writes to the system": "open('/etc/shrinkfx', 'w')",
    "connects by TCP": "__import__('socket').create_connection(('127.0.0.1', {port}))",
    "connects to the host": "__import__('socket').socket(1).connect({abstract!r})",
    "reads an unreadable password": "assert open({home!r} + '/.netrc').read()",
    "kills the caller": "__import__('os').kill({pid}, 9)",
}


@works
@pytest.mark.parametrize("deed", HARMLESS)
def test_hostile_code_fails_in_the_sandbox_alone(home: Path, deed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(1) as unix:
        abstract = f"\0shrinkfx-test-{os.getpid()}"
        unix.bind(abstract)
        unix.listen()
        places = {"home": str(home), "port": tcp.getsockname()[1], "pid": os.getpid()}
        code = HARMLESS[deed].format(**places, abstract=abstract)
        done = run(code, Sandbox(readable=(home / "model",)))
    assert done.returncode == 1, done
    assert "Error" in done.stderr
    assert sorted(path.name for path in home.iterdir()) == [".netrc", ".ssh", "model"]


@works
def test_what_a_run_needs_works_in_the_sandbox(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    box = Sandbox((out,), (home / "model",))
    assert run(f"assert open({str(home / 'model')!r}).read()", box).returncode == 0
    temporary = "__import__('tempfile').NamedTemporaryFile()"
    for code in (f"open({str(out / 'x')!r}, 'w')", temporary, "open('/tmp/x', 'w')"):
        assert run(code, box).returncode == 0
    assert (out / "x").exists()
    assert not Path("/tmp/x").exists()


@works
def test_daemon_ends_with_the_sandbox(survivors: Survivors) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        [os.close(n) for n in range(3)]\n"
        "        time.sleep(600)\n"
    )
    assert run(code, Sandbox(), f"{scratch.root().name}:1").returncode == 0
    assert survivors() == []


@works
def test_cached_libraries_are_readable_but_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = Path(tmp_path / "shrinkfx" / "native" / "lib.so")
    cached.parent.mkdir(parents=True)
    cached.write_text("a library")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = "__import__('os').environ['XDG_CACHE_HOME'] + '/shrinkfx/native/lib.so'"
    box = Sandbox(readable=(cached,))
    assert run(f"assert open({name}).read() == 'a library'", box).returncode == 0
    assert run(f"open({name}, 'w')", box).returncode == 1
    assert cached.read_text() == "a library"


@works
def test_server_answers_and_reports_its_death(
    vices: Path, survivors: Survivors
) -> None:
    command = [sys.executable, str(vices)]
    box = Sandbox(readable=(vices,))
    with Server(command=command, sandbox=box) as server:
        ending = server.ask(request_of("echo", word="here"))
        assert getattr(ending.answer, "why", "") == "here"
        assert server.ask(request_of("segfault")).code == signal.SIGSEGV
    assert survivors() == []
    assert to_exit_status(128 + signal.SIGXCPU) == -signal.SIGXCPU


def test_mode_decides_what_happens_without_bubblewrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "find_problem", lambda: "bwrap is not installed")
    notes: list[str] = []
    assert Sandbox.choose("auto", notes.append) is None
    assert notes == ["no sandbox: bwrap is not installed"]
    assert Sandbox.choose("off", notes.append) is None
    with pytest.raises(UsageError, match="--sandbox on: bwrap is not installed"):
        Sandbox.choose("on", notes.append)
    assert len(notes) == 1


def test_missing_bubblewrap_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("bwrap") is None
    assert "install the package bubblewrap" in find_problem.__wrapped__()
