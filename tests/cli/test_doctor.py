"""The output of ``shrinkfx doctor``, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from shrinkfx.cli.doctor import command as doctor
from shrinkfx.cli.doctor import parts
from shrinkfx.cli.main import main
from shrinkfx.cli.parser import EXIT_CODES
from shrinkfx.errors import StorageError
from shrinkfx.protocol.answers import Row

WORKING = [
    parts.TORCH.works("2.15.0"),
    parts.COMPILER.works(""),
    parts.WORKER.works(""),
    parts.AOTI.works(""),
    parts.VERIFICATION.works(""),
]
BROKEN = [parts.TORCH.works("2.15.0"), parts.AOTI.broken("cannot\ncompile")]


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
    assert cost.strip() == parts.AOTI.cost
    assert remedy.strip() == parts.AOTI.remedy
    assert row.index("cannot") == cost.index(parts.AOTI.cost[0])
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
    python = f"{Path.home()}/env/bin/python"
    _, said = run_doctor(monkeypatch, capsys, [parts.TORCH.works(python)])
    assert str(Path.home()) not in said
    assert "~/env/bin/python" in said


def test_interrupt_keeps_the_rows_so_far(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[Row]:
        yield WORKING[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "examine", rows)
    assert main(["doctor"]) == 4
    said = capsys.readouterr()
    assert "PyTorch" in said.out
    assert said.err == "shrinkfx doctor: interrupted\n"


def test_subcommand_parses_its_own_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["doctor", "model.pt2"])
    assert left.value.code == 2
    assert "usage: shrinkfx doctor" in capsys.readouterr().err


def test_error_without_a_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[Row]:
        raise StorageError("$TMPDIR", "no usable folder", "set TMPDIR")
        yield

    monkeypatch.setattr(doctor, "examine", rows)
    assert main(["doctor"]) == 2
    said = "shrinkfx doctor: $TMPDIR: no usable folder\nset TMPDIR\n"
    assert capsys.readouterr().err == said
