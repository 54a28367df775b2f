"""Parse the size expressions of a file without evaluating them.

Export writes a size as SymPy's ``srepr``: ``Mul(Integer(2), Symbol('s0'))``. torch
passes that to ``sympify``, which removes line breaks and calls ``eval``. Here, the text
is parsed, each node is looked up in a list, and the objects are built one by one, none
of them larger than a size can need.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import sympy

from shrinkfx.worker.private_api.archive_api import sympy_functions as functions

MOST_CHARACTERS = 200_000
MOST_DEEP = 100
MOST_TIMES = 64
"""The largest allowed exponent, or distance of a shift."""

MOST_DIGITS = 20
"""The largest allowed number of digits to round to."""

_MOST_OF_SUMS = 8
"""The largest exponent of a sum, because SymPy may expand the power."""

_COMPARED = {"Max": 16, "Min": 16, "And": 64, "Or": 64}
"""The number of arguments allowed for functions that SymPy compares in pairs."""

_MOST_BITS = 8192
_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,99}")
_DECIMAL = re.compile(r"[+-]?[0-9]{0,40}\.?[0-9]{0,40}(e[+-]?[0-9]{1,3})?")
MOST_OF_A_NAME = 1000
_KEY = re.compile(r"""[^"'\\\x00-\x1f\x7f-\xa0\u2028\u2029{}]{0,1000}""")
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"})

_TORCH_FUNCTIONS = (
    *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv"),
    *("CeilToInt", "FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural"),
    *("FloatPow", "FloatTrueDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator"),
    *("TruncToFloat", "TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat"),
    "Identity",
)
"""torch's functions that torch's reader knows; others are unknown functions to it."""

_UNKNOWN_TO_TORCH = ("OpaqueUnaryFn_", "BitwiseFn_")

_SYMPY = (
    *("Add", "Mul", "Pow", "Max", "Min", "Abs", "floor", "ceiling"),
    *("Equality", "Unequality", "LessThan", "StrictLessThan"),
    *("GreaterThan", "StrictGreaterThan", "And", "Or", "Not", "ITE"),
)
_CONSTANTS = {
    "oo": sympy.oo,
    "true": sympy.true,
    "false": sympy.false,
    "nan": sympy.nan,
    "pi": sympy.pi,
}
_ASSUMPTIONS = frozenset(
    (
        *(
            "commutative",
            "complex",
            "even",
            "extended_negative",
            "extended_nonnegative",
        ),
        *("extended_nonzero", "extended_positive", "extended_real", "finite"),
        *("infinite", "integer", "negative", "noninteger", "nonnegative"),
        *("nonpositive", "nonzero", "odd", "positive", "rational", "real", "zero"),
    )
)


class NotASize(ValueError):
    """The text is not an expression that export writes."""


def _known() -> dict[str, Callable[..., Any]]:
    known: dict[str, Callable[..., Any]] = {}
    known |= {name: getattr(sympy, name) for name in _SYMPY}
    for name in vars(functions):
        if name.startswith(_UNKNOWN_TO_TORCH):
            known[name] = sympy.Function(name)
    for name in _TORCH_FUNCTIONS:
        if function := getattr(functions, name, None):
            known[name] = function
    return known


_KNOWN = _known()


@functools.lru_cache(maxsize=1 << 16)
def build_size(text: str) -> Any:
    """Build the SymPy object that a text describes.

    Raises:
        NotASize: the text is not a size, or is unreasonably large.
    """
    try:
        return _build(parse_expression(text), 0)
    except NotASize:
        raise
    except Exception as error:  # raised by SymPy's constructors
        raise NotASize(f"{text!r:.60}: {error}") from error


def parse_expression(text: str) -> ast.expr:
    """Parse one line into a syntax tree.

    Raises:
        NotASize: the text is not an expression, not one line, or too long.
    """
    if not isinstance(text, str):
        raise NotASize("no text")
    if len(text) > MOST_CHARACTERS:
        raise NotASize(f"longer than {MOST_CHARACTERS:,} characters")
    # Readers differ in which characters separate lines.
    if not text.isprintable():
        raise NotASize(f"{text!r:.60} is more than one line")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotASize(f"{text!r:.60} is not an expression") from error


def _build(node: ast.expr, depth: int) -> Any:
    if depth > MOST_DEEP:
        raise NotASize(f"nested more than {MOST_DEEP} deep")
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="oo")):
            return -sympy.oo
        case ast.Call(func=ast.Name(id="Symbol"), args=[name], keywords=words):
            return sympy.Symbol(_name(name), **_assumptions(words))
        case ast.Call(func=ast.Name(id="Integer"), args=[n], keywords=[]):
            return sympy.Integer(_whole(n))
        case ast.Call(func=ast.Name(id="Rational"), args=[p, q], keywords=[]):
            return sympy.Rational(_whole(p), _whole(q) or _zero())
        case ast.Call(func=ast.Name(id="Float"), args=[text], keywords=words):
            return sympy.Float(_decimal(text), **_precision(words))
        case ast.Call(func=function, args=parts, keywords=[]):
            name = _function(function)
            return _apply_function(name, [_build(part, depth + 1) for part in parts])
    raise NotASize(f"{ast.unparse(node)!r:.60} cannot be part of a size")


def _function(node: ast.expr) -> str:
    """Return the function's name: ``Function('OpaqueUnaryFn_sqrt')`` if saved again."""
    match node:
        case ast.Name(id=name) if name in _KNOWN:
            return name
        case ast.Call(
            func=ast.Name(id="Function"), args=[ast.Constant(value=name)], keywords=[]
        ) if name in _KNOWN and str(name).startswith(_UNKNOWN_TO_TORCH):
            return str(name)
    raise NotASize(f"{ast.unparse(node)!r:.60} is not a function of sizes")


def _apply_function(name: str, parts: list[Any]) -> Any:
    if name in _POWERS:
        _require_small_power(parts)
    if len(parts) > (most := _COMPARED.get(name, len(parts))):
        raise NotASize(f"a number of more than {most} in a {name}")
    if name == "RoundDecimal" and not _are_digits(parts[1:]):
        raise NotASize("rounded to a number of digits that no float has")
    result = _KNOWN[name](*parts)
    for number in (result, *getattr(result, "args", ())):
        _require_small(number)
    return result


def _are_digits(parts: list[Any]) -> bool:
    return all(part.is_Integer and 0 <= part <= MOST_DIGITS for part in parts)


def _require_small_power(parts: list[Any]) -> None:
    if len(parts) != 2:
        raise NotASize(f"a power of {len(parts)} numbers")
    exponent = parts[1]
    if not exponent.free_symbols and not (
        exponent.is_Number and exponent.is_finite and abs(exponent) <= MOST_TIMES
    ):
        raise NotASize(f"a power beyond {MOST_TIMES}")


def _require_small(number: Any) -> None:
    if getattr(number, "is_Pow", False) and not number.base.is_Atom:
        exponent = number.exp
        if exponent.is_Number and not abs(exponent) <= _MOST_OF_SUMS:
            raise NotASize(f"a power beyond {_MOST_OF_SUMS} of more than a symbol")
    if getattr(number, "is_Rational", False):
        if max(number.p.bit_length(), number.q.bit_length()) > _MOST_BITS:
            raise NotASize(f"a number of more than {_MOST_BITS} bits")
    elif getattr(number, "is_Float", False) and math.isinf(float(number)):
        raise NotASize("a number that no float holds")


def _zero() -> int:
    raise NotASize("a division by zero")


def _name(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(name)) if _NAME.fullmatch(name):
            return name
    raise NotASize(f"{ast.unparse(node)!r:.60} is no symbol's name")


def _assumptions(words: list[ast.keyword]) -> dict[str, bool]:
    found = {}
    for word in words:
        value = getattr(word.value, "value", None)
        if word.arg not in _ASSUMPTIONS or not isinstance(value, bool):
            raise NotASize(f"{word.arg!r:.60} is no property of a symbol")
        found[word.arg] = value
    return found


def _whole(node: ast.expr) -> int:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    match node:
        case ast.Constant(value=int(number)) if number.bit_length() <= _MOST_BITS:
            return sign * number
    raise NotASize("no whole number of a reasonable length")


def _decimal(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)) if _DECIMAL.fullmatch(text):
            return text
    raise NotASize(f"{ast.unparse(node)!r:.60} is no decimal number")


def _precision(words: list[ast.keyword]) -> dict[str, int]:
    match words:
        case []:
            return {}
        case [ast.keyword(arg="precision", value=ast.Constant(value=int(bits)))]:
            if 0 < bits <= 256:
                return {"precision": bits}
    raise NotASize("a number of another precision")


def is_plain(text: str) -> bool:
    """Return whether a text remains one string if torch writes it between quotes."""
    return _KEY.fullmatch(text) is not None
