"""``shrinkfx doctor``: the rows of parts that fail, its output and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from support.broken_environments import ROOT, shrinkfx

from shrinkfx.cli import doctor
from shrinkfx.cli.doctor import ESSENTIAL, INSPECTED, PARTS, Part, ProbeFailed
from shrinkfx.cli.main import main
from shrinkfx.cli.parser import EXIT_CODES
from shrinkfx.errors import (
    SEE_DOCTOR,
    LoadError,
    StorageError,
    UsageError,
    WorkerError,
)
from shrinkfx.protocol.answers import Row, Status

PROGRAM = Path("program.pt2")
WORKING = [Row(name, Status.WORKS, "2.15.0") for name in ESSENTIAL]
BROKEN = [
    Row("PyTorch", Status.WORKS, "2.15.0"),
    Row("AOTInductor", Status.BROKEN, "cannot\ncompile", "No program.", "Buy one."),
]


def engine(error: Exception) -> Part:
    def probe(_: Path) -> str:
        raise error

    return Part("engine", "It does not move.", "Buy one.", probe, ["fuel", "oil"])


@pytest.mark.parametrize(
    ("error", "detail", "remedy"),
    [
        (ProbeFailed("it smokes"), "it smokes", "Buy one."),
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
    row = engine(error).test(PROGRAM, ["fuel", "oil"])
    assert row == Row("engine", Status.BROKEN, detail, "It does not move.", remedy)


def test_part_is_not_tested_if_a_needed_part_fails() -> None:
    row = engine(AssertionError("tried")).test(PROGRAM, ["fuel"])
    assert row == Row("engine", Status.NOT_TRIED, "needs oil: see that row")


def test_each_part_comes_after_the_parts_that_it_needs() -> None:
    names = [part.name for part in PARTS]
    for part in PARTS:
        assert {*part.needs} <= {*names[: names.index(part.name)]}
    assert {*ESSENTIAL} < {*names}


def test_torch_and_the_modules_of_a_report_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    parts = [part for part in PARTS if part.name in ("PyTorch", "report.html")]
    *_, torch, page = doctor.examine(parts)
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
    monkeypatch.setattr(doctor, "TOOL_S", 0.5)
    part = Part("tool", "", "", lambda _: doctor.run_tool([str(tool)]))
    row = part.test(PROGRAM, ())
    assert row.status is Status.BROKEN
    assert row.detail == "it did not end within 0.5 s"
    assert survivors() == []


def run_doctor(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: list[Row],
    *words: str,
) -> tuple[int, str]:
    """Run the subcommand with these rows; return its exit code and output."""
    monkeypatch.setattr(doctor, "examine", lambda: iter(rows))
    code = main(["doctor", *words])
    assert code in EXIT_CODES
    return code, capsys.readouterr().out


def test_working_environment_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run_doctor(monkeypatch, capsys, WORKING)
    head, torch, *_, last = said.splitlines()
    assert code == 0
    assert head.split() == ["part", "status", "detail"]
    assert torch.split() == ["PyTorch", "works", "2.15.0"]
    assert last == "CPU programs can be reduced and verified here."


def test_part_that_does_not_work_has_its_cost_and_remedy_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run_doctor(monkeypatch, capsys, BROKEN)
    _, _, row, cost, remedy, last = said.splitlines()
    assert code == 2
    assert row.split(maxsplit=2) == ["AOTInductor", "broken", "cannot compile"]
    assert (cost.strip(), remedy.strip()) == ("No program.", "Buy one.")
    assert row.index("cannot") == cost.index("No")
    assert last == "No program can be reduced here: see AOTInductor."


@pytest.mark.parametrize("rows", [WORKING, BROKEN])
def test_json_output_has_the_same_rows(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rows: list[Row],
) -> None:
    code, said = run_doctor(monkeypatch, capsys, rows, "--json")
    table = json.loads(said)
    assert table["works"] is (code == 0)
    assert [row["part"] for row in table["rows"]] == [row.part for row in rows]
    assert table["rows"][0] == asdict(rows[0])


def test_home_folder_is_abbreviated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Row("PyTorch", Status.WORKS, f"{Path.home()}/env/bin/python")
    _, said = run_doctor(monkeypatch, capsys, [row])
    assert str(Path.home()) not in said
    assert "~/env/bin/python" in said


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 4, "shrinkfx doctor: interrupted\n"),
        (
            StorageError("$TMPDIR", "no usable folder", "set TMPDIR"),
            2,
            "shrinkfx doctor: $TMPDIR: no usable folder\nset TMPDIR\n",
        ),
    ],
)
def test_error_between_two_parts_ends_the_table(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def rows() -> Iterator[Row]:
        yield WORKING[0]
        raise error

    monkeypatch.setattr(doctor, "examine", rows)
    assert main(["doctor"]) == code
    printed = capsys.readouterr()
    assert "PyTorch" in printed.out
    assert printed.err == said


def test_subcommand_parses_its_own_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "model.pt2"])
    assert left.value.code == 2
    assert "usage: shrinkfx doctor" in capsys.readouterr().err


@pytest.mark.aoti
def test_environment_of_the_test_suite_works(tmp_path: Path) -> None:
    ran = shrinkfx(tmp_path, {"PYTHONPATH": str(ROOT)}, "doctor", "--json")
    rows = {row["part"]: row for row in json.loads(ran.stdout)["rows"]}
    work = (*ESSENTIAL, "report.html", "fast build", "guard pages")
    broken = {part: rows[part] for part in work if rows[part]["status"] != "works"}
    assert broken == {}
    assert ran.returncode == 0
    untried = [name for name in INSPECTED if not rows[name]["detail"]]
    untried += [part for part, row in rows.items() if row["status"] == "not tried"]
    assert {*untried} <= {"ptxas", "CUDA without a GPU", "CUDA on a GPU"}
    for row in rows.values():
        lacks_remedy = row["status"] in ("missing", "broken") and not row["remedy"]
        assert not lacks_remedy, row
