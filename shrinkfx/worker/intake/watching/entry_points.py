"""Wrap PyTorch's entry points so that their arguments are recorded first.

Only public functions are wrapped; calls of lower-level functions are not seen.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from .after_import import AfterImport, Change
from .event_log import EventLog, hide_own_frames, report_errors
from .origins import Origins
from .programs import (
    InductorSettings,
    ProgramSaver,
    Settings,
    read_counts,
    save_call_inputs,
)

Entry = Callable[..., Any]
Handler = Callable[..., Any]


def watch(folder: str) -> None:
    """Wrap the entry points of torch as soon as their modules are imported."""
    hide_own_frames()
    log = EventLog(folder)
    names = read_counts(folder)
    origins, settings = Origins(names.namespaces), InductorSettings()
    saver = ProgramSaver(log, names, origins, settings)
    points = _EntryPoints(log, saver)
    changes: dict[str, Change] = {
        "torch.library": origins.watch,
        "torch.utils.cpp_extension": origins.watch_compiling,
        "torch._inductor.config": settings.remember,
    }
    for module, handlers in points.by_module().items():
        changes[module] = partial(points.wrap, handlers)
    AfterImport(changes).install()


class _EntryPoints:
    def __init__(self, log: EventLog, saver: ProgramSaver) -> None:
        self._log, self._saver = log, saver
        self._loaded: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def by_module(self) -> dict[str, dict[str, Handler]]:
        """Return the watched entry points: by module and name, what records a call.

        A handler gets the original function and the arguments of the call.
        """
        compiling, loading = self._compiling, self._loading
        return {
            "torch.export": {"export": self._exporting},
            "torch._inductor": {
                "aoti_compile_and_package": partial(compiling, "inductor_configs"),
                "aoti_load_package": partial(loading, "path"),
            },
            "torch._inductor.package.package": {
                "load_package": partial(loading, "path")
            },
            "torch.export.pt2_archive._package": {
                "AOTICompiledModel.__call__": self._calling_loaded
            },
            "torch._export": {  # deprecated
                "aot_compile": self._compiling_module,
                "aot_load": self._loading_library,
            },
        }

    def wrap(self, handlers: dict[str, Handler], module: ModuleType) -> None:
        """Wrap the entry points of a module right after its import."""
        if module.__name__ == "torch.export":
            with report_errors():
                _record_process(self._log)
        for path, handler in handlers.items():
            holder, _, name = path.rpartition(".")
            target = getattr(module, holder, None) if holder else module
            _wrap(self._log, target, name, handler)

    def _exporting(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with self._log.step("export", 0):
            return original(*args, **kwargs)

    def _compiling(
        self, options: str, original: Entry, *args: Any, **kwargs: Any
    ) -> Any:
        __tracebackhide__ = True
        exported = args[0] if args else kwargs.get("exported_program")
        return self._compile(
            exported, kwargs.get(options), partial(original, *args, **kwargs)
        )

    def _compiling_module(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        """Export the module first: the deprecated entry point takes a module."""
        __tracebackhide__ = True
        exported = None
        with report_errors():
            exported = self._saver.exported(*args, **kwargs)
        return self._compile(
            exported, kwargs.get("options"), partial(original, *args, **kwargs)
        )

    def _compile(
        self, exported: Any, options: Settings | None, original: partial[Any]
    ) -> Any:
        """Save a program, compile it, and record the files of the package."""
        __tracebackhide__ = True
        number = self._saver.keep(exported, options)
        with self._log.step("compile", number):
            result = original()
        with report_errors():
            files = result if isinstance(result, list) else [result]
            path = original.keywords.get("package_path")
            record_package_files(self._log, number, [*files, path])
        return result

    def _loading(self, path: str, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        number = self._number(args[0] if args else kwargs.get(path))
        with self._log.step("load", number):
            loaded = original(*args, **kwargs)
        with report_errors():
            self._loaded[loaded] = number
        return loaded

    def _loading_library(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        """Wrap the loaded function, because the deprecated loader returns no object."""
        __tracebackhide__ = True
        loaded = self._loading("so_path", original, *args, **kwargs)

        @functools.wraps(loaded)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._calling(self._loaded.get(loaded, 0), loaded, args, kwargs)

        return call

    def _calling_loaded(
        self, original: Entry, model: Any, *args: Any, **kwargs: Any
    ) -> Any:
        __tracebackhide__ = True
        number = self._loaded.get(model, 0)
        return self._calling(number, partial(original, model), args, kwargs)

    def _calling(
        self,
        number: int,
        original: Entry,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        __tracebackhide__ = True  # in pytest, as in every wrapper
        if self._log.inside:
            return original(*args, **kwargs)

        def keep(name: str) -> str:
            return save_call_inputs(self._log.path(f"{name}.pt"), args, kwargs)

        with self._log.step("call", number, keep):
            return original(*args, **kwargs)

    def _number(self, package: object) -> int:
        with report_errors():
            return find_program_number(self._log, package)
        return 0


def _wrap(log: EventLog, holder: Any, name: str, handler: Handler) -> None:
    """Replace a function by a wrapper that passes it to ``handler`` as first argument.

    Calls that torch makes inside a step are passed through unchanged.
    """
    original = getattr(holder, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if log.inside:
            return original(*args, **kwargs)
        return handler(original, *args, **kwargs)

    setattr(holder, name, wrapper)


@dataclass(frozen=True)
class ProcessRecord:
    """A process that has imported torch, with the versions of torch and Python."""

    pid: int
    torch: str
    python: str


def _record_process(log: EventLog) -> None:
    version = str(getattr(sys.modules["torch"], "__version__", ""))
    record = ProcessRecord(os.getpid(), version, platform.python_version())
    log.write(f"process-{os.getpid()}.json", record)


# Map a compiled package to its program, also across processes.


_END_BYTES = 64 << 10
"""Bytes at the end of a package to hash; its member list, with checksums, is there."""


@dataclass(frozen=True)
class Package:
    """A file that a program was compiled to: its path, and a digest of its end."""

    program: int
    path: str
    content: str


def record_package_files(log: EventLog, number: int, made: Iterable[object]) -> None:
    """Record the files that a program was compiled to."""
    for place, file in enumerate(made):
        keys = _fingerprint(file)
        if keys:
            log.write(f"package-{number}-{place}.json", Package(number, *keys))


def find_program_number(log: EventLog, package: object) -> int:
    """Return the number of the last program that was compiled to a package.

    The package is recognized by its path or by its end. Returns 0 if it is unknown.
    """
    keys = _fingerprint(package)
    numbers = [0]
    for name in os.listdir(log.folder):
        if name.startswith("package-"):
            with contextlib.suppress(OSError, ValueError):
                with open(log.path(name)) as file:
                    record = json.load(file)
                if {record["path"], record["content"]} & {*filter(None, keys)}:
                    numbers.append(record["program"])
    return max(numbers)


def _fingerprint(package: Any) -> tuple[str, str] | tuple[()]:
    """Return the path and the content digest of a file; for a library only the path.

    Libraries of programs that differ only in their weights may have the same end.
    """
    if isinstance(package, (str, os.PathLike)):
        path = os.path.realpath(os.fspath(package))
        if not os.path.isfile(path):
            return ()
        if not path.endswith(".pt2"):
            return path, ""
        with open(path, "rb") as file:
            return path, _content(file)
    if hasattr(package, "seek") and hasattr(package, "read"):
        place = package.tell()
        try:
            return "", _content(package)
        finally:
            package.seek(place)
    return ()


def _content(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES))
    return f"{size} {hashlib.sha256(file.read()).hexdigest()}"
