"""A program whose failing run had something that no other process has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import NotCuttable, NotReproducible
from shrinkfx.wording import Flag, Words


@contextmanager
def telling(lacking: Sequence[str]) -> Iterator[None]:
    """Have an error that the program does not fail begin its advice with the reason.

    Args:
        lacking: sentences on what the failing run had, and what to do.
    """
    try:
        yield
    except NotCuttable:
        raise
    except NotReproducible as error:
        advice = Words.lines([*lacking, error.advice])
        so = error.wanted, error.runs, error.seen, advice, error.seconds
        raise NotReproducible(*so) from error


def require_failure(client: CheckClient, wanted: str) -> None:
    """End after one run if the program passes: runs of no kind bring back what it had.

    Args:
        wanted: the kind of failure that was asked for.

    Raises:
        NotReproducible: it passes.
        BudgetExhausted: the run has not come to its end.
    """
    seen, _ = client.original()
    if seen.passed:
        raise NotReproducible(wanted, seen.runs, [seen.in_words], _ALL_THE_SAME)


_ALL_THE_SAME = Words(
    "to run the program more often anyway: ", Flag("--baseline-runs", 100)
)
"""Which is had without that look."""
