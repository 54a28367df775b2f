"""Check user files by their names and sizes before anything loads them.

Nothing is unpacked, unpickled or run here, and torch is not needed. So errors are
reported at once, and a worker is started only for files that may work.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shlex
import shutil
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from shrinkfx.errors import (
    SEE_DOCTOR,
    LoadError,
    UsageError,
)
from shrinkfx.program.uninstalled_files import is_path
from shrinkfx.protocol.source import SOURCE

_SAVE = "save the program with torch.export.save(program, 'model.pt2')"
_SAVE_INPUTS = (
    "create it with torch.save((arg, ...), file), or save a dict with 'args' and "
    "'kwargs'"
)
_EXPORT = f"export the module, torch.export.export(module, args), and {_SAVE}"
_AGAIN = "copy or save it again"
_PICKLE = b"\x80"
"""The first byte of a pickle, which ``torch.save`` wrote before it wrote archives."""

_ARCHIVE = b"PK\x03\x04"
_TRUNCATED = "is truncated: the directory at the end of the archive is missing"

_BOMB_BYTES = 1 << 30
_BOMB_RATIO = 50
"""The highest plausible ratio: torch does not compress, and compressed zeros shrink a
thousandfold."""


def require_program(path: Path, *, run_code: bool = False) -> None:
    """Refuse a file that cannot be an exported program.

    Args:
        run_code: whether the user allows the code of a source archive to run.

    Raises:
        LoadError: with a description of the file's actual content.
        UsageError: the file is a source archive, and ``run_code`` is False.
    """
    names = _names(path, "pass the path of a .pt2", _SAVE)
    if names is None:
        with path.open("rb") as file:
            is_pickle = file.read(1) == _PICKLE
        what = (
            "a pickle, as older versions of torch.save wrote, and not a"
            if is_pickle
            else "not a"
        )
        advice = _EXPORT if is_pickle else _SAVE
        raise LoadError(str(path), f"is {what} .pt2, which is a zip archive", advice)
    if "serialized_exported_program.json" in names:
        reason = "has the format of torch 2.7 or earlier"
        raise LoadError(
            str(path), reason, f"load it with torch.export.load, and {_SAVE}"
        )
    if SOURCE in names and not run_code:
        raise UsageError(
            f"{path} contains a program as Python code, and exporting the program "
            "runs that code. If you trust the author of the file, add ",
            "--run-code",
        )
    if wrong := _not_a_program(names):
        raise LoadError(str(path), *wrong)


def _not_a_program(names: Sequence[str]) -> tuple[str, str] | None:
    """Describe an archive that is not a program, with advice; None for a program."""
    inner = {name.partition("/")[2] for name in names}
    if any(name.startswith("data/aotinductor/") for name in inner):
        made_from = (
            "pass the .pt2 that the package was compiled from, as torch.export.save "
            "wrote it"
        )
        return "is a compiled AOTInductor package, not an exported program", made_from
    if "models/model.json" in inner or SOURCE in names:
        return None
    if "data.pkl" in inner:
        saved = "the output of torch.save (tensors, or a module)"
        what = "TorchScript" if "constants.pkl" in inner else saved
        return f"contains {what}, not an exported program", _EXPORT
    if any(name.startswith("models/") for name in inner):
        return "contains programs, but no program with the name 'model'", _SAVE
    return "is an archive without an exported program", _SAVE


def require_inputs(path: Path) -> None:
    """Refuse a file that ``torch.save`` cannot have written.

    Raises:
        LoadError: with a description of the file's actual content.
    """
    names = _names(path, _WHICH_INPUTS, _SAVE_INPUTS)
    if path.suffix == ".py":
        return
    if names is None:
        with path.open("rb") as file:
            begins = file.read(1)
        if begins != _PICKLE:
            raise LoadError(str(path), "is not a file from torch.save", _SAVE_INPUTS)
    elif not any(name.endswith("/data.pkl") for name in names):
        programs = any("/models/" in name for name in names)
        what = "a program" if programs else "an archive without tensors"
        raise LoadError(str(path), f"is {what}, not inputs", _SAVE_INPUTS)


def require_script(path: Path) -> None:
    """Refuse a missing file; its reader checks the content.

    Raises:
        LoadError: with the file's name.
    """
    _require_file(path, _WHICH_SCRIPT)


def require_preloads(names: Sequence[str]) -> None:
    """Refuse missing files; the import of a module finds out whether it exists.

    Raises:
        LoadError: with the file's name.
    """
    for name in names:
        if is_path(name):
            _require_file(Path(name), _WHICH_PRELOAD)


def require_compiler(settings: Mapping[str, str]) -> None:
    """Refuse to start without the C++ compiler that AOTInductor uses.

    Args:
        settings: environment variables of the run, which override this process's own.

    Raises:
        LoadError: with the compiler's name.
    """
    name, path = find_compiler(settings)
    if path is None:
        advice = f"install g++, or set CXX to the path of a compiler. {SEE_DOCTOR}"
        raise LoadError(name, "C++ compiler not found", advice)


def find_compiler(settings: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the command of the C++ compiler, and the path of its program or None.

    The command may have arguments, such as ``ccache g++`` (since torch 2.14).
    """
    both = {**os.environ, **settings}
    command = both.get("CXX") or "g++"
    program = command
    with contextlib.suppress(ValueError):  # an unclosed quote
        program = next(iter(shlex.split(command)), command)
    return command, shutil.which(program, path=both.get("PATH"))


def require_command(text: str, settings: Mapping[str, str]) -> None:
    """Refuse a command line whose command cannot be run.

    Raises:
        LoadError: with the command's name.
    """
    name = shlex.split(text)[0]
    path = {**os.environ, **settings}.get("PATH")
    if "{" not in name and shutil.which(name, path=path) is None:
        advice = "check that the command is in the PATH and executable (chmod +x)"
        flag = f"--check {text}"
        raise LoadError(flag, f"command not found: {name}", advice)


def _names(path: Path, where: str, how: str) -> list[str] | None:
    """List the members of an archive; None if the file is not an archive."""
    _require_file(path, where)
    name = str(path)
    try:
        if not path.stat().st_size:
            raise LoadError(name, "is empty", how)
        with path.open("rb") as file:
            begins = file.read(4)
        if not zipfile.is_zipfile(path):
            if begins == _ARCHIVE:
                raise LoadError(name, _TRUNCATED, _AGAIN)
            return None
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if begins == _ARCHIVE and entries and _first(entries) > 0:
                # A truncated file may end with an archive that was a member of it.
                raise LoadError(name, _TRUNCATED, _AGAIN)
    except OSError as error:
        raise LoadError(name, _unreadable(error), where) from error
    except _DAMAGED as error:
        raise LoadError(name, f"is a damaged archive: {error}", _AGAIN) from error
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > max(_BOMB_BYTES, _BOMB_RATIO * path.stat().st_size):
        reason = f"would unpack to {unpacked >> 20} MiB, {_BOMB_RATIO} times its size"
        raise LoadError(name, reason, f"torch does not compress archives: {how}")
    return [entry.filename for entry in entries]


def _first(entries: Sequence[zipfile.ZipInfo]) -> int:
    return min(entry.header_offset for entry in entries)


_DAMAGED = (
    zipfile.BadZipFile,
    NotImplementedError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
)
"""The exceptions of zipfile for a damaged central directory."""


_WHICH_INPUTS = "check the path given to --inputs"
_WHICH_PRELOAD = "check the path given to --preload"
_WHICH_SCRIPT = "--verify expects a repro.py, or a folder that contains runs"


def _require_file(path: Path, where: str) -> None:
    try:
        if path.is_file():
            return
    except OSError as error:  # for example, no permission for the folder
        raise LoadError(str(path), _unreadable(error), where) from error
    if path.is_dir():
        raise LoadError(str(path), "is a folder", where)
    if path.exists():
        raise LoadError(str(path), "is not a regular file", where)
    hint = ""
    with contextlib.suppress(OSError):  # the folder may be unreadable
        siblings = (p.name for p in path.parent.iterdir() if p.suffix == path.suffix)
        similar = difflib.get_close_matches(path.name, sorted(siblings), n=3)
        hint = f"; did you mean {', '.join(similar)}?" if similar else ""
    raise LoadError(str(path), "no such file", f"{where}{hint}")


def _unreadable(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"
