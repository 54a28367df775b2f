"""A sandbox of bubblewrap around a worker and all processes that it starts.

network          none, so no socket leads out of the sandbox
files            read-only, except the run's scratch folder and its output folder
/tmp, /run       other folders, so that no socket of another program is found there
home             read-only, without folders that usually hold keys and passwords
caches           in the scratch folder: a library that the program put into the
                 user's cache would run outside the sandbox later
processes        in a PID namespace, whose end kills them all
GPUs             as outside
"""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shrinkfx.errors import UsageError
from shrinkfx.system import scratch
from shrinkfx.system.folders import cache_folder

_NAMESPACES = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL", "--die-with-parent"),
)
_SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
_DEVICES = ("/dev/nvidia*", "/dev/dri", "/dev/kfd")
_OF_RUN = ("/run/current-system", "/run/opengl-driver", "/run/nvidia-persistenced")
"""What programs and drivers need of ``/run``."""

_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pypirc"),
    *(".git-credentials", ".config/gcloud", ".config/gh", ".cache/huggingface/token"),
)
"""Paths in the home folder that the sandbox hides."""

_TMP = Path("/tmp")
_TRIAL_S = 20.0
_KILLED = 128
"""bubblewrap reports a signal as this number plus that of the signal."""


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of a run.

    Attributes:
        writable: the folders that a worker may write to, besides its scratch folder.
        readable: files below ``/tmp`` that stay readable, with their folders.
    """

    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    @classmethod
    def choose(
        cls,
        mode: str,
        note: Callable[[str], None],
        writable: Iterable[Path] = (),
        readable: Iterable[Path] = (),
    ) -> Self | None:
        """Return the sandbox that ``--sandbox`` asks for, or None.

        Args:
            mode: ``auto``, ``on`` or ``off``.
            note: told why there is no sandbox, if the mode is ``auto``.

        Raises:
            UsageError: the mode is ``on``, and bubblewrap does not work here.
        """
        if mode == "off":
            return None
        if problem := find_problem():
            if mode == "on":
                raise UsageError(f"--sandbox {mode}: {problem}")
            note(f"no sandbox: {problem}")
            return None
        return cls(tuple(path.resolve() for path in writable), tuple(readable))

    def wrap_command(self, command: Sequence[str], cwd: Path | None) -> list[str]:
        """Return the command line that runs a command in the sandbox."""
        words = ["bwrap", *_NAMESPACES, *_SYSTEM, "--bind", str(_private()), str(_TMP)]
        words += ["--tmpfs", "/run"]
        for place in _OF_RUN:
            words += ["--ro-bind-try", place, place]
        folder = cwd or Path.cwd()
        for path in _below_tmp([folder, *_interpreter_folders(), *self.readable]):
            words += ["--ro-bind", path, path]
        writable = [path for path in self.writable if path.is_dir()]
        for shared in (scratch.root().resolve(), *writable):
            words += ["--bind", str(shared), str(shared)]
        for device in sorted(path for each in _DEVICES for path in glob.glob(each)):
            words += ["--dev-bind", device, device]
        for secret in _secrets():
            empty = ["--tmpfs"] if secret.is_dir() else ["--ro-bind", os.devnull]
            words += [*empty, str(secret)]
        return [*words, "--chdir", str(folder), "--", *command]

    def change_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Put the caches of a process into the scratch folder."""
        cache = _private() / "cache"
        _link_cached(cache_folder("shrinkfx"), cache / "shrinkfx")
        changed = {
            **environment,
            "TMPDIR": str(_private()),
            "XDG_CACHE_HOME": str(cache),
            "TRITON_HOME": str(cache),
            "CUDA_CACHE_PATH": str(cache / "nv"),
        }
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            if name in environment:
                changed[name] = str(cache / name.lower())
        return changed


def to_exit_status(status: int) -> int:
    """Return the status of the sandboxed process, from that of bubblewrap."""
    return _KILLED - status if status > _KILLED else status


@functools.cache
def find_problem() -> str:
    """Return why bubblewrap does not work here, with advice; '' if it works."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed: install the package bubblewrap"
    command = ["bwrap", *_NAMESPACES, *_SYSTEM, "--", sys.executable, "-I", "-c", ""]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TRIAL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}"
    if not done.returncode:
        return ""
    reason = done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"
    advice = "it needs user namespaces, which the system or a container may deny"
    return f"bubblewrap does not work here: {reason}: {advice}"


@functools.cache
def _private() -> Path:
    """Return the folder that is ``/tmp`` for all sandboxes of this process."""
    folder = scratch.root().resolve() / "sandbox"
    folder.mkdir()
    return folder


def _link_cached(shared: Path, private: Path) -> None:
    """Link to the libraries in the user's cache, which cannot be written to."""
    for path in shared.rglob("*"):
        link = private / path.relative_to(shared)
        if path.is_file() and not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(path.resolve())


def _interpreter_folders() -> Iterator[Path]:
    """Yield the folders where Python and the modules of this process are."""
    searched = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    package = str(Path(__file__).parents[2])
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    yield from map(Path, [*filter(None, [*sys.path, *searched]), *prefixes, package])


def _below_tmp(paths: Iterable[Path]) -> list[str]:
    """Return the folders below ``/tmp`` that contain the paths, outermost first."""
    found = set()
    for path in paths:
        for each in (path.absolute(), path.resolve()):
            folder = each if each.is_dir() or each.parent == _TMP else each.parent
            if folder.is_relative_to(_TMP) and folder != _TMP and folder.exists():
                found.add(str(folder))
    return sorted(found)


def _secrets() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # there is no home folder
        for name in _SECRETS:
            if (path := Path.home() / name).exists():
                yield path.resolve()
