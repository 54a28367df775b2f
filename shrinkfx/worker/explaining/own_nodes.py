"""Find nodes of Inductor's graphs that user code created, not PyTorch.

    add = a + g * (c - a)    a user's pass     lerp(c, a, g), with add's ``meta``

A node's metadata does not show this, because such a pass copies it from another node.
The stack shows who creates a node. A node that is created while another node is traced
or copied is created for that node, no matter who wrote the code: it is a decomposition.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from enum import Enum, auto
from functools import cache
from types import FrameType
from typing import Any
from unittest import mock

from torch import fx

_PYTORCHS = frozenset({"torch", "triton", "sympy", "mpmath", "shrinkfx"})
"""Packages whose frames are not user code."""

_EXPORT = "torch.export"
"""Nodes that torch.export traces belong to the program, whose modules anyone may have
written."""

_FOR_ANOTHER = ("run_node", "node_copy")
"""Functions whose first argument is the node for which they create others."""


class UserNodes:
    """The nodes that user code has created, or whose target user code has replaced.

    Args:
        caller: the frame that called shrinkfx; it and the frames above it are ignored.
    """

    def __init__(self, caller: FrameType | None) -> None:
        self._caller = caller
        self._nodes: set[fx.Node] = set()

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._nodes

    def record_node(self, node: fx.Node) -> None:
        """Add a node if user code is creating or changing it."""
        if self._is_user_at_work(sys._getframe(2)):
            self._nodes.add(node)

    def _is_user_at_work(self, frame: FrameType | None) -> bool:
        """Return whether user code is at work, from the innermost frame outwards."""
        is_user = False
        while frame is not None and frame is not self._caller:
            code = frame.f_code
            owner = _classify_owner(code.co_filename, _module(frame))
            if owner is _Owner.EXPORTS:
                return False
            if owner is _Owner.USERS:
                is_user = True
            elif code.co_name in _FOR_ANOTHER and code.co_argcount > 1:
                other = frame.f_locals.get(code.co_varnames[1])
                if isinstance(other, fx.Node):
                    if other in self._nodes:
                        return True
                    is_user = False
            frame = frame.f_back
        return is_user


@contextlib.contextmanager
def track_user_nodes() -> Iterator[UserNodes]:
    """Watch each node that is created in the block."""
    user_nodes = UserNodes(_find_caller_frame())
    make, set_attr = fx.Graph.create_node, fx.Node.__setattr__

    def create_node(graph: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        node = make(graph, *args, **kwargs)
        if node.op == "call_function":
            user_nodes.record_node(node)
        return node

    def set_attribute(node: fx.Node, name: str, value: Any) -> None:
        set_attr(node, name, value)
        if name == "target":
            user_nodes.record_node(node)

    with (
        mock.patch.object(fx.Graph, "create_node", create_node),
        mock.patch.object(fx.Node, "__setattr__", set_attribute),
    ):
        yield user_nodes


def _find_caller_frame() -> FrameType | None:
    """Return the frame of the user code that called shrinkfx; it compiles nothing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _classify_owner(frame.f_code.co_filename, _module(frame)) is _Owner.USERS:
            break
        frame = frame.f_back
    return frame


class _Owner(Enum):
    """The owner of a frame's code."""

    USERS = auto()
    EXPORTS = auto()
    NOBODYS = auto()


@cache
def _classify_owner(file: str, module: str) -> _Owner:
    """Classify code: a user's if it is neither PyTorch's nor the standard library's."""
    if module.startswith(_EXPORT):
        return _Owner.EXPORTS
    package = module.partition(".")[0]
    is_known = package in _PYTORCHS or package in sys.stdlib_module_names
    # Code without a file is generated: a graph's Python code, or an import.
    if file.startswith("<") or (is_known and package != "__main__"):
        return _Owner.NOBODYS
    return _Owner.USERS


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
