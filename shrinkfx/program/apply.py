"""Apply edits to a candidate: check their preconditions, and trim finished edits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import networkx as nx

from shrinkfx.errors import InvalidEdit
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
from shrinkfx.program.skeleton import Role, Skeleton, graph_of, returns_an_input

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


# Bypasses to a value of another shape, if all its readers broadcast it.
#
#     norm -> expand -> div          becomes        norm -> div
#
# Such a bypass is valid if the removed value only repeats the other one, and if each
# reader works element by element and still returns its full shape because of another
# operand.


def repeats(skeleton: Skeleton, value: str, base: str) -> bool:
    """Return whether a value is a view of ``base`` that repeats it or adds 1-dims."""
    node, source = skeleton.node(value), skeleton.node(base)
    if node.value is None or source.value is None or node.storage is None:
        return False
    shape, expanded = source.value.shape, node.value.shape
    return (
        node.storage == source.storage
        and node.value.dtype == source.value.dtype
        # A 0-dim tensor would not take part in the type promotion of a result.
        and bool(shape)
        and shape != expanded
        and _broadcast([shape, expanded]) == expanded
    )


def can_read(candidate: Candidate, value: str, base: str) -> bool:
    """Return whether all readers of a value would keep their types with ``base``."""
    names = {value, *(v for v in candidate.bypass if candidate.resolve(v) == value)}
    readers = _readers(candidate, names)
    return all(_fits(candidate, reader, {value: base}) for reader in readers)


def find_retyped_values(candidate: Candidate) -> set[str]:
    """Collect the values that are bypassed by values of another type."""
    node = candidate.skeleton.node
    return {
        v for v in candidate.bypass if node(v).value != node(candidate.resolve(v)).value
    }


def find_misfitting_readers(candidate: Candidate) -> list[str]:
    """List the nodes whose type would change, because an operand has another shape."""
    read = [*_readers(candidate, find_retyped_values(candidate)), *candidate.replace]
    misfits = (reader for reader in read if not _fits(candidate, reader, {}))
    return candidate.skeleton.in_order(misfits)


def _readers(candidate: Candidate, values: Iterable[str]) -> Iterator[str]:
    """Yield the readers of values: kept operators, and sizes, whether used or not."""
    skeleton, replaced = candidate.skeleton, candidate.replace
    for value in values:
        for user in skeleton.graph.successors(value):
            is_size = skeleton.node(user).role is Role.SIZE
            if is_size or (user in candidate.keep and user not in replaced):
                yield user
        yield from (user for user, operand in replaced.items() if operand == value)


def _fits(candidate: Candidate, reader: str, handed_on: Mapping[str, str]) -> bool:
    node = candidate.skeleton.node(reader)
    read = (handed_on.get(v, v) for v in candidate.operands(reader))
    types = [t for v in read if (t := candidate.skeleton.node(v).value)]
    if reader in candidate.replace:
        return types == [node.value]
    if node.value is None or not node.pointwise:
        return False
    return _broadcast([t.shape for t in types]) == node.value.shape


def _broadcast(shapes: Iterable[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the broadcast shape of several shapes; None if it is uncertain.

    >>> _broadcast([("s", "1"), ("8",)])
    ('s', '8')
    >>> _broadcast([("s",), ("8",)])
    """
    dims: list[set[str]] = []
    for shape in shapes:
        dims += [set() for _ in range(len(shape) - len(dims))]
        for sizes, size in zip(dims, reversed(shape), strict=False):
            sizes.add(size)
    known = [sizes - {"1"} for sizes in dims]
    if any(len(sizes) > 1 for sizes in known):
        return None
    return tuple(next(iter(sizes), "1") for sizes in reversed(known))
