"""What reading a file may do, if it came to run something."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shrinkfx.worker.loading import sandbox
from shrinkfx.worker.loading.sandbox import run_sandboxed

ROOT = Path(__file__).resolve().parents[2]


def missing() -> list[str]:
    return run_sandboxed(sandbox._sandbox_thread)


pytestmark = pytest.mark.skipif(bool(missing()), reason="the kernel has no such walls")


def attempts(folder: Path) -> dict[str, Callable[[], object]]:
    kept = folder / "kept"
    return {
        "write": lambda: (folder / "new").write_text("x"),
        "append": lambda: kept.open("a"),
        "truncate": lambda: os.truncate(kept, 0),
        "remove": kept.unlink,
        "rename": lambda: kept.rename(folder / "other"),
        "folder": (folder / "sub").mkdir,
        "link": lambda: (folder / "link").symlink_to(kept),
        "program": lambda: subprocess.run(["true"], check=False),
        "tcp": socket.socket,
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "signal": lambda: os.kill(os.getppid(), 0),
        "mode": lambda: kept.chmod(0o777),
        "times": lambda: os.utime(kept),
        "attribute": lambda: os.setxattr(kept, "user.x", b"1"),
        "limit": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)),
        **{name: functools.partial(call, *words) for name, words in CALLS.items()},
    }


PARENT = os.getppid()
CALLS = {
    "alarm": (37, 1000),
    "setitimer": (38, 0, 0, 0),
    "timer_create": (222, 0, 0, 0),
    "handler": (13, signal.SIGUSR2, 0, 0, 8),
    "tkill": (200, PARENT, 0),
    "tgkill": (234, PARENT, PARENT, 0),
    "rt_sigqueueinfo": (129, PARENT, 0, 0),
    "rt_tgsigqueueinfo": (297, PARENT, PARENT, 0, 0),
    "pidfd_send_signal": (424, 0, 0, 0, 0),
    "pidfd_getfd": (438, 0, 0, 0),
}
"""By their numbers on x86_64."""


def call(*words: int) -> None:
    """Make a system call; what fails otherwise than by the wall is done."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*words) < 0 and ctypes.get_errno() == errno.EPERM:
        raise PermissionError(words)


def test_sandbox_prevents_writes_processes_and_connections(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")

    tried_here = attempts(tmp_path)
    if platform.machine() != "x86_64":
        tried_here = {k: v for k, v in tried_here.items() if k not in CALLS}

    def tried() -> list[str]:
        done = []
        for name, attempt in tried_here.items():
            try:
                attempt()
            except PermissionError:
                continue
            done.append(name)
        return done

    assert run_sandboxed(tried) == []
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_own_signals_and_calls_outside_the_sandbox_are_allowed() -> None:
    call(*CALLS["handler"])
    call(234, os.getpid(), threading.get_native_id(), 0)
    run_sandboxed(lambda: call(234, os.getpid(), threading.get_native_id(), 0))
    run_sandboxed(lambda: call(200, threading.get_native_id(), 0))


def test_sandboxed_process_can_abort() -> None:
    read = "from shrinkfx.worker.loading.sandbox import run_sandboxed"
    code = f"import os; {read}; run_sandboxed(os.abort)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGABRT, done.stderr


def test_sandbox_allows_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pt"
    torch.save(torch.arange(3), path)
    assert run_sandboxed(lambda: torch.load(path, mmap=True)).tolist() == [0, 1, 2]
    run_sandboxed(lambda: Path(os.devnull).write_text("x"))


def test_process_is_unrestricted_after_the_sandboxed_call(tmp_path: Path) -> None:
    run_sandboxed(list)
    (tmp_path / "new").write_text("x")
    assert subprocess.run(["true"], check=True).returncode == 0
    socket.socket().close()


def test_sandboxed_call_raises_its_error() -> None:
    with pytest.raises(ZeroDivisionError):
        run_sandboxed(lambda: 1 // 0)


def test_sandboxed_call_is_ended_at_the_cpu_time_limit() -> None:
    code = (
        "from shrinkfx.worker.loading.sandbox import run_sandboxed, limit_cpu_time\n"
        "with limit_cpu_time(1): pass\n"
        "with limit_cpu_time(1): run_sandboxed(lambda: 9 ** 9 ** 9 ** 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == -signal.SIGXCPU, done.stderr
