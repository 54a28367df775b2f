"""The last lines of a reduction: what came of it, and the next command to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from shrinkfx.api import Reduction
from shrinkfx.failure.signature import Kind, why_another_word

_SHOWN = 3
"""By-catch that is printed where everything is; ``summary.json`` has all."""

_WIDTH = 80
"""Characters of its text."""

_IN_SHORT = ("cause:", "where:")
"""Lines of the cause that are always printed."""


def lines(
    reduction: Reduction, *, everything: bool, until: str | None = None
) -> Iterator[str]:
    """Say what came of a reduction in five lines, and those that it must have besides.

    Args:
        everything: what else is known of the cause, and several of the by-catch.
        until: the kind of failure that was asked for.
    """
    runs, failed = reduction.verified
    before, after = reduction.operators
    minimal = "1-minimal" if reduction.minimal else "not shown to be minimal"
    spent = f"{reduction.checks} checks, {reduction.seconds:.0f} s"
    yield f"{reduction.status}: {before} -> {after} operators, {minimal}; {spent}"
    yield f"failure:  {reduction.seen}"
    asked = until or reduction.signature.kind
    if why := why_another_word(asked, reduction.seen.kind):
        yield f"kind:     {why}"
    rate = reduction.summary["rate"]
    if min(rate.values()) < 1.0:
        yield f"flaky:    {rate['before']:.0%} of runs fail, {rate['after']:.0%} now"
    yield from (s for s in reduction.cause if everything or s.startswith(_IN_SHORT))
    folder = shlex.quote(str(reduction.repro.parent))
    caught = reduction.summary["by_catch"]
    yield from _by_catch(caught, folder, _SHOWN if everything else 1)
    yield f"verified: {failed} of {runs} runs of the repro fail in the same way"
    yield f"repro:    {reduction.repro}"
    if beside := [p.name for p in (reduction.issue, reduction.report) if p]:
        yield f"beside:   {', '.join(beside)}"
    if left := reduction.left_of_model:
        yield f"careful:  these are of your model: {left}"
    yield _next(reduction)


def _by_catch(caught: Sequence[Any], folder: str, shown: int) -> Iterator[str]:
    for each in caught[:shown]:
        text = each["text"].partition("\n")[0]
        get = f"shrinkfx --candidate {each['candidate']} --out {folder}"
        yield (
            f"by-catch: {each['kind']} in {each['stage']}: {_cut(text)} "
            f"({each['operators']} operators: {get})"
        )
    if len(caught) > shown:
        yield f"by-catch: {len(caught) - shown} more: summary.json"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _next(reduction: Reduction) -> str:
    """Name the command that leads on from here."""
    runs, failed = reduction.verified
    repro = shlex.quote(str(reduction.repro))
    if reduction.to_go_on:
        return f"next:     {reduction.to_go_on}"
    if reduction.signature.kind is Kind.CHECK:
        if reduction.repro.suffix == ".py":
            return f"next:     python {repro} (makes repro.pt2, for your command)"
        return f"next:     your command, with {repro} in the place of {{}}"
    if failed < runs or not reduction.shows_alone:
        return f"next:     shrinkfx --verify {repro}"
    if not any(line.startswith("cause:") for line in reduction.cause):
        folder = shlex.quote(str(reduction.repro.parent))
        return f"next:     shrinkfx --explain {folder}"
    return f"next:     python {repro}"
