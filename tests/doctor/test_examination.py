"""The order in which parts are tested, and the rows of parts that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shrinkfx.cli.doctor import parts, probes
from shrinkfx.cli.doctor.examination import ESSENTIAL, Trial, can_reduce
from shrinkfx.cli.doctor.parts import Part
from shrinkfx.errors import SEE_DOCTOR, LoadError, UsageError, WorkerError
from shrinkfx.protocol.answers import Row, Status

PART = Part("engine", "It does not move.", "Buy one.")
WHEELS = Part("wheels", "It does not roll.", "Buy four.")


def raising(error: Exception) -> Callable[[], list[Row]]:
    def probe() -> list[Row]:
        raise error

    return probe


@pytest.mark.parametrize(
    ("error", "detail", "remedy"),
    [
        (probes.ProbeFailed("it smokes"), "it smokes", "Buy one."),
        (ZeroDivisionError("by 0"), "ZeroDivisionError: by 0", "Buy one."),
        (UsageError("$TMPDIR is noexec"), "$TMPDIR is noexec", "Buy one."),
        (
            LoadError("engine", "is cold", f"warm it\n{SEE_DOCTOR}"),
            "is cold",
            "warm it",
        ),
        (LoadError("oil", "is cold", SEE_DOCTOR), "oil: is cold", "Buy one."),
        (
            WorkerError("the worker died", "one\nterminate called\n"),
            "the worker died; its last line: terminate called",
            "Buy one.",
        ),
    ],
)
def test_exception_of_a_probe_makes_a_row(
    error: Exception, detail: str, remedy: str
) -> None:
    (row,) = Trial(PART, raising(error)).rows(())
    assert row == Row("engine", Status.BROKEN, detail, "It does not move.", remedy)


def test_part_is_not_tested_if_a_needed_part_fails() -> None:
    trial = Trial(PART, raising(AssertionError("tried")), ["fuel", "oil"], [WHEELS])
    engine, wheels = trial.rows({"fuel"})
    assert engine == Row("engine", Status.NOT_TRIED, "needs oil: see that row")
    assert wheels == Row("wheels", Status.NOT_TRIED, "needs oil: see that row")
    (broken, untested) = trial.rows({"fuel", "oil"})
    assert broken.status is Status.BROKEN
    assert untested == Row("wheels", Status.NOT_TRIED, "needs engine: see that row")


def test_rows_of_other_parts_from_a_probe_are_kept() -> None:
    rows = [PART.works("a V8"), WHEELS.broken("one is flat")]
    assert Trial(PART, lambda: rows, others=[WHEELS]).rows(()) == rows


def test_essential_parts_decide_the_verdict() -> None:
    rows = [Row(name, Status.WORKS) for name in ESSENTIAL]
    assert can_reduce([*rows, parts.INTERPRETER.broken("no Triton")])
    assert not can_reduce([*rows[1:], parts.AOTI.broken("no")])
    assert not can_reduce(rows[1:])


def test_torch_and_the_modules_of_a_report_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "find_spec", lambda _: None)
    (torch,) = probes.probe_torch()
    (page,) = probes.probe_report_page()
    assert torch.status is page.status is Status.MISSING
    assert page.detail == "not installed: jinja2"


@pytest.mark.processes
def test_tool_that_does_not_end_is_killed_with_its_descendants(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    marked: Callable[[], list[int]],
    survivors: Callable[[], list[str]],
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nsleep 600 &\nsleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setattr(probes, "TOOL_S", 0.5)

    def probe() -> list[Row]:
        return [parts.COMPILER.works(probes._output_of([str(tool)]))]

    (row,) = Trial(parts.COMPILER, probe).rows(())
    assert row.status is Status.BROKEN
    assert row.detail == "it did not end within 0.5 s"
    assert survivors() == []
