"""What is claimed of a result: of which kinds it is minimal, and which were not asked.

By kind there is a text: ``1-minimal``, ``kept``, or ``not asked: minutes are short``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrinkfx.program.listing.types import Kind

OPERATORS = "operators"
"""What is asked about before all kinds of listings."""

MINIMAL = "1-minimal"

PLAINEST = "no simpler values fail"
"""Of numbers, of which nobody can ask about all."""

KEPT = "kept"
"""As it was, since that was asked for."""

_NOT_ASKED = "not asked: "


def not_asked(why: str) -> str:
    """Say of a kind that nobody has asked."""
    return f"{_NOT_ASKED}{why}"


def unasked(claims: Mapping[str, str]) -> dict[str, list[str]]:
    """List the kinds that were not asked about, by the reason for that."""
    found: dict[str, list[str]] = {}
    for kind, said in claims.items():
        if said.startswith(_NOT_ASKED):
            found.setdefault(said.removeprefix(_NOT_ASKED), []).append(str(kind))
    return found


def by_claim(claims: Mapping[str, str]) -> list[tuple[str, str]]:
    """Put kinds together of which the same is claimed."""
    kinds: dict[str, list[str]] = {}
    for kind, said in claims.items():
        kinds.setdefault(said, []).append(str(kind))
    return [(", ".join(some), said) for said, some in kinds.items()]


def in_a_sentence(claims: Mapping[str, str]) -> str:
    """Say what was asked of a result in vain, and of what that is not known."""
    holds = [str(kind) for kind, said in claims.items() if said in (MINIMAL, PLAINEST)]
    unknown = [kind for kinds in unasked(claims).values() for kind in kinds]
    if not holds:
        return "It is not known whether a smaller program fails."
    of = f" Not tested: {listed(unknown)}." if unknown else ""
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
        forms = "forms" if is_all else f"{listed(plainer)}"
        yield f"with any of the simpler {forms} that were tried"


def listed(words: Sequence[str]) -> str:
    """Write them as a sentence has them: ``sizes, values and dtypes``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
