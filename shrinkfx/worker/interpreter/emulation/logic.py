"""Emulate ``and``, ``or`` and ``not`` in kernels, elementwise as in compiled kernels.

Triton's interpreter leaves these operators to Python, which takes any block of values
as true: ``(i >= 0) and (i < n)`` would be ``i < n``, and ``not mask`` would select no
lane.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

_NAME = "_shrinkfx_logic"
_HERE = sys.modules[__name__]  # a script's process has no shrinkfx later


def compile_logic() -> None:
    """Make kernels that are interpreted from now on call this module's functions."""
    from triton.runtime import interpreter

    # The interpreter passes its own globals to the kernels that it rewrites.
    vars(interpreter)[_NAME] = _HERE

    class Logic(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            self.generic_visit(node)
            how = "both" if isinstance(node.op, ast.And) else "either"
            return _call(node, how, [_later(value) for value in node.values])

        def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
            self.generic_visit(node)
            if not isinstance(node.op, ast.Not):
                return node
            return _call(node, "negated", [node.operand])

    class Transformer(interpreter.ASTTransformer):
        def visit_Module(self, node: ast.Module) -> Any:
            return self.generic_visit(Logic().visit(node))

    interpreter.FunctionRewriter.ast_transformer = Transformer()


def _later(value: ast.expr) -> ast.Lambda:
    none = ast.arguments([], [], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(none, value), value)


def _call(node: ast.expr, name: str, args: list[ast.expr]) -> ast.Call:
    function = ast.Attribute(ast.Name(_NAME, ast.Load()), name, ast.Load())
    return ast.copy_location(ast.Call(function, args, []), node)


def both(*operands: Callable[[], Any]) -> Any:
    """Combine operands as ``and`` does; constants short-circuit it, tensors do not."""
    return _combined(operands, ending=False, combine=lambda a, b: a & b)


def either(*operands: Callable[[], Any]) -> Any:
    """Combine operands as ``or`` does; only constants short-circuit it."""
    return _combined(operands, ending=True, combine=lambda a, b: a | b)


def negated(operand: Any) -> Any:
    """Negate an operand as ``not`` does."""
    return ~_truth(operand) if _is_value(operand) else not operand


def _combined(
    operands: tuple[Callable[[], Any], ...],
    *,
    ending: bool,
    combine: Callable[[Any, Any], Any],
) -> Any:
    result, value = None, None
    for operand in operands:
        value = operand()
        if _is_value(value):
            truth = _truth(value)
            result = truth if result is None else combine(result, truth)
        elif bool(value) is ending:
            return value
    return value if result is None else result


def _is_value(operand: Any) -> bool:
    import triton.language as tl

    return isinstance(operand, tl.tensor)


def _truth(value: Any) -> Any:
    return value if value.dtype.is_int1() else value != 0
