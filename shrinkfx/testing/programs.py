"""Short descriptions of graphs, for tests that need a skeleton or a candidate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import FreeSize, Node, Role, Skeleton, TensorType

FLOATS = TensorType("float32", ("2", "3"))
"""The default type of a value."""

HALVES = TensorType("float16", ("2", "3"))
"""Another type, of values that must not be confused with those of ``FLOATS``."""

ROW = TensorType("float32", ("1", "3"))
"""A type that ``expand`` turns into ``FLOATS``."""

DYNAMIC = TensorType("float32", ("s", "2*t + 1"))
"""A type with dynamic sizes, whose values are in ``FREE``."""

FREE: Mapping[str, FreeSize] = {
    "s": FreeSize(("s",), 4, 4),
    "t": FreeSize(("t",), 5, 6),
    "2*t + 1": FreeSize(("t",), 11, 13),
}
"""Sizes of a program that passes if ``t`` is 5, and fails if ``t`` is 6."""

Nodes = Mapping[str, str | Node]
"""Type of the nodes that ``skeleton`` takes, for annotations."""


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
    """Describe an operator that reads ``operands``, names separated by blanks.

    Args:
        operands: names of the values that the operator reads.
        target: the target; if empty, ``skeleton`` sets ``aten.<name>.default``, with
            the name of the node without its number.
        value: type of the result; None if the operator returns several values (add
            ``projection`` nodes for them) or none.
        operators: number of operators that the node counts as; more than 1 for a
            higher-order operator.
        scope: path of the module that calls the operator, such as ``blocks.3.attn``.
        storage: nodes with the same number share memory.
        impure: whether the operator is impure.
        pointwise: whether the operator works element by element, and broadcasts.
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


def projection(source: str, value: TensorType | None = FLOATS) -> Node:
    """Describe one value of an operator that returns several."""
    return Node("", Role.PROJECTION, "operator.getitem", (source,), value)


def inner(operands: str = "", value: TensorType | None = FLOATS) -> Node:
    """Describe a node of a subgraph; without operands, an input of the subgraph.

    Its name is its path, such as ``body.tanh``, and so are the names of its operands.
    """
    target = "aten.inner.default" if operands else ""
    read = tuple(operands.split())
    return Node("", Role.SUBGRAPH_NODE, target, read, value, int(bool(operands)))


def subgraph(returned: str) -> Node:
    """Describe a branch or a loop body, whose nodes must precede it."""
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
    """Build a skeleton from its nodes by name, in program order.

    A string is short for an operator with these operands, and an empty string for an
    input::

        skeleton({"x": "", "w": feed(Role.PARAMETER), "mm": "x w", "relu": "mm"})

    Args:
        nodes: the nodes by name.
        outputs: names of the graph outputs, separated by blanks; if empty, the values
            that no node reads.
        writes: buffer mutations, as pairs of a value and the buffer that it is written
            into.
        sizes: the dynamic sizes, if the sizes at which the program passes are known.
    """
    named = [_name_node(name, node) for name, node in nodes.items()]
    used = {operand for node in named for operand in node.operands}
    unused = [n.name for n in named if n.name not in used and n.value is not None]
    returned = outputs.split() or unused
    return Skeleton(named, returned, writes=writes, sizes=sizes)


def _name_node(name: str, short: str | Node) -> Node:
    if isinstance(short, str):
        short = operator(short) if short else feed()
    target = short.target
    if short.role is Role.OPERATOR and not target:
        target = f"aten.{re.sub(r'_[0-9]+$', '', name)}.default"
    return replace(short, name=name, target=target)


def chain(first: str, *operators: str) -> Skeleton:
    """Build a skeleton in which every operator reads the one before it.

    ``chain("x", "relu", "tanh")`` returns ``tanh(relu(x))``.
    """
    names = (first, *operators)
    nodes = dict(zip(operators, names, strict=False))
    return skeleton({first: "", **nodes})


def whole(program: Skeleton) -> Candidate:
    """Make the candidate that contains all operators of a program."""
    return Candidate.from_skeleton(program)
