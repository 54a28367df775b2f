"""The guards of a program: Python conditions in a file, which torch evaluates.

Guards that are arithmetic on inputs, their sizes and strides are written again from the
parsed expression. Export writes no other guards.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from shrinkfx.worker.loading.formulas import (
    MOST_DEEP,
    MOST_DIGITS,
    MOST_TIMES,
    NotASize,
    is_plain,
    parse_expression,
)

_COMPARING = (
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
)
_CALLED = frozenset(
    {
        *("abs", "bool", "float", "int", "max", "min", "round"),
        *("IsNonOverlappingAndDenseIndicator", "cast_symbool_to_symint_guardless"),
    }
)
_OF_MODULES: Mapping[str, re.Pattern[str]] = {
    "math": re.compile(r"ceil|floor|trunc|sqrt|isnan|inf"),
    "torch": re.compile(r"sym_[a-z0-9_]+|_sym_[a-z0-9_]+"),
}


def rewrite_guard(text: str) -> str:
    """Parse a guard, and return its expression written again.

    Raises:
        NotASize: the guard is more than arithmetic on inputs, sizes and strides.
    """
    tree = parse_expression(text)
    try:
        _require_guard(tree, 0)
        return ast.unparse(tree)
    except RecursionError as error:
        raise NotASize("nested without end") from error


def _require_guard(node: ast.AST, depth: int) -> None:
    if depth > MOST_DEEP:
        raise NotASize(f"nested more than {MOST_DEEP} deep")
    if _is_source(node):
        return
    match node:
        case ast.Constant(value=bool() | float()) | ast.Name(id="inf"):
            return
        case ast.Constant(value=int(number)) if number.bit_length() <= 64:
            return
        case ast.Attribute() if _is_of_module(node):
            return
        case ast.Call(func=function, args=parts, keywords=[]):
            named = isinstance(function, ast.Name) and function.id in _CALLED
            if not named and not _is_of_module(function):
                raise NotASize(f"a call of {ast.unparse(function)!r:.60}")
            rounds = getattr(function, "id", "") == "round"
            if rounds and not _are_digits(parts[1:]):
                raise NotASize("rounded to a number of digits that no float has")
            for part in parts:
                _require_guard(part, depth + 1)
            return
        case ast.BinOp(op=ast.Pow()) if not _is_small_power(node):
            raise NotASize(f"a power beyond {MOST_TIMES}")
    if not isinstance(node, _COMPARING):
        raise NotASize(f"{ast.unparse(node)!r:.60} cannot be part of a condition")
    for child in ast.iter_child_nodes(node):
        _require_guard(child, depth + 1)


def _is_of_module(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return module in _OF_MODULES and bool(_OF_MODULES[module].fullmatch(name))
    return False


def _are_digits(parts: list[ast.expr]) -> bool:
    digits = [getattr(part, "value", None) for part in parts]
    return all(isinstance(n, int) and 0 <= n <= MOST_DIGITS for n in digits)


def _is_small_power(power: ast.BinOp) -> bool:
    exponent = getattr(power.right, "value", None)
    return (
        isinstance(exponent, (int, float))
        and exponent <= MOST_TIMES
        and not any(isinstance(node, ast.Pow) for node in ast.walk(power.left))
    )


def _is_source(node: ast.AST) -> bool:
    """Return whether a node is an input or its size: ``L['x'][0].size()[1]``."""
    match node:
        case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(key))):
            return is_plain(key)
        case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
            return is_plain(key) and _is_source(inner)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int())):
            return _is_source(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[], keywords=[]):
            return name in ("size", "stride", "storage_offset") and _is_source(inner)
        case ast.Attribute(value=inner, attr=name):
            return not name.startswith("_") and _is_source(inner)
    return False
