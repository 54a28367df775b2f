"""Save programs and inputs on their way to AOTInductor."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .by_import import ImportDescription, describe_import
from .counts import Counts
from .event_log import EventLog, find_calling_line, report_errors
from .origins import Origin, Origins
from .settings import InductorSettings, Settings, is_plain


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
        import_module("shrinkfx.worker.printing.archive").save_as_source(exported, path)
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
