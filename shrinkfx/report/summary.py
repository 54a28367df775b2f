"""``summary.json``: the result of a run, for people and for other tools."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shrinkfx.failure.blame import Suspect, group_ties
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.report.record import (
    Failure,
    OtherFailure,
    Programs,
    RunRecord,
    Spent,
    VerifiedRepro,
)
from shrinkfx.system.folders import SUMMARY, write_json
from shrinkfx.versions import __version__, why_untested


def group_other_failures(
    caught: Sequence[tuple[Candidate, Verdict]],
) -> list[OtherFailure]:
    """Group candidates that show the same other failure, the most frequent first."""
    groups: dict[Signature, list[tuple[Candidate, Signature]]] = {}
    for candidate, verdict in caught:
        seen = verdict.observation.signature
        if seen is not None:
            groups.setdefault(seen, []).append((candidate, seen))
    found = []
    for shown in groups.values():
        smallest, seen = min(shown, key=lambda pair: pair[0].cost)
        found.append(
            OtherFailure(
                kind=seen.kind.value,
                stage=seen.stage.value,
                text=seen.text or seen.detail,
                checks=len(shown),
                operators=smallest.cost[0],
                candidate=smallest.digest[:DIGITS],
            )
        )
    return sorted(found, key=lambda caught: -caught.checks)


def rank_suspects(suspects: Sequence[Suspect]) -> list[dict[str, Any]]:
    """List suspects with their ranks; suspects of one rank are tied."""
    ties = group_ties(suspects)
    return [{"rank": tie.rank, **asdict(s)} for tie in ties for s in tie.members]


DIGITS = 12
"""Digits of a digest that are shown; any unique prefix selects a candidate."""


SCHEMA = 1
"""Version of ``summary.json``: it increases when a key is removed or changes its
meaning, not when a key is added."""


def summarise(record: RunRecord) -> dict[str, Any]:
    """Return the facts of a run in the order of the file."""
    search = record.search
    return {
        "schema": SCHEMA,
        "status": record.status,
        "stopped": search.stopped,
        **_of_failure(record.failure),
        **_of_programs(record.programs),
        **_of_spent(record.spent),
        "known_bugs": [*record.known],
        "other_failures": [asdict(caught) for caught in search.by_catch],
        "by_catch": [asdict(caught) for caught in search.by_catch],  # until 0.2
        "minimal": search.minimal,
        "minimal_by_kind": dict(search.kinds),
        "without_it": search.without_it,
        **_of_memory(record),
        "interpreted_for": record.conditions.interpreted_for,
        "warnings": [*record.other_causes.all(), *warn_of_versions(record.versions)],
        "suspects": rank_suspects(record.suspects),
        "cause": list(record.cause),
        "left_of_model": asdict(record.remains),
        **_of_repro(record.verified),
        "versions": {"shrinkfx": __version__, **record.versions},
        "missing_features": dict(record.missing_features),
    }


def warn_of_versions(versions: Mapping[str, str]) -> list[str]:
    """Return the warning about an untested PyTorch, if there is one."""
    return [*filter(None, [why_untested(versions.get("torch", ""))])]


def _of_failure(failure: Failure) -> dict[str, Any]:
    before, after = round(failure.rate_before, 3), round(failure.rate_after, 3)
    return {
        "until": failure.until,
        "kind": failure.target.kind.value,
        "signature": asdict(failure.target),
        "failure": str(failure.seen),
        "rate": {"before": before, "after": after},
        "calls": failure.calls,
    }


def _of_programs(programs: Programs) -> dict[str, Any]:
    before, after = asdict(programs.before), asdict(programs.after)
    sizes = {name: {"before": before[name], "after": after[name]} for name in before}
    pattern = asdict(programs.pattern) if programs.pattern else None
    return {**sizes, "operators_cut": programs.cut, "pattern": pattern}


def _of_spent(spent: Spent) -> dict[str, Any]:
    return {
        "checks": {
            "total": len(spent.outcomes),
            "by_verdict": dict(Counter(spent.outcomes)),
            "cached": spent.cached,
        },
        "seconds": round(spent.seconds, 1),
        "cpu_seconds": {k: round(v, 1) for k, v in spent.cpu_seconds.items()},
        "builds": asdict(spent.builds),
        "jobs": spent.jobs,
    }


def _of_memory(record: RunRecord) -> dict[str, Any]:
    """Return the results with guard pages and with a sanitizer."""
    pages, memory = record.guard_pages, record.memory
    report = asdict(memory.report) if memory.report else memory.no_report
    if not pages.are:
        return {"guard_pages": None, "memory_report": report or None}
    return {
        "guard_pages": {
            **asdict(pages),
            "result_without_them": memory.without_guards,
            "repro_needs_them": record.guarded,
        },
        "memory_report": report,
    }


def _of_repro(verified: VerifiedRepro) -> dict[str, Any]:
    written = verified.written
    return {
        "verified": {"runs": verified.runs, "failed": verified.failed},
        "repro": written.files[0].name if written.files else None,
        "repro_form": written.how,
        "files": [file.name for file in written.files],
        "preloads": dict(written.carried.kept),
        "modules": list(written.carried.modules),
        "in_compiler": {
            **asdict(written.carried.in_compiler),
            "fails_without": written.fails_without_own,
        },
        "environment": {
            "set": dict(written.environment),
            "not_needed": list(written.not_needed),
        },
    }


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    write_json(folder / SUMMARY, summary)


def write_cause(folder: Path, cause: Sequence[str]) -> None:
    """Write the cause into the summary of a folder, if there is one."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        summary = json.loads((folder / SUMMARY).read_text())
        write_summary(folder, {**summary, "cause": list(cause)})
