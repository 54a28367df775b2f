"""Simple operators, and the one that replaces an expensive operator.

A simple operator is easy to understand, and a compiler prints it as one expression, a
copy or nothing at all. All others are expensive: convolutions, matrix products,
attention, reductions, sorting, indexing, random numbers, and custom operators.
"""

from __future__ import annotations

import re

_ARITHMETIC = (
    *("abs", "neg", "relu", "add", "sub", "rsub", "mul", "div", "reciprocal"),
    *("square", "sqrt", "rsqrt", "pow", "exp", "log", "sin", "cos", "tanh", "sigmoid"),
    *("clamp", "maximum", "minimum", "where", "eq", "ne", "lt", "le", "gt", "ge"),
    *("logical_not", "logical_and", "logical_or", "bitwise_not", "remainder"),
)
_VIEWS_AND_COPIES = (
    *("alias", "clone", "contiguous", "copy", "detach", "expand", "flatten"),
    *("permute", "reshape", "select", "slice", "squeeze", "t", "to", "_to_copy"),
    *("transpose", "unflatten", "unsqueeze", "_unsafe_view", "view"),
)
_FACTORIES = (
    *("arange", "empty", "full", "full_like", "ones", "ones_like"),
    *("scalar_tensor", "zeros", "zeros_like"),
)
_SIMPLE = frozenset([*_ARITHMETIC, *_VIEWS_AND_COPIES, *_FACTORIES])


def is_expensive(target: str) -> bool:
    """Return whether an operator is worth replacing.

    >>> [is_expensive(f"aten.{name}") for name in ("mm.default", "add.Tensor", "relu_")]
    [True, False, False]
    """
    found = re.fullmatch(r"aten\.(\w+?)_?(\.\w+)?", target)
    return found is None or found[1] not in _SIMPLE


def simple_operator_for(dtype: str) -> str:
    """Return the simple operator for values of a dtype.

    It is ``abs`` where the dtype has it, because ``abs`` has a kernel, which a copy may
    not have, and keeps sizes, indices and probabilities valid.
    """
    if dtype == "bool":
        return "aten.logical_not.default"
    return f"aten.{'neg' if dtype.startswith('complex') else 'abs'}.default"
