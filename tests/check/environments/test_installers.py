"""Calls of pip, and the end of its processes."""

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
from support.wheels import VERSIONS

from shrinkfx.check import environments
from shrinkfx.check.environments import find_installer, run
from shrinkfx.errors import InstallError

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("index")]

SLEEPS = (
    "import subprocess, time; subprocess.Popen(['/bin/sleep', '99']); time.sleep(99)"
)
"""A command that starts another one."""


def test_only_versions_with_a_wheel_for_the_python_are_listed() -> None:
    installer = find_installer()
    assert installer.versions() == VERSIONS
    assert "2.8.0" in installer.versions("3.9")


def test_environment_has_torch_and_numpy_but_no_package_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.__file__))
    folder = tmp_path / "venv"
    find_installer().install("2.13.0", folder, tmp_path)
    program = "import torch, numpy, setuptools; print(torch.__version__); import pytest"
    python = str(folder / "bin" / "python")
    command = [python, "-E", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "2.13.0\n"
    assert "No module named 'pytest'" in done.stderr


def test_failed_installation_reports_the_message_of_the_installer(
    tmp_path: Path,
) -> None:
    with pytest.raises(InstallError, match=r"torch 2\.13\.7: pip failed: .*") as caught:
        find_installer().install("2.13.7", tmp_path / "venv", tmp_path)
    assert "Nothing was changed." in str(caught.value)
    assert "torch==2.13.7" in caught.value.reason


def test_unreachable_index_is_an_error_and_not_an_empty_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    nowhere = "http://127.0.0.1:9/simple"  # no server listens at this port
    monkeypatch.setenv("PIP_INDEX_URL", nowhere)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(InstallError, match="the package index: pip failed: ") as caught:
        find_installer().versions()
    assert "Nothing was changed.\ncheck the network" in str(caught.value)
    assert "refused" in caught.value.reason.lower()


@pytest.mark.usefixtures("no_installer")
def test_error_without_pip_gives_advice() -> None:
    with pytest.raises(InstallError, match="install pip with: python -m ensurepip"):
        find_installer()


def test_timeout_kills_a_command_and_its_descendants(
    survivors: Callable[[], list[str]],
) -> None:
    with pytest.raises(InstallError, match=r"did not end within 1 s"):
        run([sys.executable, "-c", SLEEPS], 1.0)
    assert survivors() == []


def test_ctrl_c_kills_a_command_and_its_descendants(
    survivors: Callable[[], list[str]],
    marked: Callable[[], list[int]],
    wait_for: Callable[[Callable[[], object]], None],
) -> None:
    def interrupt() -> None:
        wait_for(lambda: len(marked()) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run([sys.executable, "-c", SLEEPS], 99.0)
    thread.join()
    assert time.monotonic() - began < 90
    assert survivors() == []


def test_output_of_pip_without_json_is_parsed() -> None:
    text = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0+cpu\n  LATEST: 2.15.0\n"
    assert environments._read_versions(text) == ["2.15.0", "2.13.0+cpu"]
    assert environments._read_versions('{"versions": ["2.15.0"]}') == ["2.15.0"]
