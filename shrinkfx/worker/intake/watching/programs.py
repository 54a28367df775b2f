"""Save programs and inputs on their way to AOTInductor."""

from __future__ import annotations

import json
import operator
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from .by_import import ImportDescription, describe_import
from .event_log import EventLog, find_calling_line, report_errors
from .origins import Origin, Origins


@dataclass(frozen=True)
class ProgramRecord:
    """A program's record, in a JSON file next to the program.

    Attributes:
        unsaved: why there is no program file.
        custom: its operators that do not come with PyTorch.
        inductor: settings with simple values that differ from PyTorch's own.
        others: changed settings with other values, and how an import makes each.
    """

    program: int
    where: str
    unsaved: str
    environment: Mapping[str, str]
    inductor: Settings = field(default_factory=dict)
    others: Mapping[str, ImportDescription] = field(default_factory=dict)
    operators: int = 0
    custom: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()


class ProgramSaver:
    """Saves each program that is compiled, with its compile settings."""

    def __init__(
        self,
        log: EventLog,
        counts: Counts,
        origins: Origins,
        settings: InductorSettings,
    ) -> None:
        self._log, self._counts = log, counts
        self._origins, self._settings = origins, settings

    def keep(self, exported: Any, options: Settings | None) -> int:
        """Save a program with its record, and return its number."""
        number = 0
        with report_errors():
            number = self._log.claim()
            unsaved = "it could not be exported"
            if exported is not None:
                with self._log.step("save", number):
                    unsaved = _saved(exported, self._log.path(f"program-{number}.pt2"))
            self._describe(number, exported, options, unsaved)
        return number

    def _describe(
        self,
        number: int,
        exported: Any,
        options: Settings | None,
        unsaved: str,
    ) -> None:
        variables = self._counts.environment()
        record = ProgramRecord(number, find_calling_line(), unsaved, variables)
        settings: Settings = {}
        with report_errors():
            settings = self._settings.changed(options)
            plain = {k: v for k, v in settings.items() if is_plain(v)}
            others = {
                k: describe_import(v) for k, v in settings.items() if k not in plain
            }
            record = replace(record, inductor=plain, others=others)
        with report_errors():
            record = replace(
                record,
                operators=count_operators(exported, self._counts),
                custom=tuple(self._origins.custom_operators(exported)),
                origins=tuple(self._origins.list_origins(exported, settings.values())),
            )
        self._log.write(f"program-{number}.json", record)

    def exported(
        self,
        f: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        *,
        dynamic_shapes: Any = None,
        **_: Any,
    ) -> Any:
        """Export a module with the parameter names of the deprecated entry point.

        This traces the module's forward once more, with fake tensors.
        """
        import torch

        with self._log.step("export", 0):
            return torch.export.export(f, args, kwargs, dynamic_shapes=dynamic_shapes)


def _saved(exported: Any, path: str) -> str:
    """Save a program; return why it could not be saved, or ''."""
    import torch

    draft = os.path.join(os.path.dirname(path), f"draft-{os.path.basename(path)}")
    try:
        torch.export.save(exported, draft)
        os.replace(draft, path)
    except Exception as error:  # noqa: BLE001 - what torch cannot save, the script can do
        reason = _in_short(error)
        try:
            _save_as_source(exported, draft)
            os.replace(draft, f"{os.path.splitext(path)[0]}.zip")
        except Exception as second:  # noqa: BLE001 - as above
            return f"{reason}; as source code: {_in_short(second)}"
    return ""


def _save_as_source(exported: Any, path: str) -> None:
    """Write a source archive, with shrinkfx on ``sys.path``, which may lack it."""
    folder = str(Path(__file__).resolve().parents[4])
    before = list(sys.path)
    if folder not in before:
        sys.path.append(folder)
    try:
        import_module("shrinkfx.worker.printing.module").save_as_source(exported, path)
    finally:
        sys.path[:] = before


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:500]


def count_operators(exported: Any, counts: Counts) -> int:
    """Count a program's operators in the same way as the search does."""
    graphs = (getattr(each, "graph", None) for each in exported.graph_module.modules())
    nodes = (node for graph in graphs if graph is not None for node in graph.nodes)
    return sum(map(counts.is_operator, nodes))


def save_call_inputs(
    path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """Save the inputs of a call, with devices, strides and shared storage.

    Returns:
        Why they could not be saved, or ''.
    """
    import torch

    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured: nothing can be copied"
    inputs = {"args": args, "kwargs": dict(kwargs)} if kwargs else args
    draft = f"{path}.{threading.get_ident()}"
    try:
        torch.save(inputs, draft)
        os.replace(draft, path)
    except Exception as error:  # noqa: BLE001 - what cannot be saved may still be run
        return _in_short(error)
    return ""


_FILE = "counts.json"


@dataclass(frozen=True)
class Counts:
    """Names of variables to record, and of operators to count.

    Attributes:
        variables: prefixes of environment variables that change what PyTorch does.
        secrets: words in the names of variables that must not be recorded.
        namespaces: namespaces of the operators that come with PyTorch.
        of_sizes: functions that read or compute sizes, by their ``__name__``.
        arithmetic: modules whose functions compute sizes, unless the result is a
            tensor.
    """

    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    namespaces: frozenset[str]
    of_sizes: frozenset[str]
    arithmetic: frozenset[str]

    def is_operator(self, node: Any) -> bool:
        """Return whether shrinkfx counts a graph node as an operator."""
        if node.op != "call_function" or node.target is operator.getitem:
            return False
        if getattr(node.target, "__name__", "") in self.of_sizes:
            return False
        computes = getattr(node.target, "__module__", "") in self.arithmetic
        return not computes or hasattr(node.meta.get("val"), "dtype")

    def environment(self) -> dict[str, str]:
        """Return the current environment variables that may matter."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(self.variables)
            and not any(word in name for word in self.secrets)
        }


def read_counts(folder: str) -> Counts:
    """Read the names from the folder of a capture."""
    with open(os.path.join(folder, _FILE)) as file:
        record = json.load(file)
    return Counts(
        tuple(record["variables"]),
        tuple(record["secrets"]),
        frozenset(record["namespaces"]),
        frozenset(record["of_sizes"]),
        frozenset(record["arithmetic"]),
    )


Settings = Mapping[str, Any]
"""Settings of Inductor by name; each has a type of its own."""

_PLAIN = (bool, int, float, str, type(None))


class InductorSettings:
    """Compares Inductor's configuration with its state right after the import."""

    def __init__(self) -> None:
        self._config: ModuleType | None = None
        self._before: Settings = {}

    def remember(self, config: ModuleType) -> None:
        """Copy the configuration before the script can change it."""
        self._config = config
        self._before = config.get_config_copy()

    def changed(self, options: Settings | None) -> Settings:
        """Return the settings that changed since then, updated with ``options``."""
        now = self._config.get_config_copy() if self._config else {}
        differing = {
            name: value
            for name, value in now.items()
            if not is_same(value, self._before.get(name, _ABSENT))
        }
        return {**differing, **(options or {})}


_ABSENT = object()


def is_same(a: object, b: object) -> bool:
    """Compare two values of a setting; a comparison that raises counts as unequal."""
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 - values of a user's own may compare in any way
        return False


def is_plain(value: object) -> bool:
    """Return whether a setting consists of simple values that JSON can hold."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    return isinstance(value, _PLAIN)
