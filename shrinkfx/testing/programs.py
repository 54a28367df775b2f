"""Programs in a line, made of nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import FreeSize, Node, Role, Skeleton, TensorType

FLOATS = TensorType("float32", ("2", "3"))
"""The type of every value, unless you say otherwise."""

HALVES = TensorType("float16", ("2", "3"))
"""Another type, for what must not be mixed up with ``FLOATS``."""

ROW = TensorType("float32", ("1", "3"))
"""A type that an ``expand`` makes one of ``FLOATS``."""

DYNAMIC = TensorType("float32", ("s", "2*t + 1"))
"""A type whose sizes are not fixed: what they are is in ``FREE``."""

FREE: Mapping[str, FreeSize] = {
    "s": FreeSize(("s",), 4, 4),
    "t": FreeSize(("t",), 5, 6),
    "2*t + 1": FreeSize(("t",), 11, 13),
}
"""Sizes of a program that passes where ``t`` is 5 and fails where it is 6."""

Nodes = Mapping[str, str | Node]
"""What ``skeleton`` takes; annotate a variable of your own with it."""


def feed(role: Role = Role.INPUT, value: TensorType = FLOATS) -> Node:
    """Describe an input, a parameter, a buffer or a constant."""
    return Node("", role, value=value)


def operator(
    operands: str = "",
    *,
    target: str = "",
    value: TensorType | None = FLOATS,
    operators: int = 1,
    scope: str = "",
    storage: int | None = None,
    impure: bool = False,
    pointwise: bool = False,
) -> Node:
    """Describe an operator that reads ``operands``, names with blanks between.

    Args:
        target: ``aten.<name>.default`` if empty, without a number at the end.
        value: None if it returns several values (then add ``projection``s) or none.
        operators: what it counts for; more than 1 for a higher-order operator.
    """
    return Node(
        "",
        Role.OPERATOR,
        target,
        tuple(operands.split()),
        value,
        operators,
        scope=scope,
        storage=storage,
        impure=impure,
        pointwise=pointwise,
    )


def projection(of: str, value: TensorType | None = FLOATS) -> Node:
    """Describe one value of an operator that returns several."""
    return Node("", Role.PROJECTION, "operator.getitem", (of,), value)


def inner(operands: str = "", value: TensorType | None = FLOATS) -> Node:
    """Describe a node of a subgraph, an input of it if it reads nothing.

    It goes by the path to it, ``body.tanh``, and reads names of that form.
    """
    target = "aten.inner.default" if operands else ""
    read = tuple(operands.split())
    return Node("", Role.SUBGRAPH_NODE, target, read, value, int(bool(operands)))


def subgraph(returned: str) -> Node:
    """Describe a branch or a body; its nodes come before it."""
    return Node("", Role.SUBGRAPH, "", tuple(returned.split()))


def size(operands: str) -> Node:
    """Describe arithmetic on the sizes of ``operands``."""
    return Node("", Role.SIZE, "aten.sym_size.int", tuple(operands.split()))


def skeleton(
    nodes: Nodes,
    outputs: str = "",
    writes: Iterable[tuple[str, str]] = (),
    sizes: Mapping[str, FreeSize] = MappingProxyType({}),
) -> Skeleton:
    """Build a program from its nodes by name, in program order.

    A text is short for an operator with these operands, an empty one for an
    input::

        skeleton({"x": "", "w": feed(Role.PARAMETER), "mm": "x w", "relu": "mm"})

    Args:
        outputs: the returned values; those that nobody uses if empty.
        writes: values and the buffers that they are written into.
        sizes: those that are not fixed, where it is known at which the program passes.
    """
    named = [_named(name, node) for name, node in nodes.items()]
    used = {operand for node in named for operand in node.operands}
    unused = [n.name for n in named if n.name not in used and n.value is not None]
    returned = outputs.split() or unused
    return Skeleton(named, returned, writes=writes, sizes=sizes)


def _named(name: str, short: str | Node) -> Node:
    if isinstance(short, str):
        short = operator(short) if short else feed()
    target = short.target
    if short.role is Role.OPERATOR and not target:
        target = f"aten.{re.sub(r'_[0-9]+$', '', name)}.default"
    return replace(short, name=name, target=target)


def chain(first: str, *operators: str) -> Skeleton:
    """Build a program in which every operator reads the one before.

    ``chain("x", "relu", "tanh")`` returns ``tanh(relu(x))``.
    """
    names = (first, *operators)
    nodes = dict(zip(operators, names, strict=False))
    return skeleton({first: "", **nodes})


def whole(program: Skeleton) -> Candidate:
    """Make the candidate that a search starts from."""
    return Candidate.whole(program)
