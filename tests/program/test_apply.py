"""What is left of an edit once others have been applied."""

from __future__ import annotations

import pytest

from shrinkfx.program.apply import apply, remaining_edit
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.testing import skeleton, whole

PROGRAM = skeleton({"x": "", "y": "", "z": "", "a": "x y z", "b": "a", "c": "b"})


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (Drop(frozenset({"a", "b"})), Drop(frozenset({"a"}))),
        (Drop(frozenset({"b"})), None),
        (Bypass("a", "x"), Bypass("a", "x")),
        (Bypass("b", "a"), None),
        (Replace("a", "x"), Replace("a", "x")),
        (Replace("b", "a"), None),
        (Replace("c", "b"), None),
        (Merge(frozenset({"x", "y", "z"})), Merge(frozenset({"x", "y"}))),
        (Merge(frozenset({"y", "z"})), None),
    ],
)
def test_remaining_edit_excludes_parts_already_applied(
    edit: Edit, left: Edit | None
) -> None:
    candidate = apply(
        whole(PROGRAM),
        [Bypass("b", "a"), Replace("c", "c"), Merge(frozenset({"y", "z"}))],
    )
    assert remaining_edit(edit, candidate) == left
