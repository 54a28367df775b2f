"""Which argument of an operator a leaf belongs to, by the operator's schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from shrinkfx.program.listing.statements import Leaf, LeafKind, Statement


@cache
def arguments_of(statement: Statement) -> Mapping[int, tuple[str, str]]:
    """Give the name and type of the argument that each leaf is, or is a part of.

    Leaves of what has no schema are left out.
    """
    operator = operator_at(statement.callee)
    if operator is None:
        return {}
    types = {each.name: str(each.type) for each in operator._schema.arguments}
    ordered = list(types)
    parents = {leaf.number: leaf for leaf in statement.leaves}
    places = [x.number for x in statement.leaves if x.parent is None and not x.keyword]
    found = {}
    for leaf in statement.leaves:
        top = _top(leaf, parents)
        name = top.keyword
        if name is None and (place := places.index(top.number)) < len(ordered):
            name = ordered[place]
        if name in types:
            found[leaf.number] = name, types[name]
    return found


def named(statement: Statement, name: str) -> list[Leaf]:
    """List the leaves of an argument, its own and those in it, in order."""
    there = arguments_of(statement)
    return [x for x in statement.leaves if there.get(x.number, ("", ""))[0] == name]


def operator_of(statement: Statement) -> str:
    """Name an operator of aten without its overload; '' of others."""
    parts = statement.callee.split(".")
    return parts[3] if parts[:3] == ["torch", "ops", "aten"] else ""


def _top(leaf: Leaf, parents: Mapping[int, Leaf]) -> Leaf:
    while leaf.parent is not None:
        leaf = parents[leaf.parent]
    return leaf


@cache
def operator_at(callee: str) -> torch._ops.OpOverload | None:
    """Find the operator that a statement calls; None of what is no operator."""
    if not callee.startswith("torch.ops."):
        return None
    found: object = torch
    for part in callee.split(".")[1:]:
        found = getattr(found, part, None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def is_index(leaf: Leaf, statement: Statement) -> bool:
    """Tell whether a number says which: ``split[1]``, ``x.shape[0]``."""
    above = [other for other in statement.leaves if other.number == leaf.parent]
    return any(a.kind is LeafKind.SIZE and a.text.endswith("]") for a in above)
