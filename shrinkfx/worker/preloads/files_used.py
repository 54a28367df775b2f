"""Record the files that Python code uses, by an audit hook instead of by reading it.

Code may build a path in any way, and a third-party package may load a library. The
audit hook sees each file that is opened and each library that is loaded.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Self

import shrinkfx
from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles, is_library

_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sys", "/usr")
_WRITES = os.O_WRONLY | os.O_RDWR

_recorders: list[FileRecorder] = []


class FileRecorder:
    """Records file use inside its ``with`` block.

    All instances share one audit hook, because a hook cannot be removed.
    """

    _hooked = False

    def __init__(self) -> None:
        self._opened: dict[str, None] = {}
        self._loaded: list[Loading] = []
        self._callers: dict[tuple[str, int], None] = {}

    def __enter__(self) -> Self:
        if not FileRecorder._hooked:
            sys.addaudithook(_dispatch_event)
            FileRecorder._hooked = True
        self._modules, self._mapped = set(sys.modules), set(_mapped())
        _recorders.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _recorders.remove(self)

    def record_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record an audit event."""
        match event, arguments:
            case "open", (str(path), mode, int(flags)) if not flags & _WRITES:
                if not set(mode or "r") & set("wax+"):
                    self._opened.setdefault(os.path.abspath(path))
            case "ctypes.dlopen", (str(path),):
                self._load(path, is_module=False)
            case "import", (_, str(path), *_) if is_library(path):
                self._load(path, is_module=True)

    def _load(self, path: str, *, is_module: bool) -> None:
        library = os.path.abspath(path)
        if not is_local(library):
            return
        frames = [f for f in _frames(sys._getframe(2)) if _is_own(f.f_code.co_filename)]
        for frame in frames[:1]:
            file = frame.f_code.co_filename
            self._loaded.append(Loading(file, _span(frame), library, is_module))
        self._callers |= {(f.f_code.co_filename, f.f_lineno): None for f in frames}

    def collect_files(self) -> UninstalledFiles:
        """Return the local modules, libraries and files that were used so far."""
        modules = {
            name: os.path.abspath(file)
            for name, module in list(sys.modules.items())
            if name not in self._modules and name != "__main__"
            if (file := getattr(module, "__file__", None)) and is_local(file)
        }
        libraries = [p for p in _mapped() if p not in self._mapped and is_local(p)]
        known = {*modules.values(), *libraries}
        files = [
            path
            for path in self._opened
            if path not in known and is_local(path) and not path.endswith(".pyc")
        ]
        sources = {k: v for k, v in modules.items() if v.endswith(".py")}
        return UninstalledFiles(
            sources, libraries, files, self._loaded, list(self._callers)
        )


def _dispatch_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "ctypes.dlopen", "import"):
        for recorder in _recorders:
            recorder.record_event(event, arguments)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_own(file: str) -> bool:
    return file.endswith(".py") and is_local(file)


def _span(frame: FrameType) -> tuple[int, int, int, int]:
    """Return the source position of the call that a frame is executing."""
    positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end, column, end_column = next(positions)
    return line or 0, column or 0, end or 0, end_column or 0


def _mapped() -> list[str]:
    """List the libraries in this process's memory, each once."""
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    paths = (line.split(maxsplit=5)[5] for line in maps if line.count("/"))
    return list(dict.fromkeys(path for path in paths if is_library(path)))


def _installed() -> tuple[str, ...]:
    """Return the folders of Python, of the system and of installed packages."""
    package = str(Path(shrinkfx.__file__).resolve().parent)
    python = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    folders = {package, *python, *sysconfig.get_paths().values()}
    return tuple({*folders, *map(os.path.realpath, folders), *_SYSTEM} - {"/"})


_INSTALLED = tuple(f"{folder}/" for folder in _installed())


def is_local(path: str) -> bool:
    """Return whether a file is the user's own: no installation contains it."""
    path = os.path.abspath(path)
    places = {path, os.path.realpath(path)}
    if any("-packages/" in place for place in places) or not os.path.isfile(path):
        return False
    return not any(place.startswith(_INSTALLED) for place in places)
