"""Folders with the results of runs, as far as known bugs need them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.pattern import Pattern

WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "", "3 of 4 elements differ")
COS = Pattern(("aten.cos.default",), ())
SIN = Pattern(("aten.sin.default",), ())


def write_run(
    folder: Path,
    pattern: Pattern = COS,
    signature: Signature = WRONG,
    verified: tuple[int, int] = (3, 3),
    without_it: str = "passed",
) -> Path:
    """Write what a run with a verified repro leaves."""
    folder.mkdir(parents=True)
    summary = {
        "failure": str(signature),
        "signature": asdict(signature),
        "verified": {"runs": verified[0], "failed": verified[1]},
        "pattern": asdict(pattern),
        "without_it": without_it,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder
