"""Test shrinkfx with each supported pair of PyTorch and Python: ``make test-versions``.

For each pair, make an environment in ``.venv-versions/`` (with uv if it is installed,
else with venv and pip), run ``SELECTION`` there, which compiles for real, and write the
result into the table of ``docs/versions.md``. A pair takes about 5 GB and ten minutes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-versions"
TABLE = ROOT / "docs" / "versions.md"

INSTALL_S, TEST_S = 1800.0, 3600.0


@dataclass(frozen=True)
class Pair:
    """What an environment has.

    Attributes:
        triton: the release that belongs to torch; CPU builds of torch require none.
    """

    torch: str
    python: str
    triton: str

    @property
    def folder(self) -> Path:
        return HOME / f"torch-{self.torch}-python-{self.python}"

    def executable(self) -> Path:
        return self.folder / "bin" / "python"


PAIRS = (
    Pair("2.13.0", "3.11", "3.7.1"),
    Pair("2.14.1", "3.12", "3.8.0"),
    Pair("2.15.0", "3.13", "3.9.0"),
)

SELECTION = (
    "tests/worker/test_private_api.py",
    "tests/test_run.py",
    # The program of the demo.
    "tests/test_repros.py::test_case_is_reduced_to_its_minimum[assert_roll_bound]",
    "tests/test_repros.py::test_case_is_reduced_to_its_minimum[crash_inside_cond]",
    "tests/test_repros.py::test_case_is_reduced_to_its_minimum[mismatch_wrong_constant]",
    "tests/test_repros.py::test_case_is_reduced_to_its_minimum[compile_lowering_raises]",
    "tests/test_repros.py::test_case_is_reduced_to_its_minimum[cuda_ima_unmasked_kernel]",
    "tests/test_repros.py::test_case_is_found_by_a_sweep[sweep_size_zero_or_one]",
    "tests/intake/test_capturing_real.py::test_segfault_under_pytest_is_captured",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    versions = [pair.torch for pair in PAIRS]
    parser.add_argument("--torch", choices=versions, help="try only this version")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args(arguments)
    wanted = [p for p in PAIRS if options.torch in (None, p.torch)]
    failed = False
    for pair in wanted:
        print(f"--- torch {pair.torch}, Python {pair.python}", flush=True)
        try:
            install(pair)
            status, outcome = run(pair)
        finally:
            if not options.keep:
                shutil.rmtree(pair.folder, ignore_errors=True)
        failed |= status != 0
        write_row(pair, outcome)
    return int(failed)


def install(pair: Pair) -> None:
    """Make the environment, unless an earlier ``--keep`` has kept it."""
    whole = pair.folder / "installed"
    if whole.exists():
        return
    shutil.rmtree(pair.folder, ignore_errors=True)
    pinned = f"torch=={pair.torch}", f"triton=={pair.triton}"
    packages = (*pinned, "--editable", ".[dev]")
    uv = shutil.which("uv")
    if uv:
        call(uv, "venv", "--quiet", "--python", pair.python, str(pair.folder))
        python = f"--python={pair.executable()}"
        call(uv, "pip", "install", "--quiet", python, *packages)
    else:
        call(interpreter(pair.python), "-m", "venv", str(pair.folder))
        pip = (str(pair.executable()), "-m", "pip", "--disable-pip-version-check")
        call(*pip, "install", "--quiet", *packages)
    whole.touch()


def interpreter(version: str) -> str:
    """Find an interpreter of that version that starts, also in pyenv's folder."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    for name in (f"python{version}", *map(str, found)):
        path = shutil.which(name)
        if path and not subprocess.run([path, "-V"], capture_output=True).returncode:
            return path
    sys.exit(f"Python {version} is not installed: install it, or install uv")


def call(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, timeout=INSTALL_S)


def run(pair: Pair) -> tuple[int, str]:
    """Run the selection; return pytest's exit status and last line."""
    command = [str(pair.executable()), "-m", "pytest", "-q", "-m", "", *SELECTION]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            said, _ = process.communicate(timeout=TEST_S)
        except BaseException:
            os.killpg(process.pid, 9)
            raise
    print(said, flush=True)
    return process.returncode, said.strip().rpartition("\n")[2].strip("= ")


def write_row(pair: Pair, outcome: str) -> None:
    """Write the row of a pair into the table."""
    today = datetime.date.today().isoformat()
    result = re.sub(r" in [\d.]+s.*", "", outcome)
    row = f"| {pair.torch} | {pair.python} | {today} | {result} |"
    text = TABLE.read_text()
    old = re.compile(rf"^\| {re.escape(pair.torch)} \|.*$", re.MULTILINE)
    TABLE.write_text(old.sub(row, text))


if __name__ == "__main__":
    sys.exit(main())
