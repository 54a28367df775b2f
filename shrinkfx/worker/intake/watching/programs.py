"""Save programs and inputs on their way to AOTInductor."""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ....program.pytorch_names import (
    ARITHMETIC,
    COMPILERS,
    SECRETS,
    SIZE_FUNCTIONS,
    VARIABLES,
)
from ....protocol.captured import SAVE, CapturedProgram, ImportedValue, Settings
from .by_import import describe_import
from .event_log import EventLog, find_calling_line, report_errors
from .origins import Origins


def save_program(
    log: EventLog, origins: Origins, exported: Any, options: Settings | None
) -> int:
    """Save a program with its record, and return its number."""
    number = 0
    with report_errors():
        number = log.claim()
        with log.step(SAVE, number):
            unsaved = _saved(exported, log.path(f"program-{number}.pt2"))
        record = CapturedProgram(
            number, find_calling_line(), unsaved, _read_environment()
        )
        settings: Settings = {}
        with report_errors():
            settings = {**read_changed_settings(), **(options or {})}
            inductor, others = split_settings(settings)
            record = replace(record, inductor=inductor, others=others)
        with report_errors():
            record = replace(
                record,
                operators=count_operators(exported),
                origins=tuple(origins.list_origins(exported, settings.values())),
            )
        log.write(f"program-{number}.json", record)
    return number


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


def count_operators(exported: Any) -> int:
    """Count a program's operators in the same way as the search does."""
    graphs = (getattr(each, "graph", None) for each in exported.graph_module.modules())
    nodes = (node for graph in graphs if graph is not None for node in graph.nodes)
    return sum(map(is_operator, nodes))


def is_operator(node: Any) -> bool:
    """Return whether shrinkfx counts a graph node as an operator."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if getattr(node.target, "__name__", "") in SIZE_FUNCTIONS:
        return False
    computes = getattr(node.target, "__module__", "") in ARITHMETIC
    return not computes or hasattr(node.meta.get("val"), "dtype")


def _read_environment() -> dict[str, str]:
    """Return the current environment variables that may matter."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith((*VARIABLES, *COMPILERS))
        and not any(word in name for word in SECRETS)
    }


def read_changed_settings() -> dict[str, Any]:
    """Return Inductor's settings that differ from the default; {} without Inductor.

    A setting that was changed and set back to the default counts as unchanged.
    """
    config = sys.modules.get("torch._inductor.config")
    if config is None or not hasattr(config, "_is_default"):
        return {}
    entries = getattr(config, "_config", {})
    return {
        name: value
        for name, value in config.get_config_copy().items()
        if not config._is_default(name)
        and not (name in entries and _is_same(value, entries[name].default))
    }


def split_settings(settings: Settings) -> tuple[Settings, dict[str, ImportedValue]]:
    """Return the settings with simple values, and how an import makes the others."""
    plain = {k: v for k, v in settings.items() if _is_plain(v)}
    others = {k: describe_import(v) for k, v in settings.items() if k not in plain}
    return plain, others


def _is_same(a: object, b: object) -> bool:
    """Compare two values of a setting; a comparison that raises counts as unequal."""
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 - values of a user's own may compare in any way
        return False


def _is_plain(value: object) -> bool:
    """Return whether a setting consists of simple values that JSON can hold."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    return isinstance(value, (bool, int, float, str, type(None)))
