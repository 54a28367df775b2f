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

_NOT_ASKED = "not asked: "


def claim_not_tested(why: str) -> str:
    """Return the claim for a kind that was not tested."""
    return f"{_NOT_ASKED}{why}"


def group_untested_kinds(claims: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the kinds that were not tested by the reason."""
    found: dict[str, list[str]] = {}
    for kind, said in claims.items():
        if said.startswith(_NOT_ASKED):
            found.setdefault(said.removeprefix(_NOT_ASKED), []).append(str(kind))
    return found


def group_kinds_by_claim(claims: Mapping[str, str]) -> list[tuple[str, str]]:
    """Group kinds by their claims."""
    kinds: dict[str, list[str]] = {}
    for kind, said in claims.items():
        kinds.setdefault(said, []).append(str(kind))
    return [(", ".join(some), said) for said, some in kinds.items()]


def describe_minimality(claims: Mapping[str, str]) -> str:
    """State in a sentence what was tested without success, and what was not tested."""
    holds = [str(kind) for kind, said in claims.items() if said in (MINIMAL, PLAINEST)]
    unknown = [
        kind for kinds in group_untested_kinds(claims).values() for kind in kinds
    ]
    if not holds:
        return "It is not known whether a smaller program fails."
    of = f" Not tested: {join_words(unknown)}." if unknown else ""
    return (
        f"1-minimal: the failure disappears {', or '.join(_tried(holds, unknown))}.{of}"
    )


def _tried(holds: Sequence[str], unknown: Sequence[str]) -> Iterator[str]:
    if OPERATORS in holds:
        yield "without any one operator"
    if Kind.SIZES in holds:
        yield "with a size at its minimum or smaller by one"
    if plainer := [kind for kind in holds if kind not in (OPERATORS, Kind.SIZES)]:
        is_all = {*unknown} <= {OPERATORS, str(Kind.SIZES)}
        forms = "forms" if is_all else f"{join_words(plainer)}"
        yield f"with any of the simpler {forms} that were tried"


def join_words(words: Sequence[str]) -> str:
    """Join words as in a sentence: ``sizes, values and dtypes``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
