"""What is asked about next, after what was answered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shrinkfx.program.edits import Bypass, Drop, Edit
from shrinkfx.program.view import NO_SUSPECTS
from shrinkfx.search.bundles import EditProbabilities


def drops(names: str) -> list[Edit]:
    return [Drop(frozenset(name)) for name in names]


def begun(
    operators: int, suspects: Mapping[str, float] = NO_SUSPECTS
) -> EditProbabilities:
    return EditProbabilities(suspects, operators)


def names(edits: list[Edit]) -> str:
    return "".join(n for e in edits if isinstance(e, Drop) for n in sorted(e.nodes))


ALL = drops("abcdefghijklmnopqrstuvwx")


@pytest.mark.parametrize(
    ("operators", "bundle"), [(8, "abc"), (24, "abcde"), (40, "abcdefghi")]
)
def test_first_bundle_is_a_quarter_of_the_program_or_less(
    operators: int, bundle: str
) -> None:
    assert names(begun(operators).choose_bundle(ALL)) == bundle


def test_rejected_edits_come_last_in_smaller_bundles() -> None:
    odds, left = begun(24), drops("abcdefgh")
    sizes = []
    for _ in range(6):
        bundle = odds.choose_bundle(left)
        sizes.append(names(bundle))
        odds.record_rejected(bundle)
    assert sizes == ["abcde", "fgha", "bcd", "efg", "ha", "b"]


def test_remaining_edit_of_a_rejected_bundle_is_the_likely_culprit() -> None:
    odds = begun(24)
    odds.record_rejected(drops("abcde"))
    odds.record_rejected(drops("fghij"))
    assert names(odds.choose_bundle(drops("ef")))[0] == "e"
    odds.record_accepted(drops("abcd"))
    assert names(odds.choose_bundle(drops("ef")))[0] == "f"


def test_bundles_grow_while_edits_are_accepted() -> None:
    odds = begun(40)
    before = odds.choose_bundle(ALL)
    odds.record_accepted(drops("z"))
    assert len(odds.choose_bundle(ALL)) > len(before)
    odds.start_round(40)
    assert odds.choose_bundle(ALL) == before


def test_suspects_come_last_in_order_of_suspicion() -> None:
    odds = begun(8, {"a": 1.0, "b": 0.9})
    left, order = drops("abcd"), ""
    while left:
        bundle = odds.choose_bundle(left)
        order += names(bundle) + " "
        left = [edit for edit in left if edit not in bundle]
    assert order == "cdb a "


def test_probabilities_are_separate_for_each_kind_of_edit() -> None:
    odds = begun(8)
    odds.record_rejected(drops("a"))
    bypasses: list[Edit] = [Bypass("a", "x"), Bypass("b", "x")]
    assert odds.choose_bundle(bypasses)[0] == bypasses[0]
    assert names(odds.choose_bundle(drops("ab")))[0] == "b"
