"""Simulate a future PyTorch: hide each private name in turn, and run shrinkfx.

The run ends with a verified repro, or with one error that has the name.

Names are hidden from shrinkfx alone, and two programs are run: code that neither
reaches is not tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.worker.private_api import (
    FOR_CUDA_WITHOUT_GPU,
    NEEDED,
    OPTIONAL,
)
from shrinkfx.worker.private_api.feature import Feature

ROOT = Path(__file__).resolve().parents[2]
HIDING = Path(__file__).with_name("hidden_name")

EVERY_RUN = {
    "torch.utils._pytree",
    "torch._inductor.debug.reset_provenance_globals",
    "torch._inductor.graph.is_same_tensor",
}
"""The names that `make test` hides; with `pytest -m ""` this module hides all."""

pytestmark = pytest.mark.aoti


def places(feature: Feature) -> list[str]:
    """List the full names in PyTorch of the names and attributes of a feature."""
    found = [place.replace(":", ".") for place in feature.names.values()]
    for attribute in feature.attributes:
        first, _, rest = attribute.partition(".")
        found.append(f"{feature.names[first].replace(':', '.')}.{rest}")
    return found


def hidden(*features: Feature) -> list[Any]:
    """List the names of features, without those that a required feature has as well."""
    names = dict.fromkeys(place for f in features for place in places(f))
    if not {*features} & {*NEEDED}:
        for name in (place for f in NEEDED for place in places(f)):
            names.pop(name, None)
    return [
        pytest.param(name, marks=pytest.mark.every_run if name in EVERY_RUN else ())
        for name in names
    ]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    return {case: export(case, folder) for case in (CPU, CUDA)}


CPU, CUDA = "assert_roll_bound", "cuda_ima_unmasked_kernel"


def export(case: str, folder: Path) -> Path:
    path = folder / f"{case}.pt2"
    command = [sys.executable, "-W", "ignore", "repros/export.py", case, str(path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    return path


def reduce(
    model: Path, case: str, name: str, folder: Path, *more: str
) -> tuple[int, str, dict[str, Any]]:
    """Run the command with a name hidden; return its exit code, stderr and summary."""
    planted = ROOT / "repros" / case / "planted.py"
    out = folder / "out"
    command = [sys.executable, "-m", "shrinkfx", str(model), "--out", str(out)]
    command += ["--preload", str(planted), "--max-checks", "4", "--no-progress", *more]
    path = os.pathsep.join([str(HIDING), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path, "HIDDEN_NAME": name}
    done = subprocess.run(
        command,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    summary = out / "summary.json"
    told = json.loads(summary.read_text()) if summary.exists() else {}
    return done.returncode, done.stderr, told


@pytest.mark.parametrize("name", hidden(*NEEDED))
def test_missing_name_of_a_required_feature_is_one_error(
    name: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    code, said, _ = reduce(programs[CPU], CPU, name, tmp_path)
    assert "Traceback" not in said
    assert code == 2, said
    assert f"has no {name}" in said
    assert len(said.strip().splitlines()) <= 3


@pytest.mark.parametrize("name", hidden(*OPTIONAL))
def test_run_continues_without_an_optional_feature(
    name: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    code, said, summary = reduce(programs[CPU], CPU, name, tmp_path)
    assert "Traceback" not in said
    assert code in (0, 4), said
    assert summary["verified"] == {"runs": 3, "failed": 3}
    reasons = [*summary["missing_features"].values()]
    assert any(f"has no {name}" in reason for reason in reasons)


@pytest.mark.parametrize("name", hidden(*FOR_CUDA_WITHOUT_GPU))
def test_missing_name_of_the_interpreter_is_one_error(
    name: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    code, said, _ = reduce(
        programs[CUDA], CUDA, name, tmp_path, "--backend", "interpreter"
    )
    assert "Traceback" not in said
    assert code == 2, said
    assert f"has no {name}" in said
