"""Apply edits to a candidate: check their preconditions, and trim finished edits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence, Set

import networkx as nx

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.broadcasting import find_misfitting_readers, repeats
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import (
    Bypass,
    Drop,
    Edit,
    Merge,
    Replace,
    Rewrite,
    Specialise,
)
from shrinkfx.program.listing.changes import Change, apply_changes
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.program.subgraphs import graph_of, returns_an_input

_ValuesFor = Callable[[Skeleton, str, str], list[str]]
"""A function that lists the values of an operator that another value may replace."""


def apply(candidate: Candidate, edits: Iterable[Edit]) -> Candidate:
    """Apply ``edits`` at once; their order does not matter.

    If several values are proposed for one operator's users, or as the operand of the
    simple operator in its place, the value that comes first in the program is taken,
    because it makes the most other operators unused.

    Raises:
        InvalidEdit: an edit names something that is not in the candidate, mixes types
            or replaces a simple operator, or no operator would remain.
    """
    edits = list(edits)
    if candidate.listing is not None:
        return _apply_rewrites(candidate, edits)
    program = candidate.skeleton
    keep, bypass = set(candidate.keep), dict(candidate.bypass)
    plain, sizes = dict(candidate.replace), dict(candidate.sizes)
    groups: list[frozenset[str]] = []
    for edit in edits:
        _require_fit(candidate, edit)
        match edit:
            case Drop(nodes):
                keep -= nodes
            case Bypass(node, operand):
                keep.discard(node)
                for value in _bypassed(program, node, operand):
                    bypass[value] = _first(program, operand, bypass.get(value))
            case Replace(node, operand):
                plain[node] = _first(program, operand, plain.get(node))
            case Merge(inputs):
                groups.append(inputs)
            case Specialise(size, how):
                sizes[size] = how
    for value, first in _join_groups(candidate, groups).items():
        (plain if value in candidate.keep else bypass)[value] = first
    edited = dataclasses.replace(
        candidate, keep=frozenset(keep), bypass=bypass, replace=plain, sizes=sizes
    ).normalised()
    if readers := find_misfitting_readers(edited):
        raise InvalidEdit(f"not of the type that they yield: {', '.join(readers)}")
    return edited


def _apply_rewrites(candidate: Candidate, edits: Iterable[Edit]) -> Candidate:
    """Apply edits to the printed program of a candidate."""
    changes: list[Change] = []
    for edit in edits:
        if not isinstance(edit, Rewrite):
            raise InvalidEdit(f"what is listed is rewritten, and not {edit}")
        changes += edit.changes
    assert candidate.listing is not None
    return candidate.with_listing(apply_changes(candidate.listing, changes))


def _bypassed(program: Skeleton, node: str, operand: str) -> list[str]:
    """List the values of an operator that a bypass replaces by ``operand``."""
    repeated = [node] if repeats(program, node, operand) else []
    return program.values_like(node, operand) or repeated


def _first(program: Skeleton, value: str, other: str | None) -> str:
    return value if other is None else min(other, value, key=program.order)


def _join_groups(
    candidate: Candidate, groups: Iterable[frozenset[str]]
) -> dict[str, str]:
    """Map each input of overlapping groups to the first input of its union.

    An input that holds a replaced operator's own value is never the first one, because
    for all other nodes its name means the result of the simple operator.
    """
    graph: nx.Graph[str] = nx.Graph()
    for group in groups:
        nx.add_path(graph, sorted(group))
    joined: dict[str, str] = {}
    for inputs in nx.connected_components(graph):
        first = min(inputs - candidate.keep, key=candidate.skeleton.order)
        joined.update(dict.fromkeys(inputs - {first}, first))
    return joined


def remaining_edit(edit: Edit, candidate: Candidate) -> Edit | None:
    """Return the part of an edit that is not done yet; None if all of it is done."""
    match edit:
        case Drop(nodes):
            remaining = nodes & candidate.keep
            return Drop(remaining) if remaining else None
        case Bypass(node):
            is_present = node in candidate.keep or node in candidate.subgraph_nodes
            return edit if is_present else None
        case Replace(node):
            is_open = node in candidate.keep and candidate.is_replaceable(node)
            return edit if is_open else None
        case Merge(inputs):
            fed = inputs & set(candidate.inputs)
            return Merge(fed) if len(fed) > 1 else None
        case Specialise(size, how):
            sizings = candidate.dynamic_sizes.specialisations()
            return edit if how in sizings.get(size, ()) else None
        case Rewrite(changes, partly):
            return _remaining_rewrite(candidate, changes, partly=partly)


def _remaining_rewrite(
    candidate: Candidate, changes: Sequence[Change], *, partly: bool
) -> Rewrite | None:
    """Remove the changes that are already made, or whose place no longer exists.

    A change that is valid only together with the others stays if all of them can be
    made.
    """
    listing = candidate.listing
    assert listing is not None
    combined = _try_changes(listing, changes)
    single = [(change, _try_changes(listing, [change])) for change in changes]
    remaining = [c for c, alone in single if alone != listing and (alone or combined)]
    return Rewrite(tuple(remaining), partly) if remaining else None


def _try_changes(
    listing: PrintedProgram, changes: Sequence[Change]
) -> PrintedProgram | None:
    """Apply changes; return None if they are invalid."""
    try:
        return apply_changes(listing, changes)
    except InvalidEdit:
        return None


def _require_kept(candidate: Candidate, nodes: Iterable[str]) -> None:
    missing = sorted(set(nodes) - candidate.keep)
    if missing:
        raise InvalidEdit(f"not in the candidate: {', '.join(missing)}")


def _require_value_for(
    candidate: Candidate, node: str, operand: str, fitting: _ValuesFor
) -> None:
    skeleton = candidate.skeleton
    if operand not in skeleton or not fitting(skeleton, node, operand):
        raise InvalidEdit(f"{operand} is no value of the type of {node}")
    if graph_of(operand) != graph_of(node):
        raise InvalidEdit(f"{operand} is not of the same graph as {node}")
    if skeleton.order(operand) >= skeleton.order(node):
        raise InvalidEdit(f"{operand} does not come before {node}")


def _require_inputs(candidate: Candidate, names: Set[str]) -> None:
    if missing := sorted(names - set(candidate.inputs)):
        raise InvalidEdit(f"no inputs: {', '.join(missing)}")
    types = {candidate.skeleton.node(name).value for name in names}
    if len(types) != 1 or None in types:
        raise InvalidEdit(f"not of one type: {', '.join(sorted(names))}")
    if names <= candidate.keep:
        # Such an input has the name of the operator whose value it holds.
        raise InvalidEdit(f"no input to stand for {', '.join(sorted(names))}")


def _require_fit(candidate: Candidate, edit: Edit) -> None:
    """Check that an edit names existing nodes of fitting types and has an effect.

    Raises:
        InvalidEdit: the message states what does not fit.
    """
    match edit:
        case Drop(nodes):
            _require_kept(candidate, nodes)
        case Bypass(node, operand):
            if node not in candidate.subgraph_nodes:
                _require_kept(candidate, {node})
            _require_value_for(candidate, node, operand, _bypassed)
            if returns_an_input(candidate.skeleton, candidate.resolve, node, operand):
                raise InvalidEdit(f"without {node} an input is returned as it is")
        case Replace(node, operand):
            _require_kept(candidate, {node})
            if not candidate.is_replaceable(node):
                raise InvalidEdit(f"{node} is plain, or yields no single tensor")
            if operand != node:
                _require_value_for(candidate, node, operand, Skeleton.values_like)
        case Merge(inputs):
            _require_inputs(candidate, inputs)
        case Specialise(size, how):
            if how not in candidate.dynamic_sizes.specialisations().get(size, ()):
                raise InvalidEdit(f"the size {size} cannot be made {how}")
        case Rewrite():
            raise InvalidEdit("the candidate is not listed")
