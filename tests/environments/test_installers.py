"""Calls of pip and uv, and the end of their processes."""

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
from support.wheels import ANY, VERSIONS, served

from shrinkfx.check.environments import folders
from shrinkfx.check.environments.folders import find_installer, run
from shrinkfx.errors import InstallError

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("index")]

SLEEPS = (
    "import subprocess, time; subprocess.Popen(['/bin/sleep', '99']); time.sleep(99)"
)
"""A command that starts another one."""


def test_uv_is_preferred_to_pip(installer_name: str) -> None:
    assert find_installer().name == installer_name


@pytest.mark.usefixtures("installer_name")
def test_only_versions_with_a_wheel_for_the_python_are_listed() -> None:
    installer = find_installer()
    assert installer.versions() == VERSIONS
    assert "2.8.0" in installer.versions("3.9")


@pytest.mark.usefixtures("installer_name")
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


@pytest.mark.usefixtures("installer_name")
def test_failed_installation_reports_the_message_of_the_installer(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        InstallError, match=r"torch 2\.13\.7: (pip|uv) failed: .*"
    ) as caught:
        find_installer().install("2.13.7", tmp_path / "venv", tmp_path)
    assert "Nothing was changed." in str(caught.value)
    assert "torch==2.13.7" in caught.value.reason


def test_sizes_are_those_of_the_index(
    installer_name: str, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip reports none, because it would have to download the wheels."""
    installer = find_installer()
    assert installer.download_bytes("2.13.0") is None
    names = ("torch-2.13.0", "numpy-80.0.0", "setuptools-80.0.0")
    expected = sum((index / f"{name}-{ANY}.whl").stat().st_size for name in names)
    monkeypatch.delenv("UV_CONFIG_FILE")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    with served(index) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        known = installer.download_bytes("2.13.0")
    assert known == (expected if installer_name == "uv" else None)


def test_unreachable_index_is_an_error_and_not_an_empty_list(
    installer_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    nowhere = "http://127.0.0.1:9/simple"  # no server listens at this port
    monkeypatch.setenv("PIP_INDEX_URL", nowhere)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", nowhere)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(
        InstallError, match=f"the package index: {installer_name} failed: "
    ) as caught:
        find_installer().versions()
    assert "Nothing was changed.\ncheck the network" in str(caught.value)
    assert "refused" in caught.value.reason.lower()


@pytest.mark.usefixtures("no_installer")
def test_error_without_pip_and_uv_gives_advice() -> None:
    with pytest.raises(
        InstallError, match="install uv, or install pip with: python -m ensurepip"
    ):
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
    assert folders._read_versions(text) == ["2.15.0", "2.13.0+cpu"]
    assert folders._read_versions('{"versions": ["2.15.0"]}') == ["2.15.0"]
