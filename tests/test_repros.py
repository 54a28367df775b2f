"""Every case of ``repros/``, from its program to a verified repro."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shrinkfx.arguments import make_parser, options_of
from shrinkfx.failure.signature import UNTIL, Signature, asked_for
from shrinkfx.run import blame
from shrinkfx.search.events import ignore

ROOT = Path(__file__).resolve().parents[1]
CASES = sorted(p.parent for p in (ROOT / "repros").glob("*/expected.toml"))
KEYS = {
    *("title", "url", "device", "torch", "stage", "kind", "message"),
    *("preload", "options", "notes", "suspects"),
    *("max_operators", "max_checks", "dynamic_dims", "operators"),
}


def test_there_are_cases() -> None:
    assert len([p for p in CASES if p.name.startswith("cuda_")]) >= 10
    assert len(CASES) >= 24


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case_says_what_to_expect(case: Path) -> None:
    expected = tomllib.loads((case / "expected.toml").read_text())
    assert set(expected) == KEYS
    assert (case / "make.py").is_file()
    assert expected["device"] in ("cpu", "cuda")
    assert not expected["preload"] or (case / expected["preload"]).is_file()
    re.compile(expected["message"])
    re.compile(expected["notes"])
    assert expected["kind"] in UNTIL


@pytest.mark.aoti
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case_is_blamed_on_the_right_operators(case: Path, tmp_path: Path) -> None:
    expected = tomllib.loads((case / "expected.toml").read_text())
    if not expected["suspects"]:
        pytest.skip("its inputs are to blame")
    options = options_of(make_parser().parse_args(made(case, tmp_path)), "")
    found = blame(options, tmp_path / "out", ignore)
    surest, operators = found[0].weight, [s.operator for s in found]
    assert set(expected["suspects"]) <= set(operators)
    # More operators of a kernel may be as sure.
    assert found[operators.index(expected["suspects"][0])].weight == surest


@pytest.mark.aoti
@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case_is_reduced_to_its_minimum(case: Path, tmp_path: Path) -> None:
    expected = tomllib.loads((case / "expected.toml").read_text())
    out = tmp_path / "out"
    said = run("-m", "shrinkfx", *made(case, tmp_path), "--out", str(out))

    assert re.search(expected["notes"], said)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "reduced"
    signature = Signature(**summary["signature"])
    assert asked_for(expected["kind"], signature)
    assert signature.stage == expected["stage"]
    assert signature.says(expected["message"])
    assert summary["operators"]["before"] == expected["operators"]
    assert summary["operators"]["after"] <= expected["max_operators"]
    assert summary["checks"]["total"] <= expected["max_checks"]
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert summary["minimal"]
    assert summary["dynamic_dims"]["after"] == expected["dynamic_dims"]
    script = (out / "repro.py").read_text()
    assert "shrinkfx." not in script
    assert str(tmp_path) not in script
    assert str(ROOT) not in script


def made(case: Path, folder: Path) -> list[str]:
    """Export a case, and say how to run shrinkfx on it."""
    expected = tomllib.loads((case / "expected.toml").read_text())
    model = folder / "model.pt2"
    run("-W", "ignore", str(ROOT / "repros" / "export.py"), case.name, str(model))
    words = [str(model), "--until", expected["kind"], *expected["options"]]
    if expected["device"] == "cuda":
        words += ["--device", "cuda", "--backend", "interpreter"]
    if expected["preload"]:
        words += ["--preload", str(case / expected["preload"])]
    if (inputs := model.with_suffix(".inputs.pt")).exists():
        words += ["--inputs", str(inputs)]
    return words


def run(*arguments: str) -> str:
    """Run Python on ``arguments`` and return what it says, shown if the test fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, timeout=1500, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr
