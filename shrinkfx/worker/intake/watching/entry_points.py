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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from ....protocol.captured import (
    CALL,
    COMPILE,
    EXPORT,
    FAILED_EARLY,
    LOAD,
    UNDECOMPOSED,
)
from .after_import import AfterImport, Change
from .event_log import EventLog, report_errors
from .origins import Origins
from .programs import (
    note_default_threads,
    save_call_inputs,
    save_graph,
    save_program,
)

COMPILE_GRAPHS = "torch._inductor.compile_fx"
CALL_GRAPHS = "torch._inductor.output_code"


@dataclass(frozen=True)
class EntryPoint:
    """A function of PyTorch, and what its calls do.

    Attributes:
        name: within its module, such as ``AOTICompiledModel.__call__``.
        what: the kind of step.
        parameter: the name of the first parameter.
    """

    module: str
    name: str
    what: str
    parameter: str = ""

    @property
    def is_of_graph(self) -> bool:
        """Whether torch.compile calls it, with a graph."""
        return self.module in (COMPILE_GRAPHS, CALL_GRAPHS)

    def locate(self, module: ModuleType) -> tuple[Any, str]:
        """Return the module or the class that has it, and its name there."""
        holder, _, name = self.name.rpartition(".")
        return (getattr(module, holder, None) if holder else module), name


ENTRY_POINTS = (
    EntryPoint("torch.export", "export", EXPORT),
    EntryPoint(
        "torch._inductor", "aoti_compile_and_package", COMPILE, "exported_program"
    ),
    EntryPoint("torch._inductor", "aoti_load_package", LOAD, "path"),
    EntryPoint("torch._inductor.package.package", "load_package", LOAD, "path"),
    EntryPoint("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", CALL),
    EntryPoint(COMPILE_GRAPHS, "_compile_fx_inner", COMPILE, "gm"),
    EntryPoint(CALL_GRAPHS, "CompiledFxGraph.__call__", CALL),
)
"""The last two belong to torch.compile; Inductor's own cache is used inside them."""

_NUMBER = "_shrinkfx_number"
"""The attribute of a loaded package or compiled graph with its program's number."""

_SAVING_SHARE = 0.3
"""Largest part of a process's time for saving the inputs of graphs.

The inputs include the weights. Those of a graph's first call are always saved.
"""


def watch(folder: str) -> None:
    """Wrap the entry points of torch as soon as their modules are imported."""
    log, origins = EventLog(folder), Origins()
    watcher = _Watcher(log, origins)
    changes: dict[str, Change] = {
        "torch.library": origins.watch,
        "torch.utils.cpp_extension": origins.watch_compiling,
        "torch._inductor.pattern_matcher": origins.watch_patterns,
    }
    for point in ENTRY_POINTS:
        changes[point.module] = watcher.wrap
    AfterImport(changes).install()


@contextlib.contextmanager
def watch_loaded(folder: str, origins: Origins) -> Iterator[None]:
    """Wrap the entry points during the block, in a process that has imported torch.

    Other modules may have imported them by name, as a notebook does.
    """
    log = EventLog(folder)
    watcher = _Watcher(log, origins)
    with report_errors():
        _record_process(log)
    with contextlib.ExitStack() as stack:
        # Code of the block may import a wrapper by name, and keep it.
        stack.callback(setattr, watcher, "active", False)
        for point in ENTRY_POINTS:
            target, name = point.locate(import_module(point.module))
            original = getattr(target, name)
            wrapper = watcher.wrapped(point, original)
            for place in (target, *sys.modules.values()):
                names = getattr(place, "__dict__", {}).items()
                for key in [key for key, value in names if value is original]:
                    stack.callback(setattr, place, key, original)
                    setattr(place, key, wrapper)
        yield


class _Watcher:
    """Records the calls of the entry points in a process, while it is active."""

    active = True

    def __init__(self, log: EventLog, origins: Origins) -> None:
        self._log, self._origins = log, origins
        self._began, self._saving_s = time.monotonic(), 0.0
        self._saved: set[int] = set()

    def wrap(self, module: ModuleType) -> None:
        """Wrap the entry points of a module right after its import."""
        if module.__name__ == "torch.export":
            with report_errors():
                _record_process(self._log)
                note_default_threads()
        if module.__name__ == COMPILE_GRAPHS:
            in_eager = os.path.exists(self._log.path(UNDECOMPOSED))
            if original := getattr(module, "compile_fx", None):
                wrapper = self.wrapped_compile_fx(original, in_eager)
                vars(module)["compile_fx"] = wrapper
            if in_eager:
                return
        for point in ENTRY_POINTS:
            if point.module == module.__name__:
                target, name = point.locate(module)
                if original := getattr(target, name, None):
                    setattr(target, name, self.wrapped(point, original))

    def wrapped_compile_fx(
        self, original: Callable[..., Any], in_eager: bool
    ) -> Callable[..., Any]:
        """Wrap the function to which torch.compile passes the graphs of Dynamo.

        Args:
            in_eager: save the graphs and run them in eager, instead of compiling them.
        """

        @functools.wraps(original)
        def wrapper(graph: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            patches = kwargs.get("config_patches") or {}
            if in_eager and not (args or self._log.inside) and _is_of_dynamo(graph):
                return self._run_in_eager(graph, inputs, patches)
            try:
                return original(graph, inputs, *args, **kwargs)
            except Exception:
                with report_errors():
                    open(self._log.path(FAILED_EARLY), "a").close()
                raise

        return wrapper

    def _run_in_eager(
        self, graph: Any, inputs: Any, patches: Mapping[str, Any]
    ) -> Callable[..., Any]:
        def save(graph: Any, inputs: Sequence[Any], part: str = "") -> int:
            config = import_module("torch._inductor.config")
            known = {k: v for k, v in patches.items() if k in config._config}
            with config.patch(known):
                return save_graph(self._log, self._origins, graph, inputs, part)

        def run_backward(graph: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
            number = save(graph, inputs, "backward")
            return self._record_calls(number, backends.boxed_nop(graph, inputs))

        backends = import_module("torch._dynamo.backends.debugging")
        placeholders = graph.graph.find_nodes(op="placeholder")
        number = save(graph, [node.meta.get("example_value") for node in placeholders])
        with self._log.step(COMPILE, number):
            compiled = backends.aot_eager(graph, inputs, bw_compiler=run_backward)
        return self._record_calls(number, compiled)

    def _record_calls(
        self, number: int, compiled: Callable[..., Any]
    ) -> Callable[..., Any]:
        @functools.wraps(compiled)
        def call(*args: Any) -> Any:
            __tracebackhide__ = True
            values = args[0] if args and isinstance(args[0], list) else args
            keep = partial(self._save_values, number, values)
            with self._log.step(CALL, number, keep):
                return compiled(*args)

        return call

    def wrapped(
        self, point: EntryPoint, original: Callable[..., Any]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # Inside, torch itself calls it, as part of a step.
            if self._log.inside or not self.active:
                return original(*args, **kwargs)
            number, keep = self._before(point, args, kwargs)
            if point.is_of_graph and not number:
                return original(*args, **kwargs)
            with self._log.step(point.what, number, keep):
                result = original(*args, **kwargs)
            with report_errors():
                if point.what == LOAD or (point.is_of_graph and point.what == COMPILE):
                    setattr(result, _NUMBER, (self._log.folder, number))
                elif point.what == COMPILE:
                    record_package(self._log, number, result)
                    record_package(self._log, number, kwargs.get("package_path"))
            return result

        return wrapper

    def _before(
        self, point: EntryPoint, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[int, Callable[[str], str] | None]:
        """Return the number of the program, and what saves the inputs of a call."""
        first = args[0] if args else kwargs.get(point.parameter)
        if point.what == COMPILE and point.is_of_graph:
            inputs = args[1] if len(args) > 1 else kwargs["example_inputs"]
            part = "backward" if kwargs.get("is_backward") else ""
            return save_graph(self._log, self._origins, first, inputs, part), None
        if point.what == COMPILE:
            options = kwargs.get("inductor_configs")
            return save_program(self._log, self._origins, first, options), None
        if point.what == LOAD:
            with report_errors():
                return find_program_number(self._log, first), None
        if point.what == CALL:
            folder, number = getattr(first, _NUMBER, ("", 0))
            number *= folder == self._log.folder  # another block may have compiled it
            if point.is_of_graph:
                return number, partial(self._save_values, number, args[1])
            return number, partial(self._save_inputs, args[1:], kwargs)
        return 0, None

    def _save_inputs(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str
    ) -> str:
        return save_call_inputs(self._log.path(f"{name}.pt"), args, kwargs)

    def _save_values(self, number: int, values: Sequence[Any], name: str) -> str:
        """Save the tensors that a compiled graph is called with."""
        began = time.monotonic()
        share = _SAVING_SHARE * (began - self._began)
        if number in self._saved and self._saving_s > share:
            return "saving them would slow down the script"
        tensor = sys.modules["torch"].Tensor
        tensors = tuple(v.detach() for v in values if isinstance(v, tensor))
        try:
            unsaved = self._save_inputs(tensors, {}, name)
        finally:
            self._saving_s += time.monotonic() - began
        if not unsaved:
            self._saved.add(number)
        return unsaved


def _is_of_dynamo(graph: Any) -> bool:
    nodes = getattr(getattr(graph, "graph", None), "nodes", ())
    return any("example_value" in node.meta for node in nodes)


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
    """A file that a program was compiled to, by its size and a digest of its end."""

    program: int
    content: str


def record_package(log: EventLog, number: int, file: object) -> None:
    """Record the file that a program was compiled to."""
    if content := _fingerprint(file):
        name = f"package-{number}-{content[-16:]}.json"
        log.write(name, Package(number, content))


def find_program_number(log: EventLog, package: object) -> int:
    """Return the number of the last program that was compiled to a package, or 0."""
    content, numbers = _fingerprint(package), [0]
    for name in os.listdir(log.folder):
        if content and name.startswith("package-"):
            with contextlib.suppress(OSError, ValueError):
                with open(log.path(name)) as file:
                    record = json.load(file)
                if record["content"] == content:
                    numbers.append(record["program"])
    return max(numbers)


def _fingerprint(package: Any) -> str:
    """Return the size of a file or an open file, and the digest of its end, or ''."""
    if isinstance(package, (str, os.PathLike)):
        if not os.path.isfile(package):
            return ""
        with open(package, "rb") as file:
            return _fingerprint(file)
    if not (hasattr(package, "seek") and hasattr(package, "read")):
        return ""
    place = package.tell()
    try:
        size = package.seek(0, os.SEEK_END)
        package.seek(max(0, size - _END_BYTES))
        return f"{size} {hashlib.sha256(package.read()).hexdigest()}"
    finally:
        package.seek(place)
