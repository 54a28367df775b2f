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
            if _module(frame).startswith(_EXPORT):
                return False
            if _is_users(frame):
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
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return frame


def _is_users(frame: FrameType) -> bool:
    """Tell a frame that is neither PyTorch's nor the standard library's."""
    if frame.f_code.co_filename.startswith("<"):
        return False  # generated: a graph as Python, an import
    package = _module(frame).partition(".")[0]
    if package == "__main__":
        return True
    return package not in _PYTORCHS and package not in sys.stdlib_module_names


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
