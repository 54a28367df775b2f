"""``shrinkfx doctor`` with a working PyTorch: each part is tested for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.broken_environments import ROOT, shrinkfx

from shrinkfx.cli.doctor.parts import INSPECTED

WORK = (
    "PyTorch",
    "C++ compiler",
    "worker",
    "AOTInductor",
    "verification",
    "report.html",
)


@pytest.mark.aoti
@pytest.mark.every_run
def test_environment_of_the_test_suite_works(tmp_path: Path) -> None:
    ran = shrinkfx(tmp_path, {"PYTHONPATH": str(ROOT)}, "doctor", "--json")
    rows = {row["part"]: row for row in json.loads(ran.stdout)["rows"]}
    broken = {part: rows[part] for part in WORK if rows[part]["status"] != "works"}
    assert broken == {}
    assert ran.returncode == 0
    assert rows["fast build"]["status"] == "works", rows["fast build"]["detail"]
    assert rows["guard pages"]["status"] == "works", rows["guard pages"]["detail"]
    untried = [each.name for each in INSPECTED if not rows[each.name]["detail"]]
    untried += [part for part, row in rows.items() if row["status"] == "not tried"]
    assert {*untried} <= {"ptxas", "CUDA without a GPU", "CUDA on a GPU"}
    for row in rows.values():
        lacks_remedy = row["status"] in ("missing", "broken") and not row["remedy"]
        assert not lacks_remedy, row
