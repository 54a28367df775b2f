"""Errors for a program whose failing run had state that no other process has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import Flag, MessageText, NotCuttable, NotReproducible


@contextmanager
def add_missing_state_advice(lacking: Sequence[str]) -> Iterator[None]:
    """Put the reason first in the advice of a ``NotReproducible`` error.

    Args:
        lacking: sentences on the missing state, and on what to do.
    """
    try:
        yield
    except NotCuttable:
        raise
    except NotReproducible as error:
        advice = MessageText.lines([*lacking, error.advice])
        so = error.wanted, error.runs, error.seen, advice, error.seconds
        raise NotReproducible(*so) from error


def require_failure(client: CheckClient, wanted: str) -> None:
    """Stop after one run if the program passes: more runs would not restore the state.

    Args:
        wanted: the kind of failure that the user asked for.

    Raises:
        NotReproducible: the program passes.
        BudgetExhausted: the run did not end in time.
    """
    seen, _ = client.run_input_program()
    if seen.passed:
        raise NotReproducible(wanted, seen.runs, [seen.in_words], _MORE_RUNS)


_MORE_RUNS = MessageText(
    "to run the program more often anyway: ", Flag("--baseline-runs", 100)
)
"""This flag skips ``require_failure``."""
