"""Script objects of C++ classes ("torchbind"), which a program holds as constants."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.worker.private_api import archive_api

_LONG = 1000
"""The number of characters from which a state is no easier to read than its bytes."""


@contextlib.contextmanager
def copy_script_objects(exported: ExportedProgram) -> Iterator[None]:
    """Let modules that are made of a program in the context hold copied objects."""
    names = exported.graph_signature.lifted_custom_objs
    before = {name: exported.constants[name] for name in names}
    exported.constants.update({n: copy_script_object(o) for n, o in before.items()})
    try:
        yield
    finally:
        exported.constants.update(before)


def copy_script_object(value: torch.ScriptObject) -> torch.ScriptObject:
    """Copy a script object, because methods may change it.

    Returns:
        The object itself if its class cannot be copied.
    """
    try:
        copied: torch.ScriptObject = copy.deepcopy(value)
    except (RuntimeError, TypeError):
        return value
    return copied


def save_script_object(value: torch.ScriptObject) -> torch.Tensor:
    """Save a script object as bytes that a repro can load with ``weights_only``."""
    return torch.frombuffer(bytearray(_pickle_object(value)), dtype=torch.uint8)


def expression_for(value: torch.ScriptObject) -> str:
    """Return an expression with the state and class of an object.

    Returns:
        '' if the state is not plain data, is long, or does not restore the object.
    """
    try:
        reduced: Any = value.__reduce_ex__(2)
        state, name = reduced[2]
        made = script_object(state, name)
        plain = _is_plain(state) and _pickle_object(made) == _pickle_object(value)
    except (RuntimeError, TypeError):
        return ""
    text = f"script_object({state!r}, {name!r})"
    return text if plain and len(text) < _LONG else ""


def script_object(state: object, name: str) -> torch.ScriptObject:
    """Make a script object of its state and its class, as a repro does."""
    made: Any = torch.ScriptObject.__new__(torch.ScriptObject)
    made.__setstate__((state, name))
    found: torch.ScriptObject = made
    return found


def _is_plain(state: Any) -> bool:
    if isinstance(state, (tuple, list)):
        return all(map(_is_plain, state))
    if isinstance(state, dict):
        return all(_is_plain(part) for pair in state.items() for part in pair)
    return state is None or isinstance(state, (bool, int, str)) or _is_finite(state)


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and repr(value)[-1].isdigit()


def _pickle_object(value: torch.ScriptObject) -> bytes:
    saved: bytes = archive_api.pickle_save(value)
    return saved
