"""``summary.json``: what came of a run, for people and for other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shrinkfx.failure.blame import Suspect, ties
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.report.atomic_files import write_json
from shrinkfx.report.record import ByCatch, Sizes, Spent, Written


def gather(caught: Sequence[tuple[Candidate, Verdict]]) -> list[ByCatch]:
    """Put candidates that show the same failure together, the most frequent first."""
    groups: dict[Signature, list[tuple[Candidate, Signature]]] = {}
    for candidate, verdict in caught:
        seen = verdict.observation.signature
        if seen is not None:
            groups.setdefault(seen, []).append((candidate, seen))
    found = []
    for shown in groups.values():
        smallest, seen = min(shown, key=lambda pair: pair[0].cost)
        found.append(
            ByCatch(
                kind=seen.kind.value,
                stage=seen.stage.value,
                text=seen.text or seen.detail,
                checks=len(shown),
                operators=smallest.cost[0],
                candidate=smallest.digest[:DIGITS],
            )
        )
    return sorted(found, key=lambda caught: -caught.checks)


def ranked(suspects: Sequence[Suspect]) -> list[dict[str, Any]]:
    """List suspects with their ranks; those of one rank are a tie."""
    told = ties(suspects)
    return [{"rank": tie.rank, **asdict(s)} for tie in told for s in tie.members]


SUMMARY = "summary.json"
"""Lies beside what a run has written."""

DIGITS = 12
"""How much of a digest is shown; any unique beginning will do."""


def summarise(
    *,
    status: str,
    stopped: str,
    until: str,
    signature: Signature,
    seen: Signature,
    rates: tuple[float, float],
    sizes: tuple[Sizes, Sizes],
    spent: Spent,
    minimal: bool,
    rest: str,
    calls: int,
    builds: Mapping[str, Any],
    memory: Mapping[str, Any],
    warnings: Sequence[str],
    suspects: Sequence[Suspect],
    verified: tuple[int, int],
    written: Written,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Put the facts of a run in the order of the file."""
    before, after = (asdict(size) for size in sizes)
    return {
        "status": status,
        "stopped": stopped,
        "until": until,
        "kind": signature.kind.value,
        "signature": asdict(signature),
        "failure": str(seen),
        "rate": {"before": round(rates[0], 3), "after": round(rates[1], 3)},
        **{name: {"before": before[name], "after": after[name]} for name in before},
        "checks": {
            "total": len(spent.outcomes),
            "by_verdict": dict(Counter(spent.outcomes)),
            "cached": spent.cached,
        },
        "seconds": round(spent.seconds, 1),
        "cpu_seconds": {k: round(v, 1) for k, v in spent.cpu_seconds.items()},
        "by_catch": [asdict(caught) for caught in spent.by_catch],
        "minimal": minimal,
        "without_it": rest,
        "calls": calls,
        "builds": dict(builds),
        **memory,
        "warnings": list(warnings),
        "suspects": ranked(suspects),
        "verified": {"runs": verified[0], "failed": verified[1]},
        "repro": written.files[0].name if written.files else None,
        "repro_form": written.how,
        "files": [file.name for file in written.files],
        "preloads": dict(written.carried.kept),
        "modules": list(written.carried.modules),
        "environment": {
            "set": dict(written.environment),
            "not_needed": list(written.not_needed),
        },
        "versions": dict(versions),
    }


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    write_json(folder / SUMMARY, summary)
