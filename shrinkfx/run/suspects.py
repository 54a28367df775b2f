"""Reproduce the failure of a graph form, and rank the operators that may cause it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.baseline.whole_candidate import WholeCandidate
from shrinkfx.check.localise import collect_evidence
from shrinkfx.failure.blame import Evidence, Suspect, group_ties, rank_suspects
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.display_text import short_kernels
from shrinkfx.protocol.files import Traces
from shrinkfx.run.attempt import Attempt
from shrinkfx.run.build import choose_build
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described
from shrinkfx.run.subject import Subject

_SHOWN = 3
"""Number of suspects, or groups of equally likely ones, that are noted."""


def attempt(
    context: RunContext,
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None = None,
) -> Attempt:
    """Choose the build in which a graph form fails, and rank its suspects.

    Args:
        described: the description of this form.
        in_one: the known failure of the whole candidate in this form, or None.
    """
    checks = program.client.options
    known = in_one.verdict(program.target, checks) if in_one else None
    with scratch.make_scratch_folder("evidence") as folder:
        path = Path(folder) / "evidence.json"
        tried = choose_build(context, program, evidence=str(path), known=known)
        if tried.subject is None:
            return tried
        traces = Traces.from_line(path.read_text()) if path.exists() else Traces()
    if in_one and known:
        traces = in_one.traces
    evidence = Evidence.from_traces(traces)
    suspects = _suspects(context, tried.subject, described, evidence, tried.seen[-1])
    shown = (short_kernels(str(tie)) for tie in group_ties(suspects)[:_SHOWN])
    for line in dict.fromkeys(shown):  # calls in one line of the model read alike
        context.note(line)
    return replace(tried, subject=replace(tried.subject, suspects=suspects))


def _suspects(
    context: RunContext,
    program: Subject,
    described: Described,
    known: Evidence,
    seen: Verdict,
) -> tuple[Suspect, ...]:
    """Rank operators; run further checks if the evidence does not suffice.

    Args:
        known: the evidence that the failing run has left.
        seen: the verdict of that run.
    """
    input_program, target, failed = program.whole, program.target, seen.observation
    mismatches = described.description.mismatches
    known = replace(
        known,
        text=known.text or failed.log,
        mismatched=tuple(dict.fromkeys(mismatch.within for mismatch in mismatches)),
        stopped=described.description.stopped,
    )
    if program.command is None:
        seconds = failed.seconds / failed.runs
        arguments = program.client, input_program, target, known, context.note
        known = collect_evidence(*arguments, seconds, context.budget)
    return rank_suspects(known, input_program.skeleton, target)
