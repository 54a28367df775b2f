"""For which node of the program each line of generated code is written.

Inductor keeps that of a kernel, not of its lines. A lowering leaves a function that
says what one element is; it is called again and again, within those of the nodes that
read it, until code is written. So it is known there whose function is at work, where
that function notes it; and an operation that it notes down keeps it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch import fx

from shrinkfx.protocol.anatomy import LineOrigin
from shrinkfx.worker.explaining.origins import origins
from shrinkfx.worker.private_api import codegen_api

_META = "shrinkfx_node"
_ELEMENT_FUNCTIONS = ("inner_fn", "output_indexer")


class LineOrigins:
    """Gathers origins of lines, in the order in which they are written."""

    def __init__(self) -> None:
        self._at_work: list[fx.Node] = []
        self._written: dict[tuple[str, str], tuple[str, ...]] = {}

    def take(self) -> tuple[LineOrigin, ...]:
        """Hand out those of the kernel that has been written, and begin anew."""
        written, self._written = self._written, {}
        return tuple(LineOrigin(*key, nodes) for key, nodes in written.items())

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Note the lines that are written inside the block."""
        with contextlib.ExitStack() as stack:
            for owner, name, wrap in (
                (codegen_api.ir.Loops, "create", self._create),
                (codegen_api.loop_body.LightTracer, "create_node", self._create_node),
                (codegen_api.common.CSE, "generate", self._generate),
            ):
                wrapped = wrap(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, wrapped))
            yield

    def _create(self, usual: Any) -> Any:
        create = usual.__func__

        @functools.wraps(create)
        def wrapped(cls: type, *args: Any, **kwargs: Any) -> Any:
            node = getattr(codegen_api.V.graph, "current_node", None)
            if isinstance(node, fx.Node):
                for name in _ELEMENT_FUNCTIONS:
                    if callable(function := kwargs.get(name)):
                        kwargs[name] = self._naming(node, function)
            return create(cls, *args, **kwargs)

        return classmethod(wrapped)

    def _naming(self, node: fx.Node, function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._at_work.append(node)
            try:
                return function(*args, **kwargs)
            finally:
                self._at_work.pop()

        return wrapped

    def _create_node(self, usual: Callable[..., Any]) -> Any:
        @functools.wraps(usual)
        def wrapped(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            made = usual(tracer, *args, **kwargs)
            # A body that is written anew is read off the old one.
            if node := self._at_work[-1] if self._at_work else _interpreted():
                made.meta[_META] = node
            return made

        return wrapped

    def _generate(self, usual: Callable[..., Any]) -> Any:
        @functools.wraps(usual)
        def wrapped(cse: Any, buffer: Any, expr: Any, *args: Any, **kwargs: Any) -> Any:
            made = usual(cse, buffer, expr, *args, **kwargs)
            node = _interpreted()
            if node is not None and isinstance(expr, str):
                assigns = kwargs.get("assignment", True)
                key = (str(made) if assigns else "", expr)
                # Another loop of the kernel may hold the very same line.
                known = self._written.get(key, ())
                self._written[key] = tuple(dict.fromkeys([*known, *origins(node)]))
            return made

        return wrapped


def _interpreted() -> fx.Node | None:
    """Name the node whose operation is being read, if that is known."""
    at = getattr(codegen_api.V.interpreter, "current_node", None)
    node = at.meta.get(_META) if isinstance(at, fx.Node) else None
    return node if isinstance(node, fx.Node) else None
