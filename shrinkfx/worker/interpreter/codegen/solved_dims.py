"""Let the Python wrapper solve for symbols in input sizes, as AOTInductor's does.

If an input's dim is declared as ``2*half``, and no input has a dim ``half``, Inductor's
C++ wrapper solves for ``half``; its Python wrapper does so since torch 2.14.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any
from unittest import mock

import sympy


def solve_input_dims() -> contextlib.AbstractContextManager[Any]:
    """Patch the Python wrapper to solve an input's size for its one unknown symbol."""
    from shrinkfx.worker.private_api.cuda_api import PythonWrapperCodegen

    original = PythonWrapperCodegen.codegen_input_symbol_assignment
    if "deferred_symbol_assignments" in inspect.signature(original).parameters:
        return contextlib.nullcontext()  # Inductor itself solves

    def assign(self: Any, name: str, value: Any, bound_vars: Any) -> None:
        original(self, name, value, bound_vars)
        for dim, size in enumerate(_sizes(value)):
            unknown = size.free_symbols - set(bound_vars)
            if len(unknown) == 1:
                (symbol,) = unknown
                _solve(self.prefix, symbol, size, f"{name}.size({dim})")
                bound_vars.add(symbol)

    name = "codegen_input_symbol_assignment"
    return mock.patch.object(PythonWrapperCodegen, name, assign)


def _sizes(value: Any) -> list[sympy.Expr]:
    from shrinkfx.worker.private_api.cuda_api import ir

    sizes = value.get_size() if isinstance(value, ir.TensorBox) else ()
    return [
        size if isinstance(size, sympy.Expr) else sympy.Integer(1) for size in sizes
    ]


def _solve(code: Any, symbol: sympy.Symbol, size: sympy.Expr, actual: str) -> None:
    """Write a line such as ``half = int(arg0_1.size(1) // 2)`` into the wrapper.

    Raises:
        AssertionError: the size cannot be solved for the symbol.
    """
    from shrinkfx.worker.private_api.cuda_api import pexpr, try_solve

    value = sympy.Symbol("given", integer=True)
    solution = try_solve(sympy.Eq(size, value), symbol)
    if solution is None:
        raise AssertionError(f"{sympy.Eq(size, value)} is not solvable")
    code.writeline(f"{symbol} = int((lambda given: {pexpr(solution[1])})({actual}))")
