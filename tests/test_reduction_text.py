"""The text that the command line prints at the end of a run."""

from __future__ import annotations

from pathlib import Path

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.run.folder import Reduction
from shrinkfx.testing import chain, whole

GOLDEN = Path(__file__).parent / "golden" / "result.txt"
SEEN = Signature(Kind.ASSERT, Stage.RUN, text="index out of bounds: 0 <= tmp4 < 6")
CAUGHT = {
    "kind": "nan",
    "stage": "compare",
    "text": "output 0: 3 of 8 elements are not finite",
    "operators": 12,
    "candidate": "1a2b3c4d5e6f",
}
REDUCTION = Reduction(
    "reduced",
    whole(chain("x", "relu")),
    SEEN,
    SEEN,
    minimal=True,
    operators=(54, 1),
    checks=14,
    seconds=62.0,
    verified=(3, 3),
    repro=Path("report/repro.py"),
    summary={
        "rate": {"before": 0.5, "after": 1.0},
        "minimal_by_kind": {"sizes": "not tested: kept"},
        "other_failures": [CAUGHT],
        "warnings": ["eager also fails on the input program: index 6 is out of range"],
    },
    cause_lines=("cause:    The index of kernel cpp_fused_roll_0 is out of bounds.",),
    issue=Path("report/ISSUE.md"),
    report=Path("report/report.html"),
    left_of_model="comments that name model.py",
)


def test_printed_result_matches_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    assert f"{REDUCTION}\n" == GOLDEN.read_text()
