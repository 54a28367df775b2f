"""See a whole program fail, and say which of its operators may be why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.localise import interrogate
from shrinkfx.failure.blame import Evidence, suspects, ties
from shrinkfx.failure.verdict import Verdict
from shrinkfx.protocol.files import Traces
from shrinkfx.run.build import choose_build
from shrinkfx.run.context import Job
from shrinkfx.run.describing import Described
from shrinkfx.run.subject import Subject

_SHOWN = 3
"""Suspects, or ties of them, that are worth a line to whoever waits."""


def with_suspects(
    job: Job, subject: Subject, described: Described, seen: list[Verdict]
) -> Subject | None:
    """Choose the build that fails; None if none does.

    Args:
        seen: gets what is answered.
    """
    whole, target = subject.whole, subject.target
    with scratch.folder("evidence") as folder:
        left = Path(folder) / "evidence.json"
        found = choose_build(job, subject, seen, evidence=str(left))
        if found is None:
            return None
        told = Traces.from_line(left.read_text()) if left.exists() else Traces()
        known = Evidence.of(told)
    failed = next(v.observation for v in reversed(seen) if v.reproduced)
    known = replace(
        known,
        text=known.text or failed.log,
        liars=described.said.liars,
        stopped=described.said.stopped,
    )
    if subject.command is None:
        seconds = failed.seconds / failed.runs
        asked = found.compiler, whole, target, known, job.note
        known = interrogate(*asked, seconds, job.budget)
    blamed = suspects(known, whole.skeleton, target)
    for tie in ties(blamed)[:_SHOWN]:
        job.note(str(tie))
    return replace(found, suspects=blamed)
