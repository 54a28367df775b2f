"""Nodes of Inductor's graphs that PyTorch did not make: code of a user's own did.

    add = a + g * (c - a)    a pass of one's own     lerp(c, a, g), with add's ``meta``

What a node bears says nothing of that, since such a pass copies it from another node.
Who makes a node is on the stack then. What is made of a node while that is traced, or
copied, is made for it, whoever's code does so: a decomposition.
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
"""Packages whose frames are no user's."""

_EXPORT = "torch.export"
"""What this traces is the program, whoever wrote its modules."""

_FOR_ANOTHER = ("run_node", "node_copy")
"""Functions whose first argument is the node that they make others for."""


class OwnNodes:
    """Remembers which nodes code of a user's own has made, or has call another thing.

    Args:
        outside: the frame past which the stack tells nothing of a compiler.
    """

    def __init__(self, outside: FrameType | None) -> None:
        self._outside = outside
        self._nodes: set[fx.Node] = set()

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._nodes

    def see(self, node: fx.Node) -> None:
        """Look who is at work on a node."""
        if self._is_own(sys._getframe(2)):
            self._nodes.add(node)

    def _is_own(self, frame: FrameType | None) -> bool:
        own = False
        while frame is not None and frame is not self._outside:
            code = frame.f_code
            whose = _whose(code.co_filename, _module(frame))
            if whose is _Whose.EXPORTS:
                return False
            if whose is _Whose.USERS:
                own = True
            elif code.co_name in _FOR_ANOTHER and code.co_argcount > 1:
                other = frame.f_locals.get(code.co_varnames[1])
                if isinstance(other, fx.Node):
                    if other in self._nodes:
                        return True
                    own = False
            frame = frame.f_back
        return own


@contextlib.contextmanager
def own_nodes() -> Iterator[OwnNodes]:
    """See each node that is made inside."""
    found = OwnNodes(_outside())
    make, put = fx.Graph.create_node, fx.Node.__setattr__

    def create_node(graph: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        made = make(graph, *args, **kwargs)
        if made.op == "call_function":
            found.see(made)
        return made

    def set_attribute(node: fx.Node, name: str, value: Any) -> None:
        put(node, name, value)
        if name == "target":
            found.see(node)

    with (
        mock.patch.object(fx.Graph, "create_node", create_node),
        mock.patch.object(fx.Node, "__setattr__", set_attribute),
    ):
        yield found


def _outside() -> FrameType | None:
    """Find who has called this tool: what is outside of that compiles nothing."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _whose(frame.f_code.co_filename, _module(frame)) is _Whose.USERS:
            break
        frame = frame.f_back
    return frame


class _Whose(Enum):
    """Whose code a frame is of."""

    USERS = auto()
    EXPORTS = auto()
    NOBODYS = auto()


@cache
def _whose(file: str, module: str) -> _Whose:
    """Tell code that is neither PyTorch's nor the standard library's: a user's."""
    if module.startswith(_EXPORT):
        return _Whose.EXPORTS
    package = module.partition(".")[0]
    is_known = package in _PYTORCHS or package in sys.stdlib_module_names
    # Code without a file is generated: a graph as Python, an import.
    if file.startswith("<") or (is_known and package != "__main__"):
        return _Whose.NOBODYS
    return _Whose.USERS


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
