"""Wrap PyTorch's entry points so that their arguments are recorded first.

Only public functions are wrapped; calls of lower-level functions are not seen.
"""

from __future__ import annotations

import functools
import os
import platform
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import counts, packages, programs
from .after_import import AfterImport
from .event_log import EventLog, report_errors
from .origins import Origins
from .settings import InductorSettings
from .tracebacks import hide_own_frames

Entry = Callable[..., Any]


def watch(folder: str) -> None:
    """Wrap the entry points of torch as soon as their modules are imported."""
    hide_own_frames()
    log = EventLog(folder)
    names = counts.read(folder)
    origins, settings = Origins(names.namespaces), InductorSettings()
    saver = programs.ProgramSaver(log, names, origins, settings)
    points = _EntryPoints(log, saver)
    AfterImport(
        {
            "torch.library": origins.watch,
            "torch.utils.cpp_extension": origins.watch_compiling,
            "torch.export": points.of_export,
            "torch.export.pt2_archive._package": points.of_archive,
            "torch._export": points.of_deprecated,
            "torch._inductor": points.of_inductor,
            "torch._inductor.config": settings.remember,
            "torch._inductor.package.package": points.of_package,
        }
    ).install()


class _EntryPoints:
    def __init__(self, log: EventLog, saver: programs.ProgramSaver) -> None:
        self._log, self._saver = log, saver
        self._loaded: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def of_export(self, module: ModuleType) -> None:
        with report_errors():
            _record_process(self._log)
        _wrap(module, "export", self._exporting)

    def of_inductor(self, module: ModuleType) -> None:
        _wrap(module, "aoti_compile_and_package", self._compiling)
        _wrap(module, "aoti_load_package", self._loading)

    def of_package(self, module: ModuleType) -> None:
        _wrap(module, "load_package", self._loading)

    def of_archive(self, module: ModuleType) -> None:
        model = getattr(module, "AOTICompiledModel", None)
        if model is not None:
            _wrap(model, "__call__", self._calling_loaded)

    def of_deprecated(self, module: ModuleType) -> None:
        _wrap(module, "aot_compile", self._compiling_module)
        _wrap(module, "aot_load", self._loading_library)

    def _exporting(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with self._log.step("export", 0):
            return original(*args, **kwargs)

    def _compiling(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        exported = args[0] if args else kwargs.get("exported_program")
        number = self._saver.keep(exported, kwargs.get("inductor_configs"))
        with self._log.step("compile", number):
            result = original(*args, **kwargs)
        with report_errors():
            packages.record_package_files(
                self._log, number, [result, kwargs.get("package_path")]
            )
        return result

    def _compiling_module(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        """Export the module first: the deprecated entry point takes a module."""
        __tracebackhide__ = True
        exported = None
        with report_errors():
            exported = self._saver.exported(*args, **kwargs)
        number = self._saver.keep(exported, kwargs.get("options"))
        with self._log.step("compile", number):
            result = original(*args, **kwargs)
        with report_errors():
            files = result if isinstance(result, list) else [result]
            packages.record_package_files(self._log, number, files)
        return result

    def _loading(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        number = self._number(args[0] if args else kwargs.get("path"))
        with self._log.step("load", number):
            loaded = original(*args, **kwargs)
        with report_errors():
            self._loaded[loaded] = number
        return loaded

    def _loading_library(self, original: Entry, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        number = self._number(args[0] if args else kwargs.get("so_path"))
        with self._log.step("load", number):
            loaded = original(*args, **kwargs)

        @functools.wraps(loaded)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._calling(number, loaded, args, kwargs)

        return call

    def _calling_loaded(
        self, original: Entry, model: Any, *args: Any, **kwargs: Any
    ) -> Any:
        __tracebackhide__ = True
        number = self._loaded.get(model, 0)
        return self._calling(number, functools.partial(original, model), args, kwargs)

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
            return programs.save_call_inputs(self._log.path(f"{name}.pt"), args, kwargs)

        with self._log.step("call", number, keep):
            return original(*args, **kwargs)

    def _number(self, package: object) -> int:
        with report_errors():
            return packages.find_program_number(self._log, package)
        return 0


def _wrap(holder: Any, name: str, handler: Callable[..., Any]) -> None:
    """Replace a function by a wrapper that passes it to ``handler`` as first argument.

    Calls that torch makes inside a step are passed through unchanged.
    """
    original = getattr(holder, name, None)
    if original is None:
        return
    log = handler.__self__._log  # type: ignore[attr-defined]

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
