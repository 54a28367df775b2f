"""Find how often a stateful program must be called on the interpreter to fail."""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.verdict import Observation


def calls_needed(
    client: CheckClient,
    max_calls: int,
    shows: Callable[[Observation], bool],
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
) -> tuple[int, Observation] | None:
    """Find the fewest calls in one run whose last call fails.

    First it makes all calls, so a program that passes them needs one check only. After
    that it bisects, because the interpreter is deterministic.

    Returns:
        The number of calls and its observation; None if all calls pass.
    """
    if max_calls < 2:
        return None
    note(f"the program changes its buffers: calling it {max_calls} times in one run")
    often, _ = client.with_options(calls=max_calls).run_input_program()
    if not shows(often):
        return None
    passes, fails = 1, (max_calls, often)
    while fails[0] - passes > 1 and budget.has(often.seconds):
        calls = (passes + fails[0]) // 2
        seen, _ = client.with_options(calls=calls).run_input_program()
        if shows(seen):
            fails = calls, seen
        else:
            passes = calls
    note(f"the failure shows in call {fails[0]} of a run")
    return fails
