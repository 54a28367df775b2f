"""What is said where PyTorch or the compiler does not work: by the doctor, by a run."""

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

from shrinkfx.torch_versions import RANGE

pytestmark = pytest.mark.processes

Rows = Mapping[str, Mapping[str, str]]

CASES = {
    "raises": (RAISES, "cannot be imported: OSError: libtorch_cpu.so", "import torch"),
    "old": (OLD, "torch 2.5.0 is older than 2.11", f"install torch {RANGE}"),
    "dies": (DIES, "the worker died with SIGSEGV while loading", ""),
}


def examined(folder: Path, variables: dict[str, str]) -> tuple[int, Rows]:
    ran = shrinkfx(folder, variables, "doctor", "--json")
    told = json.loads(ran.stdout)
    assert told["works"] is (ran.returncode == 0)
    assert ran.stderr == ""
    return ran.returncode, {row["part"]: row for row in told["rows"]}


@pytest.mark.parametrize("case", CASES)
def test_torch_that_does_not_work_is_a_row(tmp_path: Path, case: str) -> None:
    text, said, remedy = CASES[case]
    code, rows = examined(tmp_path, with_torch(tmp_path, text))
    assert code == 2
    row = rows["PyTorch"]
    assert row["status"] == "broken"
    assert said in row["detail"]
    assert row["cost"] == "Nothing works without it."
    assert remedy in row["remedy"]
    assert rows["worker"]["detail"] == "needs PyTorch, see there"
    for part in ("worker", "AOTInductor", "fast build", "verification", "guard pages"):
        assert rows[part]["status"] == "not tried"
    assert rows["report.html"]["status"] == "works"  # it needs no torch


def test_torch_without_what_a_worker_needs_leaves_that_broken(tmp_path: Path) -> None:
    code, rows = examined(tmp_path, with_torch(tmp_path, BARE))
    assert code == 2
    assert rows["PyTorch"]["status"] == "works"
    assert rows["PyTorch"]["detail"] == f"2.99.0.dev1, not tested; tested: {RANGE}"
    assert rows["worker"]["status"] == "broken"
    assert "cannot be imported with torch 2.99.0.dev1" in rows["worker"]["detail"]
    assert f"tested with: torch {RANGE}" in rows["worker"]["remedy"]
    assert rows["guard pages"]["status"] == "not tried"
    assert rows["AOTInductor"]["detail"] == "needs worker, see there"


def test_compiler_that_is_not_there_is_missing(tmp_path: Path) -> None:
    variables = {**with_torch(tmp_path, BARE), "CXX": "no-such-compiler"}
    code, rows = examined(tmp_path, variables)
    assert code == 2
    row = rows["C++ compiler"]
    assert (row["status"], row["detail"]) == (
        "missing",
        "no-such-compiler is not on the PATH",
    )
    assert rows["worker"]["detail"] == "needs C++ compiler, see there"


def test_compiler_that_fails_is_broken(tmp_path: Path) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\necho cannot find cc1plus\nexit 3\n")
    compiler.chmod(0o755)
    variables = {**with_torch(tmp_path, BARE), "CXX": str(compiler)}
    row = examined(tmp_path, variables)[1]["C++ compiler"]
    assert row["status"] == "broken"
    assert row["detail"] == "it ended with 3: cannot find cc1plus"


def test_interrupt_leaves_nothing_behind(
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
    """Write what is an exported program by the names in it, which is read later."""
    with zipfile.ZipFile(folder / "model.pt2", "w") as archive:
        archive.writestr("model/models/model.json", "{}")
    return "model.pt2"


@pytest.mark.parametrize("case", CASES)
def test_run_with_torch_that_does_not_work_says_what_to_do(
    tmp_path: Path, case: str
) -> None:
    text, said, remedy = CASES[case]
    ran = shrinkfx(tmp_path, with_torch(tmp_path, text), model(tmp_path))
    assert ran.returncode == 2
    assert said in ran.stderr
    assert remedy in ran.stderr
    assert ran.stderr.count("shrinkfx doctor") == 1
    assert "torch.export.load" not in ran.stderr


def test_run_with_torch_that_lacks_what_a_worker_needs_names_versions(
    tmp_path: Path,
) -> None:
    ran = shrinkfx(tmp_path, with_torch(tmp_path, BARE), model(tmp_path))
    assert ran.returncode == 2
    assert "the worker: cannot be imported with torch 2.99.0.dev1" in ran.stderr
    assert f"shrinkfx is tested with: torch {RANGE}" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_run_without_a_compiler_names_the_doctor(tmp_path: Path) -> None:
    variables = {"CXX": "no-such-compiler", "PYTHONPATH": str(ROOT)}
    ran = shrinkfx(tmp_path, variables, model(tmp_path))
    assert ran.returncode == 2
    assert "no-such-compiler: no such C++ compiler" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_script_that_cannot_import_torch_is_told(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("import torch")
    words = "--capture", sys.executable, "serve.py"
    ran = shrinkfx(tmp_path, with_torch(tmp_path, RAISES), *words)
    assert ran.returncode == 3
    said = "serve.py could not import PyTorch; the script has left with exit code 1"
    assert said in ran.stderr
    assert f"try: {shlex.quote(sys.executable)} -c 'import torch.export'" in ran.stderr
    assert "shrinkfx doctor" in ran.stderr


def test_nothing_is_captured_without_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text("open('ran', 'w')")
    variables = {"CXX": "no-such-compiler", "PYTHONPATH": str(ROOT)}
    ran = shrinkfx(tmp_path, variables, "--capture", sys.executable, "serve.py")
    assert ran.returncode == 2
    assert "no-such-compiler: no such C++ compiler" in ran.stderr
    assert not (tmp_path / "ran").exists()
