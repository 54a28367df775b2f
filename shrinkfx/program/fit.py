"""What a candidate requires of an edit, and what there is left of one to do."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace, Specialise
from shrinkfx.program.inside import graph_of, returns_an_input
from shrinkfx.program.settling import sizings

if TYPE_CHECKING:
    from shrinkfx.program.candidate import Candidate


def require_fit(candidate: Candidate, edit: Edit) -> None:
    """Refuse an edit that names what is not there, mixes types, or has no use.

    Raises:
        InvalidEdit: says what does not fit.
    """
    match edit:
        case Drop(nodes):
            _require_kept(candidate, nodes)
        case Bypass(node, operand):
            if node not in candidate.inside:
                _require_kept(candidate, {node})
            _require_same_type(candidate, node, operand)
            if returns_an_input(candidate, node, operand):
                raise InvalidEdit(f"without {node} an input is returned as it is")
        case Replace(node, operand):
            _require_kept(candidate, {node})
            if not candidate.is_replaceable(node):
                raise InvalidEdit(f"{node} is plain, or yields no single tensor")
            if operand != node:
                _require_same_type(candidate, node, operand)
        case Merge(inputs):
            _require_inputs(candidate, inputs)
        case Specialise(size, how):
            if how not in sizings(candidate).get(size, ()):
                raise InvalidEdit(f"the size {size} cannot be made {how}")


def left_of(edit: Edit, candidate: Candidate) -> Edit | None:
    """Leave out of an edit what is done already; None if that is all of it."""
    match edit:
        case Drop(nodes):
            kept = nodes & candidate.keep
            return Drop(kept) if kept else None
        case Bypass(node):
            there = node in candidate.keep or node in candidate.inside
            return edit if there else None
        case Replace(node):
            open_to_it = node in candidate.keep and candidate.is_replaceable(node)
            return edit if open_to_it else None
        case Merge(inputs):
            fed = inputs & set(candidate.inputs)
            return Merge(fed) if len(fed) > 1 else None
        case Specialise(size, how):
            return edit if how in sizings(candidate).get(size, ()) else None


def _require_kept(candidate: Candidate, nodes: Iterable[str]) -> None:
    missing = sorted(set(nodes) - candidate.keep)
    if missing:
        raise InvalidEdit(f"not in the candidate: {', '.join(missing)}")


def _require_same_type(candidate: Candidate, node: str, operand: str) -> None:
    skeleton = candidate.skeleton
    if operand not in skeleton or not skeleton.values_like(node, operand):
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
        # Such an input goes by the name of the operator whose value it holds.
        raise InvalidEdit(f"no input to stand for {', '.join(sorted(names))}")
