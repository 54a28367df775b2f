"""Claims about a result: the kinds that are minimal, and the kinds not tested.

Each kind has a text: ``1-minimal``, ``kept``, or ``not asked: minutes are short``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrinkfx.program.listing.types import Kind

OPERATORS = "operators"
"""The kind that is tested before all kinds of printed programs."""

MINIMAL = "1-minimal"

PLAINEST = "no simpler values fail"
"""The claim for numbers, because not all of them can be tested."""

KEPT = "kept"
"""The claim for a kind that is unchanged because the user asked for that."""

_NOT_TESTED = "not asked: "


def claim_not_tested(why: str) -> str:
    """Return the claim for a kind that was not tested."""
    return f"{_NOT_TESTED}{why}"


def group_untested_kinds(claims: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the kinds that were not tested by the reason."""
    groups: dict[str, list[str]] = {}
    for kind, claim in claims.items():
        if claim.startswith(_NOT_TESTED):
            groups.setdefault(claim.removeprefix(_NOT_TESTED), []).append(str(kind))
    return groups


def group_kinds_by_claim(claims: Mapping[str, str]) -> list[tuple[str, str]]:
    """Group kinds by their claims."""
    kinds: dict[str, list[str]] = {}
    for kind, claim in claims.items():
        kinds.setdefault(claim, []).append(str(kind))
    return [(", ".join(some), claim) for claim, some in kinds.items()]


def describe_minimality(claims: Mapping[str, str]) -> str:
    """State in a sentence what was tested without success, and what was not tested."""
    minimal = [
        str(kind) for kind, claim in claims.items() if claim in (MINIMAL, PLAINEST)
    ]
    untested = [
        kind for kinds in group_untested_kinds(claims).values() for kind in kinds
    ]
    if not minimal:
        return "It is not known whether a smaller program fails."
    suffix = f" Not tested: {join_words(untested)}." if untested else ""
    return (
        "1-minimal: the failure disappears "
        f"{', or '.join(_tried(minimal, untested))}.{suffix}"
    )


def _tried(minimal: Sequence[str], untested: Sequence[str]) -> Iterator[str]:
    if OPERATORS in minimal:
        yield "without any one operator"
    if Kind.SIZES in minimal:
        yield "with a size at its minimum or smaller by one"
    if simpler := [kind for kind in minimal if kind not in (OPERATORS, Kind.SIZES)]:
        is_all = {*untested} <= {OPERATORS, str(Kind.SIZES)}
        forms = "forms" if is_all else f"{join_words(simpler)}"
        yield f"with any of the simpler {forms} that were tried"


def join_words(words: Sequence[str]) -> str:
    """Join words as in a sentence: ``sizes, values and dtypes``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
