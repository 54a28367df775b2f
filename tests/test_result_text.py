"""The text that the command line prints at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.api import Reduction
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.testing import PLANTED, chain, whole

GOLDEN = Path(__file__).parent / "golden" / "result.txt"
SEEN = Signature(Kind.ASSERT, Stage.RUN, text="index out of bounds: 0 <= tmp4 < 6")
CAUGHT = {
    "kind": "nan",
    "stage": "compare",
    "text": "output 0: 3 of 8 elements are not finite",
    "operators": 12,
    "candidate": "1a2b3c4d5e6f",
}
SUMMARY: dict[str, Any] = {"rate": {"before": 1.0, "after": 1.0}, "other_failures": []}
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
    summary=SUMMARY,
    cause=("It overflows.",),
    cause_lines=(
        "cause:    It overflows.",
        "code:     line 3: x",
        "location: aten.exp",
    ),
)
CRASH = Signature(Kind.CRASH, Stage.RUN, "memory fault", "SIGSEGV")
SHAPE = Signature(Kind.MISMATCH, Stage.COMPARE, text="2 of 2", differs="shape")
CHECKED = replace(PLANTED, kind=Kind.CHECK)
REFUSES = "with AOTI_RUNTIME_CHECK_INPUTS=1 the program refuses its inputs"
KINDS = {"operators": "1-minimal", "sizes": "not tested: why", "dtypes": "kept"}


def cases() -> Iterator[tuple[str, str]]:
    """Yield the text of a result by what shapes it."""

    def short(reduction: Reduction, **options: Any) -> str:
        return "\n".join(reduction.render_lines(**{"everything": False, **options}))

    def with_summary(**changes: Any) -> Reduction:
        return replace(REDUCTION, summary=SUMMARY | changes)

    everything = with_summary(
        rate={"before": 0.5, "after": 1.0},
        minimal_by_kind=KINDS,
        other_failures=[CAUGHT],
        warnings=["eager also fails on the input program: index 6 is out of range"],
    )
    files: dict[str, Any] = {
        "issue": Path("report/ISSUE.md"),
        "report": Path("report/report.html"),
    }
    everything = replace(everything, left_of_model="comments", **files)
    yield "all lines", str(everything)
    yield "all lines, verbose", short(everything, everything=True)
    yield "a cause", short(REDUCTION)
    yield "skipped kinds", short(with_summary(minimal_by_kind=KINDS))
    skipped = replace(with_summary(minimal_by_kind=KINDS), minimal=False)
    yield "skipped kinds, not minimal", short(skipped)
    died = replace(REDUCTION, signature=CRASH, seen=CRASH)
    yield "a crash", short(died)
    yield "a crash for an illegal access", short(died, until="ima")
    yield "another kind", short(replace(died, seen=replace(CRASH, kind=Kind.IMA)))
    changed = replace(REDUCTION, signature=SHAPE, seen=SHAPE)
    yield "a wrong shape", short(changed)
    values = replace(SHAPE, differs="values")
    yield "a shape that became values", short(replace(changed, seen=values))
    yield (
        "one warning of two",
        short(with_summary(warnings=["fake-kernel mismatch: my.op", REFUSES])),
    )
    caught = with_summary(other_failures=[CAUGHT] * 5)
    yield "other failures", short(caught)
    yield "other failures, verbose", short(caught, everything=True)
    yield "flaky", short(with_summary(rate={"before": 0.25, "after": 0.5}))
    to_go_on = "shrinkfx --resume report"
    nexts: dict[str, dict[str, Any]] = {
        "a folder with a space": {"repro": Path("my report/repro.py")},
        "stopped early": {"to_go_on": to_go_on},
        "not verified": {"verified": (3, 1)},
        "not shown by the script alone": {"shows_alone": False},
        "no cause": {"cause": ()},
        "a command": {"signature": CHECKED},
        "a command without a script": {
            "signature": CHECKED,
            "repro": Path("report/minimal.pt2"),
        },
    }
    for name, changes in nexts.items():
        yield f"next: {name}", short(replace(REDUCTION, **changes)).split("\n")[-1]


def test_results_match_the_golden_file(tmp_path: Path) -> None:
    """To record the texts again, copy the file that a failure names."""
    new = tmp_path / "result.txt"
    new.write_text("\n".join(f"=== {name}\n{text}\n" for name, text in cases()))
    assert new.read_text() == GOLDEN.read_text(), new
