"""What came of a run, and how it is told: in a line, at the end of a run, as a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrinkfx.failure.signature import (
    Kind,
    Signature,
    Stage,
    change_of_form,
    why_another_word,
)
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.claims import unasked
from shrinkfx.program.words import short_kernels

_IN_NOTEBOOK = 20_000
"""Characters of a repro that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Reduction:
    """What came of a run; as a text, what the command line says at its end.

    Attributes:
        status: ``reduced``, ``stopped`` (budget or Ctrl-C) or ``unverified``.
        candidate: the smallest program that failed as ``signature`` says.
        seen: that failure in the result's own words.
        minimal: no single operator of it can be dropped.
        operators: of the original, and of the result.
        verified: how often the repro was run, and how often it failed.
        repro: the script; its folder holds ``minimal.pt2`` and ``summary.json``.
        cause: what is known of the failure's cause, in sentences.
        told: these and what else is known of it, in lines as they are printed;
            ``explain.json`` has all.
        issue: ``ISSUE.md``, or None where a command of the user's judges.
        left_of_model: names and values of the user's model in the repro, in a line.
        shows_alone: the repro needs neither guard pages nor the interpreter to fail.
        summary: what ``summary.json`` holds.
        to_go_on: the command that goes on where the search was stopped, or ''.
        report: the page that shows all of it; None where it could not be written.
    """

    status: str
    candidate: Candidate
    signature: Signature
    seen: Signature
    minimal: bool
    operators: tuple[int, int]
    checks: int
    seconds: float
    verified: tuple[int, int]
    repro: Path
    summary: Mapping[str, Any]
    to_go_on: str = ""
    cause: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    report: Path | None = None
    issue: Path | None = None
    left_of_model: str = ""
    shows_alone: bool = True

    def __repr__(self) -> str:
        before, after = self.operators
        return (
            f"<Reduction: {self.status}, {before} -> {after} operators, "
            f"{self.seen.kind} in {self.seen.stage}, {self.repro}>"
        )

    def __str__(self) -> str:
        return "\n".join(lines(self, everything=False))

    def _repr_markdown_(self) -> str:
        """Show the repro in a notebook, as code."""
        runs, failed = self.verified
        before, after = self.operators
        script = self.repro.read_text(encoding="utf-8") if self.repro.is_file() else ""
        if len(script) > _IN_NOTEBOOK:
            script = f"{script[:_IN_NOTEBOOK]}\n# ... full script: {self.repro}\n"
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", script)), default=0))
        said = " ".join(str(self.seen).split()).replace("`", "'")
        return (
            f"**{self.status}**: {before} → {after} operators; {failed} of {runs} runs "
            f"of the repro fail with `{said}`\n\n"
            f"{fence}python\n{script}{fence}\n\n`{self.repro}`"
        )

    @property
    def exit_code(self) -> int:
        """What the command line leaves with."""
        return {"reduced": 0, "stopped": 4, "unverified": 5}[self.status]


_SHOWN = 3
"""By-catch that is printed where everything is; ``summary.json`` has all."""

_WIDTH = 80
"""Characters of its text."""

_ABOUT_OPERATORS = ("fake-kernel mismatch: ", "custom operator: ")
"""How warnings begin that the cause repeats."""

_STATUS = {
    "reduced": "reduced",
    "stopped": "stopped early, reduced",
    "unverified": "not verified, reduced",
}
"""The status as the first line states it."""

_IN_SHORT = ("cause:", "location:")
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
    minimal = "1-minimal" if reduction.minimal else "not shown to be 1-minimal"
    spent = f"{reduction.checks} checks, {reduction.seconds:.0f} s"
    came = f"{_STATUS[reduction.status]} from {before} to {after} {_noun(after)}"
    yield f"result:   {came}, {minimal}; {spent}"
    if reduction.minimal:
        for why, kinds in unasked(reduction.summary.get("minimal_by_kind", {})).items():
            yield f"skipped:  {', '.join(kinds)} ({_cut(why)})"
    yield f"failure:  {short_kernels(str(reduction.seen))}"
    asked = until or reduction.signature.kind
    if why := why_another_word(asked, reduction.seen.kind):
        yield f"note:     {why}"
    if change := change_of_form(reduction.signature, reduction.seen):
        yield f"changed:  {change}"
    for text in reduction.summary.get("warnings", []):
        if not text.startswith(_ABOUT_OPERATORS):
            yield f"warning:  {text}"
    rate = reduction.summary["rate"]
    if min(rate.values()) < 1.0:
        yield (
            f"flaky:    {rate['before']:.0%} of runs of the input program fail, "
            f"{rate['after']:.0%} of the reduced program"
        )
    yield from (s for s in reduction.told if everything or s.startswith(_IN_SHORT))
    folder = shlex.quote(str(reduction.repro.parent))
    caught = reduction.summary.get("other_failures", ())
    yield from _by_catch(caught, folder, _SHOWN if everything else 1)
    yield f"verified: {failed} of {runs} runs of the repro fail in the same way"
    yield f"repro:    {reduction.repro}"
    if beside := [p.name for p in (reduction.issue, reduction.report) if p]:
        yield f"see also: {', '.join(beside)}"
    if left := reduction.left_of_model:
        yield f"privacy:  the repro still contains from your model: {left}"
    yield _next(reduction)


def _by_catch(caught: Sequence[Any], folder: str, shown: int) -> Iterator[str]:
    for each in caught[:shown]:
        text = each["text"].partition("\n")[0]
        get = f"shrinkfx --candidate {each['candidate']} --out {folder}"
        yield (
            f"other failures: {each['kind']} {Stage(each['stage']).place}: "
            f"{_cut(text)} ({each['operators']} {_noun(each['operators'])}: {get})"
        )
    if len(caught) > shown:
        yield f"other failures: {len(caught) - shown} more in summary.json"


def _noun(operators: int) -> str:
    return "operator" if operators == 1 else "operators"


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
            return f"next:     python {repro} (writes repro.pt2 for your command)"
        return f"next:     your command, with {repro} in place of {{}}"
    if failed < runs or not reduction.shows_alone:
        return f"next:     shrinkfx --verify {repro}"
    if not reduction.cause:
        folder = shlex.quote(str(reduction.repro.parent))
        return f"next:     shrinkfx --explain {folder}"
    return f"next:     python {repro}"
