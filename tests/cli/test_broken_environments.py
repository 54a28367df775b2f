"""Broken PyTorch or compiler: the output of ``shrinkfx doctor`` and of a run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.broken_environments import (
    BARE,
    DIES,
    HANGS,
    OLD,
    RAISES,
    ROOT,
    command,
    shrinkfx,
    with_torch,
)

from shrinkfx.cli.doctor import INSPECTED
from shrinkfx.versions import RANGE

pytestmark = pytest.mark.processes

Rows = Mapping[str, Mapping[str, str]]

CASES = {
    "raises": (RAISES, "cannot be imported: OSError: libtorch_cpu.so", "import torch"),
    "old": (OLD, "torch 2.5.0 is older than 2.11", f"install torch {RANGE}"),
    "dies": (DIES, "the worker died with SIGSEGV while loading", ""),
}


def examine(folder: Path, variables: dict[str, str]) -> tuple[int, Rows]:
    """Run ``shrinkfx doctor``; return its exit code and its rows by part."""
    ran = shrinkfx(folder, variables, "doctor", "--json")
    table = json.loads(ran.stdout)
    assert table["works"] is (ran.returncode == 0)
    assert ran.stderr == ""
    return ran.returncode, {row["part"]: row for row in table["rows"]}


@pytest.mark.parametrize("case", CASES)
def test_broken_torch_makes_a_row(tmp_path: Path, case: str) -> None:
    text, said, remedy = CASES[case]
    code, rows = examine(tmp_path, with_torch(tmp_path, text))
    assert code == 2
    row = rows["PyTorch"]
    assert row["status"] == "broken"
    assert said in row["detail"]
    assert row["cost"] == "Nothing works without it."
    assert remedy in row["remedy"]
    assert rows["worker"]["detail"] == "needs PyTorch: see that row"
    for part in ("worker", "AOTInductor", "fast build", "verification", "guard pages"):
        assert rows[part]["status"] == "not tried"
    assert rows["report.html"]["status"] == "works"  # it needs no torch


def test_worker_is_broken_if_torch_lacks_a_name(tmp_path: Path) -> None:
    code, rows = examine(tmp_path, with_torch(tmp_path, BARE))
    assert code == 2
    assert rows["PyTorch"]["status"] == "works"
    assert rows["PyTorch"]["detail"] == f"2.99.0.dev1, not tested; tested: {RANGE}"
    assert rows["worker"]["status"] == "broken"
    assert "cannot be imported with torch 2.99.0.dev1" in rows["worker"]["detail"]
    assert f"is tested: torch {RANGE}" in rows["worker"]["remedy"]
    assert rows["guard pages"]["status"] == "not tried"
    assert rows["AOTInductor"]["detail"] == "needs worker: see that row"


def test_absent_compiler_is_missing(tmp_path: Path) -> None:
    variables = {**with_torch(tmp_path, BARE), "CXX": "no-such-compiler"}
    code, rows = examine(tmp_path, variables)
    assert code == 2
    row = rows["C++ compiler"]
    assert (row["status"], row["detail"]) == (
        "missing",
        "no-such-compiler is not on the PATH, as set in the variable CXX",
    )
    needing = {"worker", "AOTInductor", "verification", "Triton", "GPU", "ptxas"}
    assert {rows[part]["detail"] for part in needing} == {
        "needs C++ compiler: see that row"
    }
    assert {*INSPECTED} < rows.keys()


def test_failing_compiler_is_broken(tmp_path: Path) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\necho cannot find cc1plus\nexit 3\n")
    compiler.chmod(0o755)
    variables = {**with_torch(tmp_path, BARE), "CXX": str(compiler)}
    row = examine(tmp_path, variables)[1]["C++ compiler"]
    assert row["status"] == "broken"
    assert row["detail"] == "it ended with exit status 3: cannot find cc1plus"


def test_interrupt_leaves_no_process(
    tmp_path: Path,
    marked: Callable[[], list[int]],
    survivors: Callable[[], list[str]],
    wait_for: Callable[[Callable[[], object]], None],
) -> None:
    variables = {**os.environ, **with_torch(tmp_path, HANGS)}
    words = command("doctor")
    with subprocess.Popen(
        words, cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True
    ) as ran:
        wait_for((tmp_path / "hangs").exists)
        ran.send_signal(signal.SIGINT)
        _, said = ran.communicate(timeout=60)
    assert ran.returncode == 4
    assert said == "shrinkfx doctor: interrupted\n"
    assert survivors() == []


# --- an ordinary run


def model(folder: Path) -> str:
    """Write a file that passes for an exported program until its content is read."""
    with zipfile.ZipFile(folder / "model.pt2", "w") as archive:
        archive.writestr("model/models/model.json", "{}")
    return "model.pt2"


@pytest.mark.parametrize("case", CASES)
def test_run_with_broken_torch_gives_advice(tmp_path: Path, case: str) -> None:
    text, said, remedy = CASES[case]
    ran = shrinkfx(tmp_path, with_torch(tmp_path, text), model(tmp_path))
    assert ran.returncode == 2
    assert said in ran.stderr
    assert remedy in ran.stderr
    assert ran.stderr.count("shrinkfx doctor") == 1
    assert "torch.export.load" not in ran.stderr


def test_run_with_torch_that_lacks_a_name_lists_tested_versions(
    tmp_path: Path,
) -> None:
    ran = shrinkfx(tmp_path, with_torch(tmp_path, BARE), model(tmp_path))
    assert ran.returncode == 2
    assert "the worker: cannot be imported with torch 2.99.0.dev1" in ran.stderr
    assert f"with which shrinkfx is tested: torch {RANGE}" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_run_without_a_compiler_refers_to_shrinkfx_doctor(tmp_path: Path) -> None:
    variables = {"CXX": "no-such-compiler", "PYTHONPATH": str(ROOT)}
    ran = shrinkfx(tmp_path, variables, model(tmp_path))
    assert ran.returncode == 2
    assert "no-such-compiler: C++ compiler not found" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_capture_reports_a_script_that_cannot_import_torch(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("import torch")
    words = "--capture", sys.executable, "serve.py"
    ran = shrinkfx(tmp_path, with_torch(tmp_path, RAISES), *words)
    assert ran.returncode == 3
    said = "serve.py could not import PyTorch; the script ended with exit code 1"
    assert said in ran.stderr
    assert f"try: {shlex.quote(sys.executable)} -c 'import torch.export'" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_capture_without_a_compiler_does_not_run_the_script(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("open('ran', 'w')")
    variables = {"CXX": "no-such-compiler", "PYTHONPATH": str(ROOT)}
    ran = shrinkfx(tmp_path, variables, "--capture", sys.executable, "serve.py")
    assert ran.returncode == 2
    assert "no-such-compiler: C++ compiler not found" in ran.stderr
    assert not (tmp_path / "ran").exists()
