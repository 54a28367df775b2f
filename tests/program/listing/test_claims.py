"""What is claimed of a result is what was asked, kind by kind."""

from __future__ import annotations

import pytest

from shrinkfx.program.listing.printed_program import (
    KEPT,
    MINIMAL,
    OPERATORS,
    PLAINEST,
    Kind,
    claim_not_tested,
    describe_minimality,
    group_kinds_by_claim,
    group_untested_kinds,
)

NO = claim_not_tested("not enough time left")
ALL = {OPERATORS: MINIMAL} | dict.fromkeys(Kind, MINIMAL)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (
            ALL | {Kind.VALUES: PLAINEST, Kind.WEIGHTS: KEPT},
            "The failure disappears without any one operator, or with a "
            "size at its minimum or smaller by one, or with any of the simpler forms "
            "that were tried.",
        ),
        (
            ALL | dict.fromkeys(Kind, NO) | {Kind.WEIGHTS: KEPT},
            "The failure disappears without any one operator. Not tested: "
            "sizes, values, dtypes, layouts, arguments, operands and branches.",
        ),
        (
            ALL | dict.fromkeys([*Kind][2:], NO) | {Kind.VALUES: PLAINEST},
            "The failure disappears without any one operator, or with a "
            "size at its minimum or smaller by one, or with any of the simpler values "
            "that were tried. Not tested: weights, dtypes, layouts, arguments, "
            "operands and branches.",
        ),
        (
            dict.fromkeys(ALL, NO) | {Kind.SIZES: MINIMAL},
            "The failure disappears with a size at its minimum or smaller "
            "by one. Not tested: operators, values, weights, dtypes, layouts, "
            "arguments, operands and branches.",
        ),
        (dict.fromkeys(ALL, NO), "It is not known whether a smaller program fails."),
        (dict.fromkeys(ALL, KEPT), "It is not known whether a smaller program fails."),
        (
            {OPERATORS: MINIMAL},
            "The failure disappears without any one operator.",
        ),
    ],
)
def test_minimality_sentence_names_tested_and_untested_kinds(
    claims: dict[str, str], said: str
) -> None:
    assert describe_minimality(claims) == said


def test_kinds_are_grouped_by_claim() -> None:
    claims = {
        **ALL,
        Kind.SIZES: NO,
        Kind.OPERANDS: NO,
        Kind.VALUES: claim_not_tested("kept so"),
    }
    assert group_untested_kinds(claims) == {
        "not enough time left": ["sizes", "operands"],
        "kept so": ["values"],
    }
    assert group_kinds_by_claim(claims) == [
        ("operators, weights, dtypes, layouts, arguments, branches", MINIMAL),
        ("sizes, operands", "not tested: not enough time left"),
        ("values", "not tested: kept so"),
    ]
