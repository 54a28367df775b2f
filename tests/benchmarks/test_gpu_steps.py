"""What ``make gpu`` does, with stand-ins for what it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpu_steps
import pytest
from gpu_steps import Cell, Clock, expectation, lines_until, started, told_by_pytest

ROOT = Path(__file__).resolve().parents[2]


def stand_in(folder: Path, text: str) -> list[str]:
    script = folder / "stand_in.py"
    script.write_text(text)
    return [sys.executable, "-u", str(script)]


def test_clock_returns_at_most_the_remaining_time() -> None:
    assert Clock(1000.0).left_s(10.0) == 10.0
    assert Clock(0.0).left_s(10.0) == 0.0
    assert 900 < Clock(1000.0).left_s() <= 1000.0


def test_cuda_case_has_an_expected_failure_and_options() -> None:
    said, options = expectation("cuda_ima_index_wrap")
    assert said == "ima in run"
    assert options[0] == "--preload"
    assert options[-2:] == ["--until", "ima"]
    assert expectation("cuda_assert_bad_index")[1] == ["--until", "assert"]


def test_started_process_is_killed_with_its_descendants(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(p.pid)\ntime.sleep(600)\n"
    )
    with started(stand_in(tmp_path, text), tmp_path, tmp_path / "errors") as process:
        assert process.stdout is not None
        lines = lines_until(process.stdout.fileno(), time.monotonic() + 60)
        below = int(next(lines))
    stop = time.monotonic() + 60
    while Path(f"/proc/{below}/cmdline").exists() and time.monotonic() < stop:
        if not Path(f"/proc/{below}/cmdline").read_bytes():
            break  # ended, and nobody has waited for it
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{below}/cmdline").exists()
    assert process.returncode is not None


SEEN = {"event": "baseline", "kind": "ima", "stage": "run", "text": "CUDA error: oh"}


def looked(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Cell:
    """Look at a case with a stand-in for the command, found first on the path."""
    package = folder / "shrinkfx"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(text)
    monkeypatch.setattr(gpu_steps, "ROOT", folder)
    (folder / "repros").symlink_to(ROOT / "repros")
    case, model = "cuda_ima_index_wrap", folder / "model.pt2"
    return gpu_steps.look("compute-sanitizer", case, model, Clock(60.0))


def test_observation_ends_at_the_expected_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
import sys, time
open({str(tmp_path / "asked")!r}, "w").write(" ".join(sys.argv[1:]))
print('{{"event": "entered"}}')
print({json.dumps(SEEN)!r}, flush=True)
time.sleep(600)
"""
    cell = looked(tmp_path, monkeypatch, text)
    assert (cell.kind, cell.stage) == ("ima", "run")
    assert cell.seen == "ima in run: CUDA error: oh"
    asked = (tmp_path / "asked").read_text()
    assert "--sanitizer memcheck" in asked
    assert "--device cuda" in asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; sys.exit('x: unrecognized arguments: --sanitizer')", "no such"),
        (
            "import sys\nprint('outcome of 1 run:\\n  passes: the same result as "
            "eager', file=sys.stderr)\nsys.exit(3)",
            "not seen (exit 3): passes: the same result as eager",
        ),
        ("import os\nos.kill(os.getpid(), 9)", "no answer"),
    ],
)
def test_reason_for_a_missing_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    cell = looked(tmp_path, monkeypatch, text)
    assert said in cell.seen
    assert cell.kind == ""


def test_pytest_outcomes_are_read_by_test_name() -> None:
    lines = [
        "tests/cuda/test_cuda.py::test_a PASSED          [ 25%]",
        "tests/cuda/test_cuda.py::test_b[1] FAILED       [ 50%]",
        "tests/cuda/test_cuda.py::test_c SKIPPED (no second GPU)  [ 75%]",
        "tests/cuda/test_cuda.py::test_d ",
    ]
    assert told_by_pytest(lines) == {
        "test_a": "passed",
        "test_b[1]": "failed",
        "test_c": "skipped",
        "test_d": "cut short",
    }


@pytest.mark.torch
def test_gpu_benchmark_without_a_gpu_exits_with_0(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "gpu.py")]
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        [*command, "--out", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "there is no CUDA device" in done.stdout
    assert not out.exists()
