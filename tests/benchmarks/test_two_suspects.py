"""The programs of ``benchmarks/two_suspects`` export, and say why they fail."""

from __future__ import annotations

import functools
import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from support.causes import Cause
from two_suspects.programs import HERE, PROGRAMS, export
from two_suspects.run import HEAD, judged, said_of_innocent

from shrinkfx.failure.signature import UNTIL
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation

TABLES: dict[str, Any] = tomllib.loads((HERE / "causes.toml").read_text())


@functools.cache
def exported(name: str) -> torch.export.ExportedProgram:
    return export(name)


def operators(program: torch.export.ExportedProgram) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


def test_ten_programs_include_large_and_dynamic_programs() -> None:
    assert len(PROGRAMS) == 10
    assert list(TABLES) == list(PROGRAMS)
    assert {p.stem for p in (HERE / "plants").glob("*.py")} == set(PROGRAMS)
    made = {name: make() for name, make in PROGRAMS.items()}
    assert sum(m.dynamic_shapes is not None for m in made.values()) >= 2
    sizes = [len(operators(exported(name))) for name in PROGRAMS]
    assert sum(size >= 15 for size in sizes) >= 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_exports_and_eager_runs_it(name: str) -> None:
    program = exported(name)
    table = TABLES[name]
    cause = Cause.read(table["cause"])
    assert {*cause.operators, table["innocent"]} <= set(operators(program))
    assert table["innocent"] not in cause.operators
    if cause.chain and cause.chain.inputs:
        assert cause.chain.inputs[0] in program.graph_signature.user_inputs
    assert program.example_inputs is not None
    assert torch.isfinite(program.module()(*program.example_inputs[0])).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_has_a_table_with_its_cause(name: str) -> None:
    table = TABLES[name]
    cause = Cause.read(table["cause"])
    assert set(table) == {"until", "seen", "innocent", "cause"}
    assert table["until"] in UNTIL
    assert (cause.chain is not None) == (table["until"] == "assert")
    source = (HERE / "programs.py").read_text()
    assert [source.count(line) for line in cause.lines] == [1]


FLOOR = Operator("floor", "aten.floor.default", "programs.py:1")
LOOKUP = Operator("embedding", "aten.embedding.default")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Explanation(operators=(FLOOR, LOOKUP), culprits=(FLOOR,)), "not guilty"),
        (Explanation(operators=(FLOOR,), culprits=(FLOOR,)), "left out"),
        (Explanation(operators=(FLOOR, LOOKUP), culprits=(LOOKUP,)), "WRONG, guilty"),
        (
            Explanation(operators=(FLOOR, LOOKUP), culprits=(FLOOR, LOOKUP)),
            "WRONG, one of the guilty",
        ),
    ],
)
def test_wrongly_blamed_operator_is_detected(found: Explanation, said: str) -> None:
    assert said_of_innocent(found, LOOKUP.operator) == said


def test_row_has_the_operator_counts_the_culprit_and_the_cpu_time(
    tmp_path: Path,
) -> None:
    shows = Explanation(
        cause=(f"Index 6 of size 6 in {LOOKUP}.",),
        operators=(FLOOR, LOOKUP),
        culprits=(FLOOR,),
    )
    (tmp_path / "explain.json").write_text(json.dumps(asdict(shows)))
    ran = {"operators": {"before": 7, "after": 2}, "cpu_seconds": {"search": 40.4}}
    (tmp_path / "summary.json").write_text(json.dumps(ran))
    cells = dict(zip(HEAD[1:], judged("floor_too_high", tmp_path), strict=True))
    assert cells["operators"] == "7 to 2"
    assert cells["guilty"] == "aten.floor.default"
    assert cells["innocent"] == "named, not guilty"
    assert cells["operator"] == "right"
    assert cells["value"] == "-"
    assert cells["CPU-seconds"] == "40"
