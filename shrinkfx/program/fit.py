"""What a candidate requires of an edit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Bypass, Drop, Edit

if TYPE_CHECKING:
    from shrinkfx.program.candidate import Candidate


def require_fit(candidate: Candidate, edit: Edit) -> None:
    """Refuse an edit that names what is not there, or mixes types.

    Raises:
        InvalidEdit: says what does not fit.
    """
    match edit:
        case Drop(nodes):
            _require_kept(candidate, nodes)
        case Bypass(node, operand):
            _require_kept(candidate, {node})
            _require_same_type(candidate, node, operand)


def _require_kept(candidate: Candidate, nodes: Iterable[str]) -> None:
    missing = sorted(set(nodes) - candidate.keep)
    if missing:
        raise InvalidEdit(f"not in the candidate: {', '.join(missing)}")


def _require_same_type(candidate: Candidate, node: str, operand: str) -> None:
    skeleton = candidate.skeleton
    types = [skeleton.node(v).value for v in skeleton.values(node)]
    if operand not in skeleton or skeleton.node(operand).value not in types:
        raise InvalidEdit(f"{operand} is no value of the type of {node}")
    if skeleton.order(operand) >= skeleton.order(node):
        raise InvalidEdit(f"{operand} does not come before {node}")
