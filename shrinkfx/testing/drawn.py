"""Hypothesis strategies that draw skeletons, candidates and edits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import (
    Bypass,
    Drop,
    Edit,
    Merge,
    Replace,
    Specialisation,
    Specialise,
)
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.testing.programs import (
    DYNAMIC,
    FREE,
    HALVES,
    ROW,
    feed,
    inner,
    operator,
    projection,
    size,
    skeleton,
    subgraph,
    whole,
)


@st.composite
def skeletons(draw: st.DrawFn, max_operators: int = 12) -> Skeleton:
    """Draw the skeleton of a program.

    The program has inputs, weights, several types, operators that return tuples, sizes,
    outputs and buffer mutations.
    """
    nodes: dict[str, str | Node] = {"x": "", "h": feed(value=HALVES)}
    nodes["d"] = feed(value=DYNAMIC)
    nodes |= {"w": feed(Role.PARAMETER), "held": feed(Role.BUFFER)}
    nodes["row"] = replace(feed(value=ROW), storage=0)
    count = draw(st.integers(1, max_operators))
    for number in range(count):
        values = [n for n in nodes if _is_value(nodes[n])]
        chosen = st.lists(st.sampled_from(values), max_size=3, unique=True)
        operands = " ".join(draw(chosen))
        nodes |= draw(st.sampled_from(_SHAPES))(f"n{number}", operands)
    tensors = [n for n in nodes if _is_tensor(nodes[n]) and n.startswith("n")]
    extra = draw(st.lists(st.sampled_from(tensors), max_size=2, unique=True))
    program = skeleton(nodes)
    written = draw(st.sampled_from([None, "x", *tensors]))
    writes = [(written, "held")] if written else []
    outputs = [*program.outputs, *extra, *(value for value, _ in writes)]
    sizes = draw(st.sampled_from([{}, FREE]))
    return skeleton(nodes, " ".join(dict.fromkeys(outputs)), writes, sizes)


def _pair(name: str, operands: str) -> dict[str, Node]:
    both = operator(operands, value=None)
    return {name: both, f"{name}a": projection(name), f"{name}b": projection(name)}


def _sized(name: str, operands: str) -> dict[str, Node]:
    return {name: operator(operands), f"{name}size": size(name)}


def _looped(name: str, operands: str) -> dict[str, Node]:
    body = f"{name}body"
    names = [f"{body}.{letter}" for letter in "abcd"]
    nodes = dict(zip(names, (inner(), *map(inner, names)), strict=False))
    loop = operator(f"{operands} {body}", value=None, operators=4)
    return {
        **nodes,
        body: subgraph(names[-1]),
        name: loop,
        f"{name}a": projection(name),
    }


_SHAPES: tuple[Callable[[str, str], dict[str, Node]], ...] = (
    lambda name, operands: {name: operator(operands)},
    lambda name, operands: {name: operator(operands, value=HALVES)},
    lambda name, operands: {name: operator(operands, value=DYNAMIC)},
    lambda name, operands: {name: operator(operands, pointwise=True)},
    lambda name, _: {name: operator("row", storage=0)},
    *(_pair, _sized, _looped),
)
"""Make an operator of each kind, with its results, from its name and operands."""


def _is_tensor(node: str | Node) -> bool:
    """Return whether a node is a tensor that an operator may read."""
    if isinstance(node, str):
        return True
    return node.value is not None and node.role is not Role.SUBGRAPH_NODE


def _is_value(node: str | Node) -> bool:
    """Return whether a node is a tensor or a size, which an operator may read."""
    return _is_tensor(node) or (isinstance(node, Node) and node.role is Role.SIZE)


@st.composite
def candidates(draw: st.DrawFn, max_operators: int = 12) -> Candidate:
    """Draw a candidate: a random program after up to four random edits."""
    candidate = whole(draw(skeletons(max_operators)))
    candidate = candidate.returning(draw(st.sampled_from(Outputs)))
    for edit in draw(edits_of(candidate)):
        with suppress(InvalidEdit):
            candidate = apply(candidate, [edit])
    return candidate


def edits_of(candidate: Candidate) -> st.SearchStrategy[list[Edit]]:
    """Draw up to four edits to a candidate, most of which apply."""
    nodes = st.sampled_from(candidate.operators)
    values = [n for n in candidate.skeleton.graph if candidate.skeleton.node(n).value]
    inputs = st.sampled_from([*candidate.inputs, "nowhere"])
    drop = st.frozensets(nodes, min_size=1, max_size=3).map(Drop)
    bypassed = st.sampled_from([*candidate.operators, *candidate.subgraph_nodes])
    bypass = st.builds(Bypass, bypassed, st.sampled_from(values))
    plain = st.builds(Replace, nodes, st.sampled_from(values))
    unchanged = nodes.map(lambda node: Replace(node, node))
    merge = st.frozensets(inputs, max_size=3).map(Merge)
    settle = st.builds(
        Specialise, st.sampled_from([*FREE]), st.sampled_from(Specialisation)
    )
    return st.lists(drop | bypass | plain | unchanged | merge | settle, max_size=4)
