"""Find sizes with which AOTInductor times a kernel by mistake.

Code generation records launches graph by graph, and computes their benchmark arguments
later, when another graph may be current. Each graph has its own table of precomputed
sizes (``ps0``). So this compares the values in both graphs: the one of the launch, and
the one that is current then.

Private APIs: ``generate_kernel_call``, ``_generate_kernel_call_helper`` and
``generate_example_arg_value`` of torch/_inductor/codegen/wrapper.py, and
``SizeVarAllocator.remove_precomputed_replacements`` (2.11 to 2.13).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import sympy

from shrinkfx.protocol.compiled_program_view import TimedSize
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.inductor_api import config


class TimedSizes:
    """Collects benchmark sizes that differ from the sizes in the kernel's own graph."""

    def __init__(self) -> None:
        self.found: list[TimedSize] = []
        self._graphs: dict[str, codegen_api.GraphLowering] = {}
        self._kernel = ""

    def reset(self) -> None:
        """Forget the sizes of another program."""
        self.found, self._graphs = [], {}

    @contextlib.contextmanager
    def record_timed_sizes(self) -> Iterator[None]:
        """Record the sizes of the kernels that are timed in the block."""
        owner = codegen_api.PythonWrapperCodegen
        wraps = {
            "generate_kernel_call": self._wrap_kernel_call,
            "_generate_kernel_call_helper": self._wrap_call_helper,
            "generate_example_arg_value": self._wrap_example_value,
        }
        with contextlib.ExitStack() as stack:
            for name, wrap in wraps.items():
                patch = mock.patch.object(owner, name, wrap(getattr(owner, name)))
                stack.enter_context(patch)
            yield

    def _wrap_kernel_call(self, original: Any) -> Any:
        """Wrap ``generate_kernel_call``: record the graph of the first launch."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, name: str, *args: Any, **more: Any) -> Any:
            self._graphs.setdefault(
                name, codegen_api.V.graph
            )  # a kernel is timed at its first launch
            return original(wrapper, name, *args, **more)

        return wrapped

    def _wrap_call_helper(self, original: Any) -> Any:
        """Wrap ``_generate_kernel_call_helper``: record which kernel is timed."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, name: str, *args: Any, **more: Any) -> Any:
            self._kernel = name
            return original(wrapper, name, *args, **more)

        return wrapped

    def _wrap_example_value(self, original: Any) -> Any:
        """Wrap ``generate_example_arg_value``: compare the size that it returns."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, argument: Any, *args: Any, **more: Any) -> Any:
            text = original(wrapper, argument, *args, **more)
            graph = self._graphs.get(self._kernel)
            size = getattr(argument, "inner_expr", argument)
            if graph is not None and isinstance(size, sympy.Expr) and text.isdigit():
                self._compare(str(argument), size, graph, int(text))
            return text

        return wrapped

    def _compare(
        self, name: str, size: sympy.Expr, graph: codegen_api.GraphLowering, value: int
    ) -> None:
        """Record a size whose benchmark value differs from its graph's value."""
        meant = int(graph.sizevars.optimization_hint(size))
        if meant == value:
            return
        current: Any = codegen_api.V.graph
        there = current.sizevars.remove_precomputed_replacements(size)
        is_known = not any(
            codegen_api.symbol_is_type(symbol, codegen_api.SymT.PRECOMPUTED_SIZE)
            for symbol in there.free_symbols
        )
        fallback = getattr(config, "unbacked_symint_fallback", None)
        self.found.append(
            TimedSize(
                kernel=self._kernel,
                name=name,
                graph=graph.name or "",
                stands_for=str(graph.sizevars.remove_precomputed_replacements(size)),
                meant=meant,
                searched_graph=current.name or "",
                there=str(there) if is_known else "",
                value=value,
                is_fallback=not is_known and value == fallback,
            )
        )
