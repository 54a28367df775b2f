"""Which versions of PyTorch a repro is run on, and the consent to install them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from platform import python_version

from shrinkfx.environments import folders
from shrinkfx.environments.installers import OLDEST, Installer, find_installer
from shrinkfx.environments.versions import Fails, bisect, most_runs, order, public
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.events import Doing, Listener, Noted
from shrinkfx.wording import Flag

BISECT = "bisect"
"""Asks for a bisection in the place of versions."""

Agree = Callable[[str], bool]
"""Shows the user what would be installed, and returns whether that may be done."""

_TYPICAL_BYTES = 3_033_000_000
"""Download of torch 2.14.1 with CUDA libraries."""

_DISK_BYTES, _DISK_PER_DOWNLOAD = 630_000_000, 1.67
"""A line through two measured points, from wheels to an environment: torch 2.13.0 for
CPUs has 0.2 and 1.0 GB, 2.14.1 with CUDA libraries 3.0 and 5.7 GB."""

_PYTHONS = tuple(f"3.{minor}" for minor in range(9, 15))
"""Versions of Python that a wheel is looked for, where this one has none."""


def refuse(words: str) -> bool:
    """Install nothing, where nobody can be asked."""
    raise UsageError(words, "\nto install, add ", Flag("--yes"))


@dataclass(frozen=True)
class Choice:
    """Versions of PyTorch to run a repro on.

    Attributes:
        versions: the oldest first; a bisection runs some of them.
        released: all versions in the index; None where it could not be read.
        here: the version of this interpreter, which needs no environment.
        seen_on: the version on which the failure was seen first, or ''.
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
            bisect(self.versions, fails, self.seen_on)
            return
        for version in self.versions:
            fails(version)

    def is_here(self, version: str) -> bool:
        """Tell whether this interpreter has a version."""
        return _is_same(version, self.here)

    def python(self, version: str) -> str:
        """Return the interpreter of an environment, which is made if it is missing.

        Raises:
            InstallError: it cannot be made.
        """
        if (python := folders.find(version)) is not None:
            return python
        installer = self.installer or find_installer()
        self.listener(Noted(f"installing torch {version} with {installer.name}"))
        self.listener(Doing(f"installing torch {version}"))
        text = f"another shrinkfx installs torch {version}: waiting for its end"
        return folders.make(version, installer, lambda: self.listener(Noted(text)))


def choose(asked: str, seen_on: str, agree: Agree, listener: Listener) -> Choice:
    """Choose versions, and ask for consent to install those that are missing.

    Args:
        asked: versions separated by commas, or ``bisect``.
        seen_on: the release on which the failure was seen first, or ''.

    Raises:
        UsageError: a version is unknown, or nothing may be installed.
        InstallError: the index cannot be read, or the disk has too little space.
    """
    folders.remove_unusable()
    here, named = installed_version("torch"), _parse(asked)
    missing = _missing(named, here)
    listener(Doing("reading the index"))
    installer, released = _read_index(required=bool(missing or not named))
    if installer is not None and released is not None:
        _require_released(missing, released, installer)
    older = tuple(v for v in released or () if order(v) < order(here))
    versions = named or (*older, here)
    missing = _missing(versions, here)
    if missing and installer is not None:
        most = len(missing) if named else most_runs(versions, seen_on)
        _request_consent(missing[-most:], len(missing[:-most]), installer, agree)
    return Choice(versions, released, here, seen_on, not named, installer, listener)


def _parse(asked: str) -> tuple[str, ...]:
    """Return the named versions, the oldest first; none for a bisection."""
    if asked == BISECT:
        return ()
    versions = [word.strip() for word in asked.split(",")]
    if not all(_VERSION.fullmatch(version) for version in versions):
        advice = f": versions are separated by commas: 2.13.0,2.14.1; or {BISECT}"
        raise UsageError(Flag("--torch", asked), advice)
    return tuple(sorted(dict.fromkeys(versions), key=order))


_VERSION = re.compile(r"\d+(\.\d+)+[\w.+]*")


def _is_same(version: str, here: str) -> bool:
    return version in (here, public(here))


def _missing(versions: Sequence[str], here: str) -> list[str]:
    others = (version for version in versions if not _is_same(version, here))
    return [version for version in others if folders.find(version) is None]


def _read_index(*, required: bool) -> tuple[Installer | None, tuple[str, ...] | None]:
    """List all versions in the index; nothing where it cannot be read, if allowed."""
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
        asked = Flag("--torch", version)
        pythons = [p for p in _PYTHONS if public(version) in installer.versions(p)]
        if pythons:
            text = f": no wheel for Python {python_version()}, but for "
            text += f"{', '.join(pythons)}: make an environment with one of these, and "
            raise UsageError(
                asked, f"{text}name its interpreter with ", Flag("--across")
            )
        near = difflib.get_close_matches(public(version), released, n=3, cutoff=0.0)
        text = f": no such version from {OLDEST} on; near it are {', '.join(near)}"
        raise UsageError(asked, text)


def _request_consent(
    versions: Sequence[str], others: int, installer: Installer, agree: Agree
) -> None:
    """Ask for consent to install versions, with what that takes.

    Args:
        others: further versions that a bisection may install instead of these.
    """
    home, free = folders.home(), folders.free_bytes()
    sizes = [installer.download_bytes(version) for version in versions]
    downloads = [_TYPICAL_BYTES if size is None else size for size in sizes]
    disk = sum(_DISK_BYTES + _DISK_PER_DOWNLOAD * each for each in downloads)
    takes = f"{_gigabytes(sum(downloads))} to download and about {_gigabytes(disk)} "
    takes += "of disk"
    if None in sizes:
        takes += f" ({_NO_SIZES.format(installer.name)})"
    named = ", ".join(versions)
    if others:
        named = f"about {len(versions)} of {len(versions) + others} versions"
    free_now = f"{_gigabytes(free)} are free"
    if disk + max(downloads) > free:  # a wheel is there until it is unpacked
        reason = f"torch {named}: {takes}, but only {free_now}"
        raise InstallError(str(home), reason, folders.ADVICE)
    words = f"{installer.name} is to install torch {named} into {home}: {takes}"
    if not agree(f"{words}; {free_now}"):
        raise UsageError("nothing was installed")


_NO_SIZES = "{} does not tell sizes: these are typical of builds with CUDA libraries"


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB"
