"""Every case of ``repros/``, from its program to a verified repro."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cases import CASES, ROOT, expected_here
from support.causes import Cause

from repros.expected import arguments, fails_with, preloading, read_expected
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.task import read_options
from shrinkfx.events import ignore_event
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import UNTIL, Signature, is_until_target
from shrinkfx.options.options import Options
from shrinkfx.run.context import RunContext, server_for
from shrinkfx.run.observe import reproduce_failure, wants_guard_pages
from shrinkfx.run.verification import INDEPENDENT_RUNS

KEYS = {
    *("title", "url", "device", "torch", "stage", "kind", "message"),
    *("preload", "options", "notes", "suspects"),
    *("max_operators", "max_checks", "dynamic_dims", "operators", "cause"),
}
SWEEPS = [p for p in CASES if p.name.startswith("sweep_")]
"""Found by a sweep: no failing inputs are given."""

REDUCED = [p for p in CASES if p not in SWEEPS]
FIXED = [p for p in CASES if "<" in read_expected(p)["torch"]]
"""Cases of bugs of PyTorch that a later version has fixed."""

EVERY_RUN = {
    "cuda_ima_unmasked_kernel",
    "sweep_size_zero_or_one",
}
"""What `make test` reduces or finds, beside the tutorial's."""


def marked(cases: Sequence[Path]) -> list[Any]:
    """Mark the cases that `make test` tries."""
    return [
        pytest.param(p, marks=pytest.mark.every_run if p.name in EVERY_RUN else ())
        for p in cases
    ]


def test_repros_folder_has_cases() -> None:
    assert len([p for p in CASES if p.name.startswith("cuda_")]) >= 10
    assert len(CASES) >= 24


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case_has_a_valid_expected_file(case: Path) -> None:
    expected = read_expected(case)
    own = {"sweep"} if case in SWEEPS else {"needs"}
    assert KEYS <= set(expected) <= KEYS | own | {"since"}
    for changes in expected.get("since", {}).values():
        assert all(expected[key] != changes[key] for key in changes)
    assert (case / "make.py").is_file()
    assert expected["device"] in ("cpu", "cuda")
    assert not expected["preload"] or (case / expected["preload"]).is_file()
    re.compile(expected["message"])
    re.compile(expected["notes"])
    assert expected["kind"] in UNTIL
    assert not fails_with(expected, "2.10.0")
    # No version of PyTorch fixes a planted fault.
    assert not expected["preload"] or fails_with(expected, "99.0")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_case_has_a_valid_cause(case: Path) -> None:
    expected = read_expected(case)
    cause = Cause.read(expected["cause"])
    index = (
        expected["kind"] == "assert" and "index out of bounds" in expected["message"]
    )
    assert (cause.chain is not None) == index
    assert cause.operators or expected["kind"] == "check-inputs"
    planted = expected["preload"] and expected["device"] == "cpu"
    lying = "fake-kernel mismatch" in expected["notes"] or expected["kind"] == "ima"
    assert not planted or lying or "none" not in cause.decisions
    if cause.source and importlib.util.find_spec(expected["needs"]) is None:
        pytest.skip(f"its line is of {expected['needs']}: pip install -e '.[models]'")
    for line in cause.lines:
        assert sum(text.count(line) for text in sources(case, cause.source)) == 1


def sources(case: Path, source: str) -> Iterator[str]:
    """Read where a case's model is written."""
    yield (case / "make.py").read_text()
    yield (case.parent / "_haystack.py").read_text()
    if source:
        package = importlib.util.find_spec(source.partition("/")[0])
        assert package is not None
        assert package.origin is not None
        yield (Path(package.origin).parents[1] / source).read_text()


def suspects_of(options: Options, out: Path) -> tuple[Suspect, ...]:
    """Reproduce the failure, and return the operators that may cause it."""
    context = RunContext(options, out, ignore_event)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with server_for(options, worker, context.sandbox) as context.worker:
        return reproduce_failure(context).suspects


@pytest.mark.aoti
@pytest.mark.parametrize("case", REDUCED, ids=lambda p: p.name)
def test_localization_names_the_expected_operators_of_a_case(
    case: Path, tmp_path: Path
) -> None:
    expected = expected_here(case)
    if not expected["suspects"]:
        pytest.skip("its inputs are to blame")
    options = read_options(make_parser().parse_args(made(case, tmp_path)), "")
    found = suspects_of(options, tmp_path / "out")
    surest, operators = found[0].weight, [s.operator for s in found]
    assert set(expected["suspects"]) <= set(operators)
    # More operators of a kernel may be as sure.
    assert found[operators.index(expected["suspects"][0])].weight == surest
    if "user kernel" in expected["message"]:  # the finding says whose it is
        assert operators[0] == expected["suspects"][0]
        assert all(other.weight < surest for other in found[1:])


@pytest.mark.aoti
@pytest.mark.parametrize("case", marked(REDUCED), ids=lambda p: p.name)
def test_case_is_reduced_to_its_minimum(case: Path, tmp_path: Path) -> None:
    expected = expected_here(case)
    out = tmp_path / "out"
    said = run("-m", "shrinkfx", *made(case, tmp_path), "--out", str(out))

    assert re.search(expected["notes"], said)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "reduced"
    signature = Signature(**summary["signature"])
    assert is_until_target(expected["kind"], signature)
    assert signature.stage == expected["stage"]
    assert signature.matches_text(expected["message"])
    assert summary["operators"]["before"] == expected["operators"]
    assert summary["operators"]["after"] <= expected["max_operators"]
    assert summary["checks"]["total"] <= expected["max_checks"]
    script = (out / "repro.py").read_text()
    runs = INDEPENDENT_RUNS if re.search("^# Fails: ", script, re.MULTILINE) else 3
    assert summary["verified"] == {"runs": runs, "failed": runs}
    assert summary["minimal"]
    assert summary["dynamic_dims"]["after"] == expected["dynamic_dims"]
    assert "shrinkfx." not in script
    assert str(tmp_path) not in script
    assert str(ROOT) not in script


@pytest.mark.aoti
@pytest.mark.parametrize("case", FIXED, ids=lambda p: p.name)
def test_case_passes_with_a_torch_version_that_fixed_the_failure(
    case: Path, tmp_path: Path
) -> None:
    here = importlib.metadata.version("torch")
    if fails_with(read_expected(case), here):
        pytest.skip(f"it fails with torch {here}")
    how = ["--dynamic-sweep", "--seed", "7"] if case in SWEEPS else []
    words = [*made(case, tmp_path), *how, "--baseline-runs", "5"]
    run("-m", "shrinkfx", *words, "--out", str(tmp_path / "out"), code=3)


def made(case: Path, folder: Path) -> list[str]:
    """Export a case, and say how to run shrinkfx on it."""
    expected = read_expected(case)
    model = folder / "model.pt2"
    export(case, model)
    words = [str(model), *arguments(case, expected)]
    if (inputs := model.with_suffix(".inputs.pt")).exists():
        words += ["--inputs", str(inputs)]
    return words


@pytest.mark.aoti
@pytest.mark.parametrize("case", marked(SWEEPS), ids=lambda p: p.name)
def test_case_is_found_by_a_sweep(case: Path, tmp_path: Path) -> None:
    found_by_a_sweep(case, tmp_path)


@pytest.mark.aoti
@pytest.mark.parametrize("case", SWEEPS, ids=lambda p: p.name)
def test_inputs_found_by_a_sweep_fail_and_pass_in_separate_runs(
    case: Path, tmp_path: Path
) -> None:
    model, out, found = found_by_a_sweep(case, tmp_path)
    expected = read_expected(case)
    only_look = ["--max-checks", "1", "--quiet", *preloading(case, expected)]
    for name, code in (("failing_inputs", 4), ("passing_inputs", 3)):
        inputs = ["--inputs", str(out / found[name]), "--out", str(tmp_path / name)]
        runs = ["--baseline-runs", "5"]
        run("-m", "shrinkfx", str(model), *inputs, *only_look, *runs, code=code)


def found_by_a_sweep(case: Path, tmp_path: Path) -> tuple[Path, Path, dict[str, Any]]:
    """Sweep a case: give its model, the folder of the sweep, and the one finding."""
    expected = expected_here(case)
    model, out = tmp_path / "model.pt2", tmp_path / "out"
    export(case, model)
    preload = preloading(case, expected)
    options = ["--dynamic-sweep", "--seed", "7", "--out", str(out), *preload]
    run("-m", "shrinkfx", str(model), *options, code=6)
    swept = json.loads((out / "sweep.json").read_text())
    assert swept["compiles"] == 1
    (found,) = swept["findings"]
    signature = Signature(**found["signature"])
    assert (signature.kind, signature.stage) == (expected["kind"], expected["stage"])
    assert signature.matches_text(expected["message"])
    assert list(found["sizes"].values()) == expected["sweep"]["sizes"]
    assert list(found["nearest_pass"].values()) == expected["sweep"]["nearest"]
    assert found["first_seen_after"] <= 200
    assert found["confirmed"] == {"runs": 3, "failed": 3}
    return model, out, found


def export(case: Path, model: Path) -> None:
    needs = read_expected(case).get("needs")
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"its model is of {needs}: pip install -e '.[models]'")
    run("-W", "ignore", str(ROOT / "repros" / "export.py"), case.name, str(model))


def run(*arguments: str, code: int = 0) -> str:
    """Run Python on ``arguments`` and return what it says, shown if the test fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, timeout=1500, check=False, capture_output=True, text=True
    )
    assert done.returncode == code, (
        f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stderr
