"""What is claimed of a result is what was asked, kind by kind."""

from __future__ import annotations

import pytest

from shrinkfx.program.listing.claims import (
    KEPT,
    MINIMAL,
    OPERATORS,
    PLAINEST,
    by_claim,
    in_a_sentence,
    not_asked,
    unasked,
)
from shrinkfx.program.listing.types import Kind

NO = not_asked("minutes are short")
ALL = {OPERATORS: MINIMAL} | dict.fromkeys(Kind, MINIMAL)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (
            ALL | {Kind.VALUES: PLAINEST, Kind.WEIGHTS: KEPT},
            "1-minimal: without any one operator it does not fail so; nor with a size "
            "at its least or one less, or with any one of the plainer forms that were "
            "tried.",
        ),
        (
            ALL | dict.fromkeys(Kind, NO) | {Kind.WEIGHTS: KEPT},
            "1-minimal: without any one operator it does not fail so. Of sizes, "
            "values, dtypes, layouts, arguments, operands and insides this is not "
            "known.",
        ),
        (
            ALL | dict.fromkeys([*Kind][2:], NO) | {Kind.VALUES: PLAINEST},
            "1-minimal: without any one operator it does not fail so; nor with a size "
            "at its least or one less, or with any one of the plainer values that were "
            "tried. Of weights, dtypes, layouts, arguments, operands and insides this "
            "is not known.",
        ),
        (
            dict.fromkeys(ALL, NO) | {Kind.SIZES: MINIMAL},
            "1-minimal: with a size at its least or one less it does not fail so. Of "
            "operators, values, weights, dtypes, layouts, arguments, operands and "
            "insides this is not known.",
        ),
        (dict.fromkeys(ALL, NO), "Whether less would do is not known."),
        (dict.fromkeys(ALL, KEPT), "Whether less would do is not known."),
        (
            {OPERATORS: MINIMAL},
            "1-minimal: without any one operator it does not fail so.",
        ),
    ],
)
def test_sentence_claims_the_kinds_that_were_asked_about(
    claims: dict[str, str], said: str
) -> None:
    assert in_a_sentence(claims) == said


def test_kinds_are_put_together_by_what_is_claimed_of_them() -> None:
    claims = {
        **ALL,
        Kind.SIZES: NO,
        Kind.OPERANDS: NO,
        Kind.VALUES: not_asked("kept so"),
    }
    assert unasked(claims) == {
        "minutes are short": ["sizes", "operands"],
        "kept so": ["values"],
    }
    assert by_claim(claims) == [
        ("operators, weights, dtypes, layouts, arguments, insides", MINIMAL),
        ("sizes, operands", "not asked: minutes are short"),
        ("values", "not asked: kept so"),
    ]
