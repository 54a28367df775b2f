"""Choose versions of PyTorch for a repro, and ask for consent to install them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from platform import python_version

from packaging.version import Version

from shrinkfx.check.environments import folders
from shrinkfx.check.environments.folders import OLDEST, Installer, find_installer
from shrinkfx.check.environments.versions import Fails, bisect, most_runs, order, public
from shrinkfx.errors import Flag, InstallError, UsageError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded

BISECT = "bisect"
"""Requests a bisection instead of listed versions."""

Agree = Callable[[str], bool]
"""Shows the user the planned installation, and returns whether the user agrees."""

_TYPICAL_BYTES = 3_033_000_000
"""Download size of torch 2.14.1 with CUDA libraries."""

_DISK_BYTES, _DISK_PER_DOWNLOAD = 630_000_000, 1.67
"""Disk space of an environment as a linear function of its download size. The line goes
through two measurements: torch 2.13.0 for CPUs downloads 0.2 GB and takes 1.0 GB; torch
2.14.1 with CUDA libraries downloads 3.0 GB and takes 5.7 GB."""

_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 15))
"""Versions of Python for which to look for a wheel, if there is none for this one."""


def refuse(words: str) -> bool:
    """Refuse to install, because nobody can give consent."""
    raise UsageError(words, "\nto install, add ", Flag("--yes"))


@dataclass(frozen=True)
class Choice:
    """Versions of PyTorch to run a repro on.

    Attributes:
        versions: in order, the oldest first; a bisection runs some of them.
        released: all versions in the package index; None if it could not be read.
        here: the version of this interpreter, which needs no environment.
        seen_on: the version on which the failure was seen first, or ''.
        bisects: run a bisection instead of all versions.
        installer: uv or pip; None if the index could not be read.
    """

    versions: tuple[str, ...]
    released: tuple[str, ...] | None
    here: str
    seen_on: str
    bisects: bool
    installer: Installer | None
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
        if (python := folders.find(version)) is not None:
            return python
        installer = self.installer or find_installer()
        self.listener(NoteAdded(f"installing torch {version} with {installer.name}"))
        self.listener(ActivityStarted(f"installing torch {version}"))
        text = f"waiting for another shrinkfx process, which installs torch {version}"
        return folders.make(version, installer, lambda: self.listener(NoteAdded(text)))


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
    folders.remove_unusable()
    if missing and installer is not None:
        limit = len(missing) if chosen else most_runs(versions, here, seen_on)
        _request_consent(missing[-limit:], len(missing[:-limit]), installer, agree)
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
        raise UsageError(Flag("--torch", requested), f"{advice}or {BISECT}")
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
    return [version for version in others if folders.find(version) is None]


def _read_index(*, required: bool) -> tuple[Installer | None, tuple[str, ...] | None]:
    """List all versions in the index; None if it cannot be read and is not required."""
    try:
        installer = find_installer()
        return installer, tuple(installer.versions())
    except InstallError:
        if required:
            raise
    return None, None


def _require_released(
    versions: Sequence[str], released: Sequence[str], installer: Installer
) -> None:
    for version in versions:
        if public(version) in released:
            continue
        option = Flag("--torch", version)
        pythons = [p for p in _PYTHONS if public(version) in installer.versions(p)]
        if pythons:
            text = f": there is no wheel for Python {python_version()}, only for "
            text += f"{', '.join(pythons)}. Make an environment with one of these, and "
            raise UsageError(
                option, f"{text}pass its interpreter with ", Flag("--across")
            )
        other = " For another build, pass its interpreter with "
        text = f": {_why_not(version, released)}{other}"
        raise UsageError(option, text, Flag("--across"))


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


def _request_consent(
    versions: Sequence[str], others: int, installer: Installer, agree: Agree
) -> None:
    """Ask for consent to install versions; show the download size and disk space.

    Args:
        others: number of further versions that a bisection may install instead.
    """
    home, free = folders.home(), folders.free_bytes()
    sizes = [installer.download_bytes(version) for version in versions]
    downloads = [_TYPICAL_BYTES if size is None else size for size in sizes]
    disk = sum(_DISK_BYTES + _DISK_PER_DOWNLOAD * each for each in downloads)
    cost = f"{_gigabytes(sum(downloads))} to download and about {_gigabytes(disk)} "
    cost += "on disk"
    if None in sizes:
        cost += f" ({_NO_SIZES.format(installer.name)})"
    wanted = f"torch {', '.join(versions)}"
    if others:
        total = len(versions) + others
        wanted = f"about {len(versions)} of {total} versions of torch"
    free_now = f"{_gigabytes(free)} are free"
    if disk + max(downloads) > free:  # a wheel stays on disk until it is unpacked
        reason = f"{wanted}: {cost}, but only {free_now}"
        raise InstallError(str(home), reason, folders.ADVICE)
    plan = f"shrinkfx needs to install {wanted} with {installer.name} into {home}"
    if not agree(f"{plan}: {cost}; {free_now}"):
        raise UsageError("nothing was installed")


_NO_SIZES = "{} does not report sizes: these are typical of builds with CUDA libraries"


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB"
