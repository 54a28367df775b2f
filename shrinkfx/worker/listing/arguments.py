"""The operator argument that each leaf of a statement belongs to, by schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from shrinkfx.program.listing.statements import Leaf, LeafKind, Statement
from shrinkfx.worker.private_api import graph_api

FROM_THE_END = ("index", "_unsafe_index", "index_put", "_unsafe_index_put")
"""Operators that take a list of indices, which may be negative."""

ALONG = (
    *("index_select", "gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_add", "index_copy", "index_fill"),
)
"""Operators with an ``index`` along one dim."""
TABLES = ("embedding", "embedding_bag", "_embedding_bag")
"""Operators whose ``indices`` are rows of a table."""
LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")
"""Operators whose ``target`` is a class."""

_INDEX_ARGUMENTS = {
    **dict.fromkeys((*FROM_THE_END, *TABLES), "indices"),
    **dict.fromkeys(ALONG, "index"),
    **dict.fromkeys(LOSSES, "target"),
}
"""The argument that holds indices, by operator."""


@cache
def find_index_names(statement: Statement) -> frozenset[str]:
    """Return the names of the values that a statement uses as indices."""
    argument = _INDEX_ARGUMENTS.get(get_operator_name(statement).removesuffix("_"))
    leaves = list_argument_leaves(statement, argument) if argument else []
    return frozenset(leaf.text for leaf in leaves if leaf.kind is LeafKind.VALUE)


@cache
def arguments_of(statement: Statement) -> Mapping[int, tuple[str, str]]:
    """Map the number of each leaf to the argument that it is, or is a part of.

    Returns:
        Name and schema type of the argument; empty if the callee has no schema.
    """
    operator = resolve_callee(statement.callee)
    if operator is None:
        return {}
    types = {each.name: str(each.type) for each in operator._schema.arguments}
    ordered = list(types)
    parents = {leaf.number: leaf for leaf in statement.leaves}
    positions = [
        x.number for x in statement.leaves if x.parent is None and not x.keyword
    ]
    found = {}
    for leaf in statement.leaves:
        top = _top(leaf, parents)
        name = top.keyword
        if name is None and (position := positions.index(top.number)) < len(ordered):
            name = ordered[position]
        if name is not None and name in types:
            found[leaf.number] = name, types[name]
    return found


def list_argument_leaves(statement: Statement, name: str) -> list[Leaf]:
    """List the leaves of an argument, including nested leaves, in order."""
    arguments = arguments_of(statement)
    return [x for x in statement.leaves if arguments.get(x.number, ("", ""))[0] == name]


def get_operator_name(statement: Statement) -> str:
    """Return the name of an aten operator without its overload, else ''."""
    parts = statement.callee.split(".")
    return parts[3] if parts[:3] == ["torch", "ops", "aten"] else ""


def _top(leaf: Leaf, parents: Mapping[int, Leaf]) -> Leaf:
    while leaf.parent is not None:
        leaf = parents[leaf.parent]
    return leaf


@cache
def resolve_callee(callee: str) -> graph_api.OpOverload | None:
    """Return the operator that a statement calls, or None if it calls none."""
    if not callee.startswith("torch.ops."):
        return None
    found: object = torch
    for part in callee.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, graph_api.OpOverload) else None


def is_index(leaf: Leaf, statement: Statement) -> bool:
    """Return whether a number is an index: ``split[1]``, ``x.shape[0]``."""
    parents = [other for other in statement.leaves if other.number == leaf.parent]
    return any(a.kind is LeafKind.SIZE and a.text.endswith("]") for a in parents)
