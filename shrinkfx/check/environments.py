"""Environments with other versions of PyTorch: choose, make, find and remove them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from platform import python_version

from packaging.version import Version

from shrinkfx.check.client.orphans import clear_orphans, run_command
from shrinkfx.check.torch_versions import Fails, bisect, most_runs, order, public
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded
from shrinkfx.system.folders import cache_folder, is_folder_locked, lock_folder

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
    return cache_folder("shrinkfx-environments").absolute()


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


def make(version: str, installer: Pip, wait: Callable[[], None]) -> str:
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


def _make(version: str, installer: Pip, place: Path) -> str:
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


class Pip:
    """Installs with the pip of this interpreter, into a venv without pip."""

    def versions(self, python: str = "") -> list[str]:
        """List the versions of PyTorch from ``OLDEST`` on that the index has.

        Args:
            python: a version of Python such as ``3.12``; '' for this interpreter's.

        Returns:
            Releases with a wheel for that Python, the oldest first.

        Raises:
            InstallError: the index cannot be read.
        """
        options = ("--python-version", python) if python else ()
        arguments = ("index", "versions", "torch", *_WHEELS, *options)
        completed = self._pip(_QUERY_S, *arguments, "--json")
        if "no such option" in completed.stderr:  # before pip 25.1
            completed = self._pip(_QUERY_S, *arguments)
        if completed.returncode and python:
            return []
        _require_success("the package index", completed)
        released = {public(version) for version in _read_versions(completed.stdout)}
        return sorted((v for v in released if order(v) >= order(OLDEST)), key=order)

    def install(self, version: str, folder: Path, temporary: Path) -> None:
        """Make an environment in a folder that does not exist yet.

        Args:
            temporary: folder of temporary files, which the caller removes.

        Raises:
            InstallError: the installation fails; a part of it may remain.
        """
        make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        _require_success(f"torch {version}", run(make, _INSTALL_S))
        into = ("--python", str(_python(folder)), "install", *_WHEELS)
        words = (*into, *_packages(version))
        completed = self._pip(_INSTALL_S, *words, temporary=temporary)
        _require_success(f"torch {version}", completed)

    def _pip(
        self, limit_s: float, *words: str, temporary: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        pip = (sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check")
        return run([*pip, *words], limit_s, temporary=temporary)


def find_installer() -> Pip:
    """Return the installer.

    Raises:
        InstallError: this Python has no pip.
    """
    # Not importlib.util.find_spec: setuptools has an import hook for pip, which warns
    # if distutils has been imported.
    if PathFinder.find_spec("pip") is not None:
        return Pip()
    advice = "install pip with: python -m ensurepip"
    raise InstallError(sys.executable, "this Python has no pip", advice)


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
    temporary: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of an installer.

    Args:
        temporary: folder of temporary files; None for the usual one.

    Raises:
        InstallError: the command did not end in time.
    """
    # Packages on PYTHONPATH would count as installed in the environment.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if temporary is not None:
        env["TMPDIR"] = str(temporary)
    try:
        return run_command(command, limit_s, env)
    except subprocess.TimeoutExpired as error:
        reason = f"it did not end within {limit_s:.0f} s"
        raise InstallError(Path(command[0]).name, reason, _ADVICE) from error


def _require_success(package: str, completed: subprocess.CompletedProcess[str]) -> None:
    if completed.returncode:
        rows = [row.strip() for row in completed.stderr.splitlines() if row.strip()]
        # The last line is about the package, even if pip has found no server.
        message = rows[-1] if rows else f"exit status {completed.returncode}"
        broken = _NO_CONNECTION.search(completed.stderr)
        if broken and "No matching distribution" in message:
            message = f"no connection: {broken[1]}"
        raise InstallError(package, f"pip failed: {message}", _ADVICE)


_NO_CONNECTION = re.compile(r"WARNING: Retrying .*? after connection broken by '(.*)':")

_ADVICE = (
    "check the network and the configured package index, or pass the interpreter of an "
    "existing environment with --across"
)


# The choice of versions for a repro, and the request for consent to install them.

BISECT = "bisect"
"""Requests a bisection instead of listed versions."""

Agree = Callable[[str], bool]
"""Shows the user the planned installation, and returns whether the user agrees."""

_DOWNLOAD_BYTES, _DISK_BYTES = 3_033_000_000, 5_695_000_000
"""The sizes of torch 2.14.1 with CUDA libraries, in the index and on disk. pip does not
know sizes before it downloads: a dry run of pip 23.2 and of pip 26.3 downloaded 2.7 GB
for torch 2.12.1."""

_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 15))
"""Versions of Python for which to look for a wheel, if there is none for this one."""


def refuse(words: str) -> bool:
    """Refuse to install, because nobody can give consent."""
    raise UsageError(f"{words}\nto install, add --yes")


@dataclass(frozen=True)
class Choice:
    """Versions of PyTorch to run a repro on.

    Attributes:
        versions: in order, the oldest first; a bisection runs some of them.
        released: all versions in the package index; None if it could not be read.
        here: the version of this interpreter, which needs no environment.
        seen_on: the version on which the failure was seen first, or ''.
        bisects: run a bisection instead of all versions.
        installer: None if the index could not be read.
    """

    versions: tuple[str, ...]
    released: tuple[str, ...] | None
    here: str
    seen_on: str
    bisects: bool
    installer: Pip | None
    listener: Listener

    def visit(self, fails: Fails) -> None:
        """Run the repro on each version, or on those that a bisection chooses."""
        if self.bisects:
            bisect(self.versions, fails, self.here, self.seen_on)
            return
        for version in self.versions:
            fails(version)

    def is_here(self, version: str) -> bool:
        """Return whether a version is the one of this interpreter."""
        return _is_same(version, self.here)

    def python(self, version: str) -> str:
        """Return the interpreter of an environment; make the environment if necessary.

        Raises:
            InstallError: the environment cannot be made.
        """
        if (python := find(version)) is not None:
            return python
        installer = self.installer or find_installer()
        self.listener(NoteAdded(f"installing torch {version} with pip"))
        self.listener(ActivityStarted(f"installing torch {version}"))
        text = f"waiting for another shrinkfx process, which installs torch {version}"
        return make(version, installer, lambda: self.listener(NoteAdded(text)))


def choose(
    requested: str, here: str, seen_on: str, agree: Agree, listener: Listener
) -> Choice:
    """Choose versions, and ask for consent to install the missing ones.

    Args:
        requested: versions separated by commas, or ``bisect``.
        here: the version of this interpreter.
        seen_on: the release on which the failure was seen first, or ''.
        agree: asks the user for consent.

    Raises:
        UsageError: a version is unknown, or the user does not agree.
        InstallError: the index cannot be read, or the disk has too little space.
    """
    chosen = _parse(requested)
    missing = _missing(chosen, here)
    listener(ActivityStarted("reading the package index"))
    installer, released = _read_index(required=bool(missing or not chosen))
    if installer is not None and released is not None:
        _require_released(missing, released, installer)
    versions = chosen or _up_to_newest(released or (), here, seen_on)
    missing = _missing(versions, here)
    remove_unusable()
    if missing and installer is not None:
        limit = len(missing) if chosen else most_runs(versions, here, seen_on)
        _request_consent(missing[-limit:], len(missing[:-limit]), agree)
    return Choice(versions, released, here, seen_on, not chosen, installer, listener)


def _up_to_newest(released: Sequence[str], here: str, seen_on: str) -> tuple[str, ...]:
    """List the releases up to the newer of this version and the one of the failure."""
    newest = max(order(here), order(seen_on))
    others = [v for v in released if order(v) <= newest and not _is_same(v, here)]
    return tuple(sorted([*others, here], key=order))


def _parse(requested: str) -> tuple[str, ...]:
    """Return the listed versions, the oldest first; none for a bisection."""
    if requested == BISECT:
        return ()
    words = [word.strip() for word in requested.split(",")]
    if not all(_VERSION.fullmatch(word) and order(word) > _NONE for word in words):
        advice = ": give versions separated by commas, such as 2.13.0,2.14.1, "
        raise UsageError(f"--torch {requested}", f"{advice}or {BISECT}")
    return tuple(sorted({_canonical(word) for word in words}, key=order))


def _canonical(word: str) -> str:
    """Write a version as the package index does: 2.13 and 2.13.0+cpu are 2.13.0.

    The index chooses the build of a release, so the local label has no meaning there.
    """
    return re.sub(r"^(\d+\.\d+)(?![\d.])", r"\1.0", str(order(word)))


_VERSION, _NONE = re.compile(r"\d+(\.\d+)+[\w.+]*"), Version("0")


def _is_same(version: str, here: str) -> bool:
    return version in (here, public(here))


def _missing(versions: Sequence[str], here: str) -> list[str]:
    others = (version for version in versions if not _is_same(version, here))
    return [version for version in others if find(version) is None]


def _read_index(*, required: bool) -> tuple[Pip | None, tuple[str, ...] | None]:
    """List all versions in the index; None if it cannot be read and is not required."""
    try:
        installer = find_installer()
        return installer, tuple(installer.versions())
    except InstallError:
        if required:
            raise
    return None, None


def _require_released(
    versions: Sequence[str], released: Sequence[str], installer: Pip
) -> None:
    for version in versions:
        if public(version) in released:
            continue
        option = f"--torch {version}"
        pythons = [p for p in _PYTHONS if public(version) in installer.versions(p)]
        if pythons:
            text = f": there is no wheel for Python {python_version()}, only for "
            text += f"{', '.join(pythons)}. Make an environment with one of these, and "
            raise UsageError(option, f"{text}pass its interpreter with --across")
        other = " For another build, pass its interpreter with "
        text = f": {_why_not(version, released)}{other}"
        raise UsageError(option, f"{text}--across")


def _why_not(version: str, released: Sequence[str]) -> str:
    """Explain why a version cannot be tested, and name the nearest that can."""
    if order(version) < order(OLDEST):
        return f"the oldest version that can be tested is {OLDEST}."
    if not released:
        return f"the package index has no version from {OLDEST} on."
    older = [other for other in released if order(other) < order(version)]
    newer = [other for other in released if order(other) > order(version)]
    if not newer:
        return f"the newest version in the package index is {released[-1]}."
    nearest = " and ".join([*older[-1:], *newer[:1]])
    return f"the package index has no such version. The nearest are {nearest}."


def _request_consent(versions: Sequence[str], others: int, agree: Agree) -> None:
    """Ask for consent to install versions; show the download size and disk space.

    Args:
        others: number of further versions that a bisection may install instead.
    """
    place, free = home(), free_bytes()
    download, disk = (len(versions) * s for s in (_DOWNLOAD_BYTES, _DISK_BYTES))
    cost = f"{_gigabytes(download)} to download and about {_gigabytes(disk)} on disk"
    cost += f" ({_NO_SIZES})"
    wanted = f"torch {', '.join(versions)}"
    if others:
        total = len(versions) + others
        wanted = f"about {len(versions)} of {total} versions of torch"
    free_now = f"{_gigabytes(free)} are free"
    # A wheel stays on disk until it is unpacked.
    if disk + _DOWNLOAD_BYTES > free:
        reason = f"{wanted}: {cost}, but only {free_now}"
        raise InstallError(str(place), reason, ADVICE)
    plan = f"shrinkfx needs to install {wanted} with pip into {place}"
    if not agree(f"{plan}: {cost}; {free_now}"):
        raise UsageError("nothing was installed")


_NO_SIZES = "pip does not report sizes: these are typical of builds with CUDA libraries"


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB"
