"""The result of a reduction, and its text for the terminal and for notebooks."""

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
    describe_changed_difference,
    explain_other_kind,
)
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import short_kernels
from shrinkfx.program.listing.claims import group_untested_kinds

_MAX_NOTEBOOK_CHARACTERS = 20_000
"""Maximum number of characters of a repro that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Reduction:
    """The result of a run. ``str()`` gives the text that the command line prints.

    Attributes:
        status: ``reduced``, ``stopped`` (by the budget or Ctrl-C) or ``unverified``.
        candidate: the reduced program, which fails with ``signature``.
        signature: the failure of the input program: kind, stage, normalized message.
        seen: the failure of the reduced program, with its own message.
        minimal: whether no single operator of the reduced program can be removed.
        operators: number of operators of the input program and of the reduced program.
        checks: number of checks of the run.
        seconds: duration of the run.
        verified: number of runs of the repro, and how many of them failed.
        repro: path of the repro; its folder contains ``minimal.pt2`` and
            ``summary.json``.
        cause: sentences about the cause of the failure.
        cause_lines: the printed lines about the cause; all is in ``explain.json``.
        issue: path of ``ISSUE.md``; None if a command of the user tests the candidates.
        left_of_model: names and values of the user's model that the repro still
            contains, as one line of text.
        shows_alone: whether the repro fails without guard pages and without the
            interpreter.
        summary: the contents of ``summary.json``.
        to_go_on: the command that resumes a stopped search, or ''.
        report: path of ``report.html``; None if it could not be written.
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
    cause_lines: tuple[str, ...] = ()
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
        return "\n".join(render_result_lines(self, everything=False))

    def _repr_markdown_(self) -> str:
        """Return the status and the repro as Markdown, for a notebook."""
        runs, failed = self.verified
        before, after = self.operators
        script = self.repro.read_text(encoding="utf-8") if self.repro.is_file() else ""
        if len(script) > _MAX_NOTEBOOK_CHARACTERS:
            script = script[:_MAX_NOTEBOOK_CHARACTERS]
            script = f"{script}\n# ... full script: {self.repro}\n"
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", script)), default=0))
        failure = " ".join(str(self.seen).split()).replace("`", "'")
        return (
            f"**{self.status}**: {before} → {after} operators; {failed} of {runs} runs "
            f"of the repro fail with `{failure}`\n\n"
            f"{fence}python\n{script}{fence}\n\n`{self.repro}`"
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command line for this result."""
        return {"reduced": 0, "stopped": 4, "unverified": 5}[self.status]


_MAX_OTHER_FAILURES = 3
"""Maximum number of other failures to print; ``summary.json`` lists all of them."""

_MAX_TEXT_CHARACTERS = 80
"""Maximum number of characters of a message in a line."""

_REPEATED_WARNINGS = ("fake-kernel mismatch: ", "custom operator: ")
"""Prefixes of warnings that the cause states as well, so that they are not printed."""

_STATUS_TEXTS = {
    "reduced": "reduced",
    "stopped": "stopped early, reduced",
    "unverified": "not verified, reduced",
}
"""Texts of the status in the first line."""

_ALWAYS_PRINTED = ("cause:", "location:")
"""Prefixes of the lines of the cause that are always printed."""


def render_result_lines(
    reduction: Reduction, *, everything: bool, until: str | None = None
) -> Iterator[str]:
    """Yield the lines that describe a result.

    There are five lines for every result, and more for warnings, a flaky failure, other
    failures and the like.

    Args:
        everything: yield all lines about the cause, and up to three other failures.
        until: the kind of failure that the user asked for; None means the kind of the
            reduced failure.
    """
    runs, failed = reduction.verified
    before, after = reduction.operators
    minimal = "1-minimal" if reduction.minimal else "not shown to be 1-minimal"
    spent = f"{reduction.checks} checks, {reduction.seconds:.0f} s"
    sizes = f"{_STATUS_TEXTS[reduction.status]} from {before} to {after} {_noun(after)}"
    yield f"result:   {sizes}, {minimal}; {spent}"
    if reduction.minimal:
        untested = reduction.summary.get("minimal_by_kind", {})
        for why, kinds in group_untested_kinds(untested).items():
            yield f"skipped:  {', '.join(kinds)} ({shorten_text(why)})"
    yield f"failure:  {short_kernels(str(reduction.seen))}"
    wanted = until or reduction.signature.kind
    if why := explain_other_kind(wanted, reduction.seen.kind):
        yield f"note:     {why}"
    if change := describe_changed_difference(reduction.signature, reduction.seen):
        yield f"changed:  {change}"
    for text in reduction.summary.get("warnings", []):
        if not text.startswith(_REPEATED_WARNINGS):
            yield f"warning:  {text}"
    rate = reduction.summary["rate"]
    if min(rate.values()) < 1.0:
        yield (
            f"flaky:    {rate['before']:.0%} of runs of the input program fail, "
            f"{rate['after']:.0%} of the reduced program"
        )
    yield from (
        s for s in reduction.cause_lines if everything or s.startswith(_ALWAYS_PRINTED)
    )
    folder = shlex.quote(str(reduction.repro.parent))
    caught = reduction.summary.get("other_failures", ())
    yield from _render_other_failures(
        caught, folder, _MAX_OTHER_FAILURES if everything else 1
    )
    yield f"verified: {failed} of {runs} runs of the repro fail in the same way"
    yield f"repro:    {reduction.repro}"
    if reports := [p.name for p in (reduction.issue, reduction.report) if p]:
        yield f"see also: {', '.join(reports)}"
    if parts := reduction.left_of_model:
        yield f"privacy:  parts of your model in the repro: {parts}"
    yield _render_next_command(reduction)


def _render_other_failures(
    caught: Sequence[Any], folder: str, shown: int
) -> Iterator[str]:
    for each in caught[:shown]:
        text = each["text"].partition("\n")[0]
        get = f"shrinkfx --candidate {each['candidate']} --out {folder}"
        yield (
            f"other failures: {each['kind']} {Stage(each['stage']).place}: "
            f"{shorten_text(text)} ({each['operators']} {_noun(each['operators'])}; "
            f"to write this program: {get})"
        )
    if len(caught) > shown:
        yield f"other failures: {len(caught) - shown} more in summary.json"


def _noun(operators: int) -> str:
    return "operator" if operators == 1 else "operators"


def shorten_text(text: str, most: int = _MAX_TEXT_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _render_next_command(reduction: Reduction) -> str:
    """Return the line with the command that the user would run next."""
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
