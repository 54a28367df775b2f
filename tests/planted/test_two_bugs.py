"""Programs with two bugs: no reduction slips from the one to the other.

The other bug is hidden in the original. It shows once the search has dropped an
operator or cut a value, and then it comes first and hides the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from support.planting import Field, Plant, kept

from shrinkfx.failure.verdict import Outcome

pytestmark = pytest.mark.torch

ASSERTION = "Expected planted_size to be True"
HEAP = "double free or corruption (out)"
THROWN = "terminate called\n  what():  "


@dataclass(frozen=True)
class TwoBugs:
    """The bug to reduce, a louder one, and what must be left.

    Attributes:
        shows: what the by-catch says of the other.
    """

    target: Plant
    other: Plant
    shows: str
    minimum: frozenset[str]


def two_bugs(target: Plant, other: Plant, shows: str, *more: str) -> TwoBugs:
    """Keep what the target needs, and ``more`` that keeps the other from showing."""
    return TwoBugs(target, other, shows, frozenset({target.at, *target.needs, *more}))


CASES = {
    # What does not compile, against what only runs without it.
    "refused, dies": two_bugs(
        Plant("cosh", "refuse", "no such layout"),
        Plant("atan", "die", unless=("cosh",)),
        "SIGSEGV",
    ),
    "refused, corrupts": two_bugs(
        Plant("cosh", "refuse", "no such layout"),
        Plant("softmax.int", "abort", HEAP, unless=("cosh",)),
        HEAP,
    ),
    "refused for two, dies for one": two_bugs(
        Plant("softmax.int", "refuse", "no such fusion", needs=("erf",)),
        Plant("erf", "die", unless=("softmax.int",)),
        "SIGSEGV",
    ),
    "refused, asserts": two_bugs(
        Plant("tanh", "refuse", "no such layout"),
        Plant("softmax.int", "raise", ASSERTION, unless=("tanh",)),
        ASSERTION,
    ),
    "refused, gives wrong values": two_bugs(
        Plant("matmul", "refuse", "no such layout"),
        Plant("sigmoid", "add one", unless=("matmul",)),
        "elements differ",
    ),
    "refused, refused for another reason": two_bugs(
        Plant("cosh", "refuse", "no such layout"),
        Plant("atan", "refuse", "cannot fuse", unless=("asinh",)),
        "cannot fuse",
    ),
    # What fails at run time, against what comes before it once a value is cut.
    "asserts, dies": two_bugs(
        Plant("cosh", "raise", ASSERTION),
        Plant("atan", "die", unless=("asinh",)),
        "SIGSEGV",
    ),
    "asserts with what dies": two_bugs(
        Plant("cosh", "raise", ASSERTION, needs=("atan",)),
        Plant("atan", "die", cut=True),
        "SIGSEGV",
        "abs",
    ),
    "asserts, refused": two_bugs(
        Plant("cosh", "raise", ASSERTION),
        Plant("erf", "refuse", "cannot fuse", unless=("asinh",)),
        "cannot fuse",
    ),
    "asserts with what is refused": two_bugs(
        Plant("cosh", "raise", ASSERTION, needs=("erf",)),
        Plant("erf", "refuse", "cannot fuse", cut=True),
        "cannot fuse",
        "mul.Tensor",
    ),
    "raises, corrupts": two_bugs(
        Plant("atan", "raise", "stride of 3 expected"),
        Plant("softmax.int", "abort", HEAP, unless=("asinh",)),
        HEAP,
    ),
    "raises, raises something else": two_bugs(
        Plant("tanh", "raise", "stride of 3 expected"),
        Plant("split.Tensor", "raise", "no kernel found", unless=("asinh",)),
        "no kernel found",
    ),
    "raises with what raises something else": two_bugs(
        Plant("asinh", "raise", "stride of 3 expected", needs=("cumsum",)),
        Plant("cumsum", "raise", "no kernel found", cut=True),
        "no kernel found",
        "abs",
    ),
    "gives wrong values, dies": two_bugs(
        Plant("cosh", "add one"), Plant("atan", "die", unless=("asinh",)), "SIGSEGV"
    ),
    "gives wrong values with what is refused": two_bugs(
        Plant("atan", "add one", needs=("erf",)),
        Plant("erf", "refuse", "cannot fuse", cut=True),
        "cannot fuse",
        "mul.Tensor",
    ),
    "gives a wrong dtype, raises": two_bugs(
        Plant("asinh", "widen"),
        Plant("cumsum", "raise", "stride of 3 expected", unless=("cosh",)),
        "stride of 3 expected",
    ),
    "gives nan, gives wrong values": two_bugs(
        Plant("asinh", "divide by zero"),
        Plant("cumsum", "add one", unless=("asinh",)),
        "elements differ",
    ),
    "dies, raises": two_bugs(
        Plant("cosh", "die"),
        Plant("atan", "raise", "no kernel found", unless=("asinh",)),
        "no kernel found",
    ),
    "dies with what is refused": two_bugs(
        Plant("cosh", "die", needs=("atan",)),
        Plant("atan", "refuse", "cannot fuse", cut=True),
        "cannot fuse",
        "abs",
    ),
    "aborts, aborts with other words": two_bugs(
        Plant("tanh", "abort", f"{THROWN}stride of 3 expected"),
        Plant("split.Tensor", "abort", f"{THROWN}no kernel found", unless=("asinh",)),
        "no kernel found",
    ),
    "corrupts, asserts": two_bugs(
        Plant("cosh", "abort", HEAP),
        Plant("atan", "raise", ASSERTION, unless=("cosh",)),
        ASSERTION,
    ),
}


FAST = {
    "refused, dies",
    "asserts with what dies",
    "gives wrong values with what is refused",
}
"""One for each way in which the other comes to show; the rest takes a minute."""


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_reduction_does_not_slip_to_another_bug(field: Field, name: str) -> None:
    case = CASES[name]
    reduced = field.reduce(case.target, case.other)
    assert reduced.operators == case.minimum
    assert reduced.minimal
    culprits = {case.target.at, *case.target.needs}
    assert all(step >= culprits for step in reduced.accepted)
    assert any(case.shows in text for text in reduced.by_catch), reduced.by_catch


WORDLESS = {
    "both die": (
        Plant("cosh", "die"),
        Plant("atan", "die", unless=("asinh",)),
    ),
    "both give wrong values, one after the other": (
        Plant("cosh", "add one"),
        Plant("atan", "add one", unless=("asinh",)),
    ),
    "both give wrong values, in different outputs": (
        Plant("square", "add one"),
        Plant("asinh", "add one", unless=("cosh",)),
    ),
    "wrong values, nan": (
        Plant("cosh", "add one"),
        Plant("exp", "divide by zero", unless=("asinh",)),
    ),
}
"""Two bugs that nothing in their signatures tells apart."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORDLESS)
def test_slip_between_failures_without_messages_is_reported(
    field: Field, name: str
) -> None:
    target, other = WORDLESS[name]
    reduced = field.reduce(target, other)
    assert len(reduced.operators) == 1
    is_told = reduced.found.rest == Outcome.REPRODUCED
    assert reduced.operators == {other.at if is_told else target.at}
    assert bool(reduced.found.second) == is_told
    if is_told:
        first = reduced.found.collect_other_failures(reduced.subject.target)[0]
        assert first.kind == reduced.subject.target.kind
        assert target.at in kept(reduced.found.second[0][0])


@pytest.mark.slow
def test_crash_without_a_message_is_confirmed_by_removing_the_culprit(
    field: Field,
) -> None:
    reduced = field.reduce(Plant("cosh", "die"))
    assert reduced.operators == {"cosh"}
    assert reduced.found.rest == Outcome.PASSED
