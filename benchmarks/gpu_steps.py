"""What ``gpu.py`` has others do, each in a process group of its own, for a while."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "device": ("--backend", "aoti", "--guard-pages", "off"),
    "red zones": ("--backend", "aoti", "--guard-pages", "on"),
    "compute-sanitizer": (
        *("--backend", "aoti", "--guard-pages", "off"),
        *("--sanitizer", "memcheck"),
    ),
    "interpreter": ("--backend", "interpreter"),
}
"""How each column looks at a program, as a user would say it."""

WITHOUT_GPU = "interpreter"

_ENDS_S = 20.0


class Clock:
    """The seconds that there are for all of it.

    >>> Clock(60.0).left_s(10.0)
    10.0
    """

    def __init__(self, seconds: float) -> None:
        self._stop = time.monotonic() + seconds

    def left_s(self, most: float = float("inf")) -> float:
        """Say how long a step may take; 0 where there is nothing left."""
        return max(0.0, min(most, self._stop - time.monotonic()))


@dataclass(frozen=True)
class Cell:
    """What one way of looking has seen of a case.

    Attributes:
        seen: the failure, or why there is none, in a line.
        kind: of the failure, or ''.
        stage: of it.
        seconds: until it was seen, a start of PyTorch and a compile included.
    """

    seen: str
    kind: str = ""
    stage: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    """What a case is said to do, and what each way of looking saw."""

    case: str
    expected: str
    cells: dict[str, Cell] = field(default_factory=dict)


@contextlib.contextmanager
def started(
    command: Sequence[str], folder: Path, errors: Path
) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a group of its own, and kill that on leaving.

    A worker's server is in another group; it ends when its parent does.
    """
    places = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    path = os.pathsep.join(places)
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)}
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_S)
        if process.stdout is not None:
            process.stdout.close()


def export(case: str, model: Path, clock: Clock) -> bool:
    """Write the program of a case; tell whether it was written in time."""
    script = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    command = [*script, case, str(model)]
    with started(command, model.parent, model.with_suffix(".log")) as process:
        try:
            return process.wait(clock.left_s(120.0)) == 0
        except subprocess.TimeoutExpired:
            return False


def expectation(case: str) -> tuple[str, list[str]]:
    """Read what a case is said to do, and what registers its operators."""
    told = tomllib.loads((ROOT / "repros" / case / "expected.toml").read_text())
    preload = str(ROOT / "repros" / case / told["preload"]) if told["preload"] else ""
    preloads = ["--preload", preload] if preload else []
    kind = told["kind"]
    return f"{kind} in {told['stage']}", [*preloads, "--until", kind]


def look(column: str, case: str, model: Path, clock: Clock) -> Cell:
    """Have a run see a case's failure, and end it before it searches."""
    began, inputs = time.monotonic(), model.with_suffix(".inputs.pt")
    with tempfile.TemporaryDirectory(
        prefix="gpu-look-", ignore_cleanup_errors=True
    ) as place:
        folder = Path(place)
        command = [sys.executable, "-m", "shrinkfx", str(model), "--json"]
        command += ["--device", "cuda", *expectation(case)[1], *COLUMNS[column]]
        command += ["--inputs", str(inputs)] if inputs.exists() else []
        command += ["--baseline-runs", "1", "--no-explain", "--out", f"{folder}/out"]
        limit_s = clock.left_s(150.0)
        errors = folder / "errors"
        with started(command, folder, errors) as process:
            seen = _seen(process, time.monotonic() + limit_s)
        cell = seen or _unseen(process.returncode, errors, limit_s)
    seconds = round(time.monotonic() - began, 1)
    return Cell(cell.seen, cell.kind, cell.stage, seconds)


def _seen(process: subprocess.Popen[str], stop: float) -> Cell | None:
    """Read events until the failure is seen; None where it is not, or not in time."""
    assert process.stdout is not None
    for line in lines_until(process.stdout.fileno(), stop):
        with contextlib.suppress(ValueError):
            told = json.loads(line)
            if told.get("event") == "baseline":
                kind, stage = told["kind"], told["stage"]
                return Cell(f"{kind} in {stage}: {told['text']}", kind, stage)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, stop - time.monotonic()))
    return None


def lines_until(source: int, stop: float) -> Iterator[str]:
    """Yield whole lines until there are no more, or it is too late for one."""
    held = b""
    while (left := stop - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            return
        data = os.read(source, 1 << 16)
        if not data:
            return
        *whole, held = (held + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def _unseen(status: int | None, errors: Path, limit_s: float) -> Cell:
    said = errors.read_text(errors="replace").strip()
    if status is None or status < 0:
        return Cell(f"no answer in {limit_s:.0f} s")
    if "unrecognized arguments" in said:
        return Cell("this version has no such option")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    did = [line for line in lines if re.match(r"passes|\w[\w-]* in \w+: ", line)]
    why = "; ".join(dict.fromkeys(did)) or (lines[-1] if lines else "")
    return Cell(f"not seen (exit {status}): {why}"[:400])


def run_tests(clock: Clock, jobs: int) -> dict[str, str]:
    """Run ``tests/cuda``, several at once, and tell what became of each test."""
    if importlib.util.find_spec("pytest") is None:
        return {"tests/cuda": "not run: pytest is not installed"}
    command = [sys.executable, "-m", "pytest", "tests/cuda", "-m", "cuda", "-v"]
    command += ["--noconftest", "-p", "no:cacheprovider", "-o", "addopts="]
    command += ["-o", "filterwarnings=default", "--tb=short"]
    if importlib.util.find_spec("xdist") is not None:
        command += ["-n", str(jobs)]
    with tempfile.TemporaryDirectory(
        prefix="gpu-tests-", ignore_cleanup_errors=True
    ) as place:
        folder, texts = Path(place), []
        limit_s = clock.left_s()
        with started(command, folder, folder / "errors") as process:
            assert process.stdout is not None
            stop = time.monotonic() + limit_s
            for line in lines_until(process.stdout.fileno(), stop):
                print(line, flush=True)
                texts.append(line)
    return told_by_pytest(texts)


def told_by_pytest(lines: Sequence[str]) -> dict[str, str]:
    """Read what ``pytest -v`` says of each test; one that it has begun was cut short.

    >>> told_by_pytest(["tests/a.py::test_b PASSED [ 50%]", "tests/a.py::test_c "])
    {'test_b': 'passed', 'test_c': 'cut short'}
    >>> told_by_pytest(["a.py::test_b ", "[gw0] [ 50%] PASSED a.py::test_b "])
    {'test_b': 'passed'}
    """
    told: dict[str, str] = {}
    for line in lines:
        if found := re.match(
            r"(?:\[gw\d+\] .*?([A-Z]+) )?\S+\.py::(.+?)\s*(?: ([A-Z]+) .*)?$", line
        ):
            told[found[2]] = (found[1] or found[3] or "cut short").lower()
    return told
