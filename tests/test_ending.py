"""The last lines of a reduction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.api import Reduction
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.testing import PLANTED, chain, whole

SEEN = Signature(Kind.NAN, Stage.COMPARE, text="output 0: 2 of 4 elements differ")
TOLD = ("cause:    It overflows.", "code:     line 3: x", "location: aten.exp.default")
CAUGHT = {"kind": "nan", "stage": "run", "text": "x", "operators": 2, "candidate": "1a"}
DONE = Reduction(
    "reduced",
    whole(chain("x", "relu")),
    SEEN,
    SEEN,
    minimal=True,
    operators=(87, 2),
    checks=21,
    seconds=90.4,
    verified=(3, 3),
    repro=Path("report/repro.py"),
    summary={"rate": {"before": 1.0, "after": 1.0}, "other_failures": []},
    cause=("It overflows.",),
    cause_lines=TOLD,
)


def result_lines(reduction: Reduction, *, everything: bool = False) -> list[str]:
    return [*reduction.render_lines(everything=everything)]


def test_result_lines_have_the_cause_between_failure_and_verification() -> None:
    assert result_lines(DONE) == [
        "result:   reduced from 87 to 2 operators, 1-minimal; 21 checks, 90 s",
        "failure:  nan in compare: output 0: 2 of 4 elements differ",
        TOLD[0],
        TOLD[2],
        "verified: 3 of 3 runs of the repro fail in the same way",
        "repro:    report/repro.py",
        "next:     python report/repro.py",
    ]
    assert set(TOLD) < set(result_lines(DONE, everything=True))


def test_skipped_kinds_of_a_minimal_result_are_listed_with_the_reason() -> None:
    """Beside "1-minimal", which is of its operators, that would read as if all was."""
    why = "not tested: InvalidEdit: not so much is saved"
    claims = {"operators": "1-minimal", "sizes": why, "values": "kept", "dtypes": why}
    known = replace(DONE, summary={**DONE.summary, "minimal_by_kind": claims})
    assert result_lines(known)[:3] == [
        "result:   reduced from 87 to 2 operators, 1-minimal; 21 checks, 90 s",
        "skipped:  sizes, dtypes (InvalidEdit: not so much is saved)",
        "failure:  nan in compare: output 0: 2 of 4 elements differ",
    ]
    assert not [
        s for s in result_lines(replace(known, minimal=False)) if "skipped" in s
    ]


def test_differing_failure_kind_is_explained_in_a_note() -> None:
    crash = Signature(Kind.CRASH, Stage.RUN, "memory fault", "SIGSEGV")
    died = replace(DONE, signature=crash, seen=crash)
    assert "note:" not in "".join(result_lines(died))
    told = [*died.render_lines(everything=False, until="ima")]
    assert told[1] == "failure:  crash in run: SIGSEGV"
    note = "note:     on a CPU, an illegal memory access shows as a segmentation fault "
    assert told[2].startswith(note)
    became = replace(died, seen=replace(crash, kind=Kind.IMA))
    assert any(line.startswith("note:     ") for line in result_lines(became))


def test_changed_kind_of_mismatch_is_reported() -> None:
    shape = Signature(Kind.MISMATCH, Stage.COMPARE, differs="shape")
    values = replace(shape, differs="values")
    changed = replace(DONE, signature=shape, seen=values)
    told = "wrong shape in the input program, but wrong values in the reduced program"
    assert f"changed:  {told}" in result_lines(changed)
    assert not [
        row for row in result_lines(replace(changed, seen=shape)) if "changed" in row
    ]


def test_warning_about_refused_inputs_is_in_the_result_lines() -> None:
    inputs = "with AOTI_RUNTIME_CHECK_INPUTS=1 the program refuses its inputs"
    warnings = {"warnings": ["fake-kernel mismatch: my.op", inputs]}
    told = result_lines(replace(DONE, summary={**DONE.summary, **warnings}))
    assert [row for row in told if row.startswith("warning:")] == [
        f"warning:  {inputs}"
    ]


def test_other_failures_are_listed_in_full_only_in_verbose_output() -> None:
    caught = replace(DONE, summary={**DONE.summary, "other_failures": [CAUGHT] * 5})
    short, full = result_lines(caught), result_lines(caught, everything=True)
    assert [s for s in short if "other failures" in s] == [
        (
            "other failures: nan in run: x (2 operators; to get its repro: "
            "shrinkfx --candidate "
            "1a --out report)"
        ),
        "other failures: 4 more in summary.json",
    ]
    assert sum("other failures" in s for s in full) == 4
    assert full[-4] == "other failures: 2 more in summary.json"


def test_flaky_failure_is_reported_with_its_rates() -> None:
    rates = {"rate": {"before": 0.25, "after": 0.5}}
    flaky = replace(DONE, summary={**DONE.summary, **rates})
    assert (
        "flaky:    25% of runs of the input program fail, 50% of the reduced program"
    ) in result_lines(flaky)


CHECKED = replace(PLANTED, kind=Kind.CHECK)


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "python report/repro.py"),
        ({"repro": Path("my report/repro.py")}, "python 'my report/repro.py'"),
        ({"to_go_on": "shrinkfx --resume report"}, "shrinkfx --resume report"),
        ({"verified": (3, 1)}, "shrinkfx verify report/repro.py"),
        ({"shows_alone": False}, "shrinkfx verify report/repro.py"),
        ({"cause": ()}, "shrinkfx --explain report"),
        (
            {"signature": CHECKED},
            "python report/repro.py (writes repro.pt2 for your command)",
        ),
        (
            {"signature": CHECKED, "repro": Path("report/minimal.pt2")},
            "your command, with report/minimal.pt2 in place of {}",
        ),
    ],
)
def test_next_command_fits_the_result(changes: dict[str, Any], command: str) -> None:
    assert result_lines(replace(DONE, **changes))[-1] == f"next:     {command}"
