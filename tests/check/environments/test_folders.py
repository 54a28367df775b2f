"""An environment is complete or absent, and only one process makes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shrinkfx.check import environments
from shrinkfx.check.environments import Pip, find, home, make, remove_unusable
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.system.folders import lock_folder

pytestmark = [
    pytest.mark.processes,
    pytest.mark.usefixtures("index", "pip_alone"),
]

DAY_S = 86_400.0

Survivors = Callable[[], list[str]]
Waiting = Callable[[Callable[[], object]], None]

SLOW = """
import sys, time
from pathlib import Path
from shrinkfx.check import environments
from shrinkfx.check import environments
from shrinkfx.check.environments import Pip, run

class Slow(Pip):
    def install(self, version, folder, temporary):
        super().install(version, folder, temporary)
        run(["/bin/sh", "-c", "touch $TMPDIR/left; sleep 99"], 99, temporary=temporary)

environments.make("2.13.0", Slow(), lambda: None)
"""
"""A process that is still making an environment when the test kills it."""


class Broken(Pip):
    """An installer that raises in the middle of an installation."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def install(self, version: str, folder: Path, temporary: Path) -> None:
        super().install(version, folder, temporary)
        (temporary / "left").touch()
        raise self.error


def ignore() -> None:
    """Wait without a message."""


def names() -> list[str]:
    return sorted(path.name for path in home().glob("*"))


def test_environment_is_made_once_and_found_again() -> None:
    assert find("2.13.0") is None
    python = make("2.13.0", Pip(), ignore)
    assert find("2.13.0") == python
    error = Broken(InstallError("torch", "it was made again", ""))
    assert make("2.13.0", error, ignore) == python
    assert names() == [f"torch-2.13.0-{sys.implementation.cache_tag}"]


@pytest.mark.parametrize(
    "error", [InstallError("torch", "no", ""), KeyboardInterrupt(), OSError(28, "full")]
)
def test_interrupted_installation_leaves_nothing(error: BaseException) -> None:
    expected = InstallError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        make("2.13.0", Broken(error), ignore)
    assert find("2.13.0") is None
    assert names() == []


def test_environment_without_a_working_python_is_made_again() -> None:
    python = Path(make("2.13.0", Pip(), ignore))
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert find("2.13.0") is None
    assert make("2.13.0", Pip(), ignore) == str(python)
    assert find("2.13.0")


def test_second_process_waits_for_the_first(wait_for: Waiting) -> None:
    with lock_folder(environments._place("2.13.0")):
        waits = threading.Event()
        found: list[str] = []

        def second() -> None:
            found.append(make("2.13.0", Pip(), waits.set))

        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(60)
        time.sleep(0.1)
        assert found == []
    thread.join(120)
    assert found == [find("2.13.0")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_next_start_removes_the_files_of_a_killed_process(
    number: int, wait_for: Waiting, survivors: Survivors
) -> None:
    """The installer may still run; other environments stay unchanged."""
    kept = make("2.14.0", Pip(), ignore)
    root = str(Path(environments.__file__).parents[2])
    command = [sys.executable, "-c", SLOW]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}) as process:
        installed = environments._place("2.13.0") / "venv" / "bin" / "python"
        wait_for(installed.exists)
        remove_unusable()  # the process still makes it
        assert installed.exists()
        os.kill(process.pid, number)
    remove_unusable()
    assert names() == [f"torch-2.14.0-{sys.implementation.cache_tag}"]
    assert find("2.14.0") == kept
    assert survivors() == []


def test_environment_unused_for_60_days_is_removed() -> None:
    for version in ("2.13.0", "2.14.0"):
        make(version, Pip(), ignore)
    for version, days in (("2.13.0", 61), ("2.14.0", 59)):
        marker = environments._place(version) / "complete"
        before = time.time() - days * DAY_S
        os.utime(marker, (before, before))
    remove_unusable()
    assert find("2.13.0") is None
    assert find("2.14.0")  # this marks it as used now
    marker = environments._place("2.14.0") / "complete"
    assert time.time() - marker.stat().st_mtime < DAY_S


def test_unwritable_cache_folder_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises((InstallError, UsageError), match="XDG_CACHE_HOME"):
        make("2.13.0", Pip(), ignore)
