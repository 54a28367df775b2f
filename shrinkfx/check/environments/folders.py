"""Environments on disk: their folders, and how packages are installed in them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from shrinkfx.check.client.orphans import clear_orphans, run_command
from shrinkfx.check.environments.versions import order, public
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.system import user_cache
from shrinkfx.system.folder_lock import is_folder_locked, lock_folder

# A venv cannot be moved, because its files contain their paths. So each environment
# is made in its final place, and counts as complete once a marker file exists next to
# it.

_MARKER, _VENV = "complete", "venv"

_TEMPORARY = "tmp"
"""The folder of an installer's temporary files, which an installer that is killed
cannot remove."""

_UNUSED_S = 60 * 86_400.0
"""Seconds after which an unused environment is removed."""

_VARIABLE = "XDG_CACHE_HOME"
"""The environment variable that names another cache folder."""

ADVICE = f"free some space, or set {_VARIABLE} to a folder on another disk"


def home() -> Path:
    """Return the folder of all environments; it need not exist.

    It is not in the folder of compiled files, because unused files are removed from
    that folder one by one.
    """
    return user_cache.cache_folder("shrinkfx-environments").absolute()


def free_bytes() -> int:
    """Return the free space of the disk on which environments are made."""
    place = home()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def find(version: str) -> str | None:
    """Return the interpreter of a complete environment, and mark it as used now."""
    place = _place(version)
    python = place / _VENV / "bin" / "python"
    if not (place / _MARKER).exists() or not os.access(python, os.X_OK):
        return None
    with contextlib.suppress(OSError):  # a read-only disk
        os.utime(place / _MARKER)
    return str(python)


def make(version: str, installer: Installer, wait: Callable[[], None]) -> str:
    """Return the interpreter of an environment; make the environment if necessary.

    Args:
        wait: called once if another process is making the same environment.

    Raises:
        InstallError: the environment cannot be made; no part of it remains.
    """
    place = _place(version)
    if is_folder_locked(place):
        wait()
    try:
        with lock_folder(place, _VARIABLE, waits=True):
            python = find(version) or _make(version, installer, place)
    except OSError as error:
        raise InstallError(str(place), str(error.strerror), ADVICE) from error
    finally:
        _remove_if_empty(place)
    return python


def _make(version: str, installer: Installer, place: Path) -> str:
    _empty(place)
    temporary = place / _TEMPORARY
    try:
        temporary.mkdir()
        installer.install(version, place / _VENV, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        (place / _MARKER).touch()
    except BaseException:
        _empty(place)
        raise
    return str(place / _VENV / "bin" / "python")


def remove_unusable() -> None:
    """Remove interrupted installations, and environments unused for 60 days.

    Kill installers first that have outlived their shrinkfx process.
    """
    clear_orphans()
    for place in home().glob("*/"):
        with contextlib.suppress(UsageError, OSError), lock_folder(place, _VARIABLE):
            if not _is_usable(place):
                _empty(place)
        _remove_if_empty(place)


def _is_usable(place: Path) -> bool:
    try:
        return (place / _MARKER).stat().st_mtime > time.time() - _UNUSED_S
    except OSError:
        return False


def _empty(place: Path) -> None:
    (place / _MARKER).unlink(missing_ok=True)
    for folder in (_VENV, _TEMPORARY):
        shutil.rmtree(place / folder, ignore_errors=True)


def _remove_if_empty(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.rmdir()


def _place(version: str) -> Path:
    return home() / f"torch-{version}-{sys.implementation.cache_tag}"


OLDEST = "2.6.0"
"""The first release in which AOTInductor compiles a program as a repro does it."""

_WHEELS = ("--only-binary", ":all:")
"""Use wheels only: a build runs code of each package, and may need a compiler."""

_QUERY_S, _INSTALL_S = 300.0, 3600.0
"""Time limits: for a query of the index, and for an installation of gigabytes."""


@dataclass(frozen=True)
class Uv:
    """Install with uv, whose cache several environments share."""

    path: str
    name: str = "uv"

    def versions(self, python: str = "") -> list[str]:
        """List the versions of PyTorch from ``OLDEST`` on that the index has.

        Args:
            python: a version of Python such as ``3.12``; '' for this interpreter's.

        Returns:
            Releases with a wheel for that Python, the oldest first.

        Raises:
            InstallError: the index cannot be read.
        """
        # uv has no command that lists versions. Each call returns the newest version
        # below the previous one.
        options = ("--python-version", python) if python else ()
        newest_first: list[str] = []
        while True:
            bound = f",<{newest_first[-1]}" if newest_first else ""
            done = self._resolve(f"torch>={OLDEST}{bound}\n", "--no-deps", *options)
            if done.returncode == _NO_SOLUTION and (newest_first or python):
                return newest_first[::-1]
            _require_success(self, "the package index", done)
            newest_first.append(public(done.stdout.strip().removeprefix("torch==")))

    def download_bytes(self, version: str) -> int | None:
        """Return the download size of a version; None if the index has no sizes."""
        wanted = "\n".join(_packages(version))
        done = self._resolve(wanted, "--format", "pylock.toml")
        _require_success(self, f"torch {version}", done)
        packages = tomllib.loads(done.stdout)["packages"]
        sizes = [file.get("size") for each in packages for file in each["wheels"]]
        return None if None in sizes else sum(sizes)

    def install(self, version: str, folder: Path, temporary: Path) -> None:
        """Make an environment in a folder that does not exist yet.

        Args:
            temporary: folder of temporary files, which the caller removes.

        Raises:
            InstallError: the installation fails; a part of it may remain.
        """
        make = ("venv", "--quiet", "--no-project", "--python", sys.executable)
        fill = ("pip", "install", "--quiet", "--python", str(_python(folder)), *_WHEELS)
        for words in ((*make, str(folder)), (*fill, *_packages(version))):
            completed = run([self.path, *words], _INSTALL_S, temporary=temporary)
            _require_success(self, f"torch {version}", completed)

    def _resolve(self, wanted: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [self.path, "pip", "compile", "-", "--quiet", "--no-header"]
        command += ["--no-annotate", *_WHEELS, "--python", sys.executable]
        return run([*command, *options], _QUERY_S, wanted)


_NO_SOLUTION = 1
"""Exit status of uv if no version matches. Another status is a failure to look."""


@dataclass(frozen=True)
class Pip:
    """Install with the pip of this interpreter, into a venv without pip."""

    name: str = "pip"

    def versions(self, python: str = "") -> list[str]:
        """List the versions of PyTorch, as ``Uv.versions`` does."""
        options = ("--python-version", python) if python else ()
        arguments = ("index", "versions", "torch", *_WHEELS, *options)
        completed = self._pip(_QUERY_S, *arguments, "--json")
        if "no such option" in completed.stderr:  # before pip 25.1
            completed = self._pip(_QUERY_S, *arguments)
        if completed.returncode and python:
            return []
        _require_success(self, "the package index", completed)
        released = {public(version) for version in _read_versions(completed.stdout)}
        return sorted((v for v in released if order(v) >= order(OLDEST)), key=order)

    def download_bytes(self, version: str) -> int | None:
        """Return None, because pip does not know sizes before it downloads.

        The dry run of pip 23.2 and of pip 26.3 downloaded 2.7 GB for torch 2.12.1.
        """
        return None

    def install(self, version: str, folder: Path, temporary: Path) -> None:
        """Make an environment, as ``Uv.install`` does."""
        make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        _require_success(self, f"torch {version}", run(make, _INSTALL_S))
        into = ("--python", str(_python(folder)), "install", *_WHEELS)
        words = (*into, *_packages(version))
        completed = self._pip(_INSTALL_S, *words, temporary=temporary)
        _require_success(self, f"torch {version}", completed)

    def _pip(
        self, limit_s: float, *words: str, temporary: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        pip = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check")
        return run([*pip, *words], limit_s, temporary=temporary)


Installer = Uv | Pip


def find_installer() -> Installer:
    """Choose uv if it is on PATH, else pip.

    Raises:
        InstallError: neither is installed.
    """
    if (uv := shutil.which("uv")) is not None:
        return Uv(uv)
    # Not importlib.util.find_spec: setuptools has an import hook for pip, which warns
    # if distutils has been imported.
    if PathFinder.find_spec("pip") is not None:
        return Pip()
    reason = "this Python has no pip, and uv is not on PATH"
    advice = "install uv, or install pip with: python -m ensurepip"
    raise InstallError(sys.executable, reason, advice)


def _read_versions(text: str) -> list[str]:
    """Parse the output of ``pip index versions``: JSON, or a line of text."""
    if text.startswith("{"):
        return [str(version) for version in json.loads(text)["versions"]]
    match = re.search(r"^Available versions: (.*)$", text, re.MULTILINE)
    return match[1].split(", ") if match else []


def _packages(version: str) -> tuple[str, ...]:
    """List the packages that a repro needs.

    setuptools is among them, because AOTInductor imports it in some versions of PyTorch
    that do not require it (2.6, 2.9 and 2.10 with Python 3.11).
    """
    return f"torch=={version}", "numpy", "setuptools"


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def run(
    command: Sequence[str],
    limit_s: float,
    text: str = "",
    temporary: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of an installer.

    Args:
        text: the standard input.
        temporary: folder of temporary files; None for the usual one.

    Raises:
        InstallError: the command did not end in time.
    """
    # Packages on PYTHONPATH would count as installed in the environment.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if temporary is not None:
        env["TMPDIR"] = str(temporary)
    try:
        return run_command(command, limit_s, text, env)
    except subprocess.TimeoutExpired as error:
        reason = f"it did not end within {limit_s:.0f} s"
        raise InstallError(Path(command[0]).name, reason, _ADVICE) from error


def _require_success(
    installer: Installer, package: str, completed: subprocess.CompletedProcess[str]
) -> None:
    if completed.returncode:
        rows = [row.strip() for row in completed.stderr.splitlines() if row.strip()]
        # uv breaks its sentences into lines. pip's last line is about the package, even
        # if pip has found no server.
        message = " ".join(rows if isinstance(installer, Uv) else rows[-1:])
        broken = _NO_CONNECTION.search(completed.stderr)
        if broken and "No matching distribution" in message:
            message = f"no connection: {broken[1]}"
        message = message or f"exit status {completed.returncode}"
        raise InstallError(package, f"{installer.name} failed: {message}", _ADVICE)


_NO_CONNECTION = re.compile(r"WARNING: Retrying .*? after connection broken by '(.*)':")

_ADVICE = (
    "check the network and the configured package index, or pass the interpreter of an "
    "existing environment with --across"
)
