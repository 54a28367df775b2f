"""Record for which program node each line of generated code was written.

Inductor keeps this for a kernel, not for its lines. A lowering creates a function that
computes one element; it runs again and again, nested in the functions of the nodes that
read it, until code is written. So each such function is wrapped to push its node onto a
stack: an operation that is traced belongs to the innermost node, and keeps it in its
metadata.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch import fx

from shrinkfx.protocol.compiled_program_view import LineOrigin
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.private_api import codegen_api

_META = "shrinkfx_node"
_ELEMENT_FUNCTIONS = ("inner_fn", "output_indexer")


class LineOrigins:
    """Collects the origins of lines in the order in which they are written."""

    def __init__(self) -> None:
        self._stack: list[fx.Node] = []
        self._written: dict[tuple[str, str], tuple[str, ...]] = {}

    def take_origins(self) -> tuple[LineOrigin, ...]:
        """Return the line origins of the kernel just written, and forget them."""
        written, self._written = self._written, {}
        return tuple(LineOrigin(*key, nodes) for key, nodes in written.items())

    @contextlib.contextmanager
    def record_lines(self) -> Iterator[None]:
        """Record the lines that are written in the block."""
        with contextlib.ExitStack() as stack:
            for owner, name, wrap in (
                (codegen_api.ir.Loops, "create", self._create),
                (codegen_api.loop_body.LightTracer, "create_node", self._create_node),
                (codegen_api.common.CSE, "generate", self._generate),
            ):
                wrapped = wrap(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, wrapped))
            yield

    def _create(self, original: Any) -> Any:
        """Wrap ``Loops.create``: wrap the element functions of the current node."""
        create = original.__func__

        @functools.wraps(create)
        def wrapped(cls: type, *args: Any, **kwargs: Any) -> Any:
            node = getattr(codegen_api.V.graph, "current_node", None)
            if isinstance(node, fx.Node):
                for name in _ELEMENT_FUNCTIONS:
                    if callable(function := kwargs.get(name)):
                        kwargs[name] = self._wrap_element_function(node, function)
            return create(cls, *args, **kwargs)

        return classmethod(wrapped)

    def _wrap_element_function(
        self, node: fx.Node, function: Callable[..., Any]
    ) -> Any:
        """Wrap a node's element function to push the node while it runs."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._stack.append(node)
            try:
                return function(*args, **kwargs)
            finally:
                self._stack.pop()

        return wrapped

    def _create_node(self, original: Callable[..., Any]) -> Any:
        """Wrap the tracer of loop bodies: store the innermost node in operations."""

        @functools.wraps(original)
        def wrapped(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            created = original(tracer, *args, **kwargs)
            # A body may be traced again from an old one, which has the metadata.
            if node := self._stack[-1] if self._stack else _find_current_node():
                created.meta[_META] = node
            return created

        return wrapped

    def _generate(self, original: Callable[..., Any]) -> Any:
        """Wrap ``CSE.generate``: record the node of each line that it writes."""

        @functools.wraps(original)
        def wrapped(cse: Any, buffer: Any, expr: Any, *args: Any, **kwargs: Any) -> Any:
            variable = original(cse, buffer, expr, *args, **kwargs)
            node = _find_current_node()
            if node is not None and isinstance(expr, str):
                assigns = kwargs.get("assignment", True)
                key = (str(variable) if assigns else "", expr)
                # Another loop of the kernel may have the same line.
                known = self._written.get(key, ())
                self._written[key] = tuple(dict.fromkeys([*known, *find_origins(node)]))
            return variable

        return wrapped


def _find_current_node() -> fx.Node | None:
    """Return the program node of the operation that is written now, or None."""
    current = getattr(codegen_api.V.interpreter, "current_node", None)
    node = current.meta.get(_META) if isinstance(current, fx.Node) else None
    return node if isinstance(node, fx.Node) else None
