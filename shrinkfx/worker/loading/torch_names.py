"""Resolve names in a file to operators and functions of torch only.

torch follows a dotted name attribute by attribute, wherever it leads: modules of torch
have imported ``ctypes`` and ``os``, and an attribute of ``ctypes.cdll`` loads a library
of that name. Here, each step leads from a module of torch to an object of that module.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from shrinkfx.worker.private_api import archive_api, graph_api
from shrinkfx.worker.private_api.archive_api import serialize

_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?")
_KINDS: tuple[type | tuple[type, ...], ...] = (
    (archive_api.OpNamespace, archive_api.HigherOrderNamespace),
    (graph_api.OpOverloadPacket, graph_api.HigherOrderOperator),
    graph_api.OpOverload,
)
_FUNCTIONS = (type, types.FunctionType, types.BuiltinFunctionType)


def is_operator(text: str) -> bool:
    """Return whether a name is that of an operator, which this torch need not have."""
    found = _OPERATOR.fullmatch(text)
    if found is None:
        return False
    try:
        _operator(found)
    except LookupError:
        return False
    return True


def _operator(found: re.Match[str]) -> Any:
    """Look up an operator step by step; return None if this torch does not have it.

    Raises:
        LookupError: the name leads to something other than an operator.
    """
    value: Any = torch.ops
    for kind, part in zip(_KINDS, found.groups(), strict=True):
        if part is None:
            break
        # An attribute of the class is no operator; getting it might run code.
        if part in dir(type(value)):
            raise LookupError(part)
        value = getattr(value, part, None)
        if value is None:
            return None
        if not isinstance(value, kind):
            raise LookupError(part)
    return value


def resolve_source(text: str) -> Any:
    """Return the operator, class or function of torch that a node was made from.

    Returns:
        The text itself if it names something else, or something not imported.
    """
    if found := _OPERATOR.fullmatch(text):
        with contextlib.suppress(LookupError):
            return _operator(found) or text
        return text
    first, *steps = text.split(".")
    module: Any = {"torch": torch, "_operator": operator, "math": math}.get(first)
    for step in steps[:-1]:
        module = vars(module).get(step) if _is_of_torch(module) else None
    if not steps or not isinstance(module, types.ModuleType):
        return text
    value = vars(module).get(steps[-1])
    allowed = _is_of_torch(module) or module in (operator, math)
    return value if allowed and isinstance(value, _FUNCTIONS) else text


def _is_of_torch(module: Any) -> bool:
    name = getattr(module, "__name__", "")
    return isinstance(module, types.ModuleType) and name.partition(".")[0] == "torch"


# --- metadata of nodes in a file

_TORCH_FIELDS = ("stack_trace", "nn_module_stack", "torch_fn", "custom", "from_node")
"""Metadata that torch keeps as text or JSON."""

_SOURCES = "source_fn_stack"


@contextlib.contextmanager
def resolve_sources_here() -> Iterator[None]:
    """Make torch's reader look up the sources of nodes with ``source``."""
    cls = serialize.GraphModuleDeserializer
    by_torch = cls.deserialize_metadata

    @functools.wraps(by_torch)
    def metadata(self: Any, fields: Mapping[str, str]) -> dict[str, Any]:
        text_fields = {name: fields[name] for name in _TORCH_FIELDS if name in fields}
        read: dict[str, Any] = by_torch(self, text_fields)
        if stack := fields.get(_SOURCES):
            read[_SOURCES] = [_parse_source(text) for text in stack.split(";")]
        return read

    cls.deserialize_metadata = metadata
    try:
        yield
    finally:
        cls.deserialize_metadata = by_torch


def _parse_source(text: str) -> tuple[str, Any]:
    name, function = text.split(",")
    return name, resolve_source(function)
