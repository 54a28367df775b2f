"""A check of the laws of a strategy, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit
from shrinkfx.program.listing.printed_program import UNTYPED, Types
from shrinkfx.program.view import View
from shrinkfx.search.strategy import Strategy, collect_proposals, make_law_error


def check_strategy(
    strategy: Strategy, candidate: Candidate, types: Types = UNTYPED
) -> None:
    """Check the laws of ``shrinkfx.search.strategy`` on one candidate.

    The check cannot judge whether the most promising edits come first.

    Args:
        strategy: the strategy to check.
        candidate: the candidate to propose edits to; for a strategy for printed
            programs, one made by ``listed``.
        types: types of the values of a printed program.

    Raises:
        StrategyError: the strategy breaks a law; the message names the law, and
            describes what happened.
        TypeError: the object is not a strategy.
    """
    _check_form(strategy, candidate)
    edits = collect_proposals(strategy, candidate, types=types)
    copy = Candidate.from_json(candidate.skeleton, candidate.to_json())
    for each in (candidate, copy):
        if (other := collect_proposals(strategy, each, types=types)) != edits:
            raise make_law_error(strategy, 1, f"it proposed {edits}, then {other}")
    for edit in edits:
        _check_edit(strategy, candidate, edit)


def _check_form(strategy: Strategy, candidate: Candidate) -> None:
    if not isinstance(strategy, Strategy) or not strategy.name.isidentifier():
        raise TypeError(f"{strategy!r} has no name, combines and propose(view)")
    if not isinstance(strategy.propose(View(candidate)), Iterator):
        raise make_law_error(strategy, 4, "propose is no generator")


def _check_edit(strategy: Strategy, candidate: Candidate, edit: Edit) -> None:
    try:
        apply(candidate, [edit])
    except InvalidEdit:
        return
    except Exception as error:  # a plug-in may put anything into an edit
        raise make_law_error(strategy, 3, f"{edit!r} raises {error!r}") from error
