"""What reading a file may do, if it came to run something."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shrinkfx.worker import wall
from shrinkfx.worker.wall import behind_wall

ROOT = Path(__file__).resolve().parents[2]


def missing() -> list[str]:
    return behind_wall(wall._raise_wall)


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
    }


def test_inside_nothing_is_written_started_or_connected(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")

    def tried() -> list[str]:
        done = []
        for name, attempt in attempts(tmp_path).items():
            try:
                attempt()
            except PermissionError:
                continue
            done.append(name)
        return done

    assert behind_wall(tried) == []
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "kept"


def test_what_reading_needs_is_possible(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pt"
    torch.save(torch.arange(3), path)
    assert behind_wall(lambda: torch.load(path, mmap=True)).tolist() == [0, 1, 2]
    behind_wall(lambda: Path(os.devnull).write_text("x"))


def test_afterwards_the_process_is_as_free_as_before(tmp_path: Path) -> None:
    behind_wall(list)
    (tmp_path / "new").write_text("x")
    assert subprocess.run(["true"], check=True).returncode == 0
    socket.socket().close()


def test_errors_come_out() -> None:
    with pytest.raises(ZeroDivisionError):
        behind_wall(lambda: 1 // 0)


def test_a_call_that_never_ends_is_ended_by_the_kernel() -> None:
    code = (
        "from shrinkfx.worker.wall import behind_wall, limited_to\n"
        "with limited_to(1): pass\n"
        "with limited_to(1): behind_wall(lambda: 9 ** 9 ** 9 ** 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == -signal.SIGXCPU, done.stderr
