"""Look up facts about the reduced program in the input program."""

from __future__ import annotations

from collections.abc import Set
from typing import TypedDict

from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.subgraphs import graph_of
from shrinkfx.protocol.compiled_program_view import Carrier
from shrinkfx.report.explanation.operators import Operator


class CarryingInput(TypedDict, total=False):
    """The input of the input program that carries a size: fields of ``SizeSymbol``."""

    whole_input: str
    whole_dim: int


def trace_to_input(skeleton: Skeleton, carrier: Carrier | None) -> CarryingInput:
    """Trace the size of a cut value to an input; empty if it is an input's own size."""
    if carrier is None or carrier.input not in skeleton:
        return {}
    cut = skeleton.node(carrier.input)
    if cut.role is not Role.OPERATOR or cut.value is None:
        return {}
    size = cut.value.shape[carrier.dim]
    for name in skeleton.inputs:
        value = skeleton.node(name).value
        if value is not None and not size.isdigit() and size in value.shape:
            return {"whole_input": name, "whole_dim": value.shape.index(size)}
    return {}


def operators_within(
    skeleton: Skeleton, carrier: str, nodes: Set[str]
) -> tuple[Operator, ...]:
    """Return the operators of another operator's subgraphs, by Inductor's node names.

    Returns none if two of them have the same name.
    """
    graphs, outer = skeleton.subgraphs[carrier], skeleton.node(carrier)
    inner = [skeleton.node(n) for n in skeleton.graph if graph_of(n) in graphs]
    called = [n for n in inner if n.operators and n.name.rpartition(".")[2] in nodes]
    if len({n.name.rpartition(".")[2] for n in called}) < len(called):
        return ()
    return tuple(
        Operator(n.name, n.target, n.source or outer.source, n.scope or outer.scope)
        for n in called
    )
