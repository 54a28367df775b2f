"""Run shrinkfx and PyTorch's AOTI minifier on a failing program, and measure them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from shrinkfx.check.oracle import Compiler, Limits  # noqa: E402
from shrinkfx.check.server import Server  # noqa: E402
from shrinkfx.errors import ShrinkfxError  # noqa: E402
from shrinkfx.failure.signature import Kind, asked_for  # noqa: E402

COMPARING = (Kind.MISMATCH, Kind.NAN)


@dataclass(frozen=True)
class Case:
    """A failing program.

    Attributes:
        message: a pattern for what the failure says.
    """

    name: str
    model: Path
    until: str
    message: str = ""
    preloads: tuple[str, ...] = ()
    inputs: Path | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a tool made of a case.

    Attributes:
        ended: how, if not well.
        search: CPU-seconds of the search alone.
        total: CPU-seconds in all.
        refails: its repro fails in the same way.
        self_contained: so it does in an empty folder, without anything else.
    """

    ended: str
    checks: int = 0
    search: float = 0.0
    total: float = 0.0
    wall: float = 0.0
    operators: int | None = None
    dynamic_dims: int | None = None
    refails: bool = False
    self_contained: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    """A process tree that has ended."""

    code: int
    cpu: float
    wall: float
    said: str


def run(
    command: Sequence[str],
    folder: Path,
    limit: float,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a command in a tool's folder of a case, and measure its tree.

    Its caches are those that the tool has for all cases, beside the cases' folders.
    """
    folder.mkdir(parents=True, exist_ok=True)
    caches = folder.parents[1] / f"caches_of_{folder.name}"
    (caches / "tmp").mkdir(parents=True, exist_ok=True)
    own = {
        "TMPDIR": str(caches / "tmp"),  # where Inductor puts precompiled headers
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "XDG_CACHE_HOME": str(caches),
    }
    log = folder / "log"
    start = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own, **(environment or {})},
            start_new_session=True,
        )
        code, usage = _wait(process, start + limit)
    cpu = usage.ru_utime + usage.ru_stime
    said = log.read_text(errors="replace")
    return Ran(code, cpu, time.monotonic() - start, said)


def _wait(process: subprocess.Popen[bytes], stop: float) -> tuple[int, Any]:
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > stop:
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.1)


def with_shrinkfx(case: Case, folder: Path, limit: float) -> tuple[Result, Any]:
    out = folder / "out"
    command = [sys.executable, "-W", "ignore", "-m", "shrinkfx", str(case.model)]
    command += ["--until", case.until, "--out", str(out), *case.options]
    for preload in case.preloads:
        command += ["--preload", preload]
    if case.inputs:
        command += ["--inputs", str(case.inputs)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = run(command, folder, limit, {"PYTHONPATH": path})
    if not (out / "summary.json").exists():
        last = (ran.said.strip() or "nothing").splitlines()[-1]
        return Result(_ended(ran, last), total=ran.cpu, wall=ran.wall), None
    summary = json.loads((out / "summary.json").read_text())
    verified = summary["verified"]
    fails = verified["runs"] == verified["failed"] > 0
    return (
        Result(
            "" if ran.code == 0 else f"exit {ran.code}",
            summary["checks"]["total"],
            summary["cpu_seconds"]["search"],
            ran.cpu,
            ran.wall,
            summary["operators"]["after"],
            summary["dynamic_dims"]["after"],
            refails=fails,
            self_contained=fails,  # it is run in an empty folder
            parts=summary["cpu_seconds"],
        ),
        summary,
    )


def with_pytorch(case: Case, folder: Path, limit: float) -> Result:
    """Run the peer, count what it left, and run its repro twice."""
    job = folder / "job.json"
    about = {
        "model": str(case.model),
        "inputs": str(case.inputs or ""),
        "preloads": case.preloads,
        "compares": case.until in COMPARING,
        "says": _told(case),
        "folder": str(folder),
    }
    folder.mkdir()
    minifier = [sys.executable, "-W", "ignore", str(HERE / "torch_minifier.py")]
    job.write_text(json.dumps({**about, "count": False}))
    ran = run([*minifier, str(job)], folder, limit, _environment(case))
    job.write_text(json.dumps({**about, "count": True}))
    run([*minifier, str(job)], folder, limit)
    answer: dict[str, Any] = {}
    if (folder / "answer.json").exists():
        answer = json.loads((folder / "answer.json").read_text())
    queries = folder / "queries"
    last = (ran.said.strip() or "nothing").splitlines()[-1]
    ended = _ended(ran, last)
    if answer and not _shows(case, Path(answer["program"])):
        answer, ended = {}, f"slipped: what is left does not fail so. {ended}"
    return Result(
        ended,
        len(queries.read_text().splitlines()) if queries.exists() else 0,
        ran.cpu,
        ran.cpu,
        ran.wall,
        answer.get("operators"),
        answer.get("dynamic_dims"),
        refails=bool(answer) and _refails(case, folder, limit),
        self_contained=bool(answer) and _refails_alone(case, folder, limit),
    )


_LITERAL = re.compile(r"[\w :;,'<=-]+")
"""A pattern that stands for itself, and that the peer can thus be told."""


def _shows(case: Case, program: Path) -> bool:
    """Tell whether a program shows the failure, and not some other that looks alike."""
    try:
        with _server(case, program) as server:
            seen, _ = Compiler(server, _limits(case)).original()
    except ShrinkfxError:
        return False
    return seen.signature is not None and asked_for(case.until, seen.signature)


def _server(case: Case, model: Path, inputs: Path | None = None) -> Server:
    return Server(
        model=model,
        inputs=inputs,
        preloads=case.preloads,
        environment=_environment(case),
    )


def _limits(case: Case) -> Limits:
    seconds = _HANGS_S if case.until == Kind.HANG else 600.0
    return Limits(seconds, 8 << 30)


_HANGS_S = 60.0
"""Seconds after which a program that should hang is believed to."""


def _told(case: Case) -> str:
    """Say what the peer is to look for: of a compiled program it sees no message."""
    seen = case.until == Kind.COMPILE_ERROR and _LITERAL.fullmatch(case.message)
    return case.message if seen else ""


def _environment(case: Case) -> dict[str, str]:
    checks = case.until == Kind.CHECK_INPUTS
    return {"AOTI_RUNTIME_CHECK_INPUTS": "1"} if checks else {}


def _ended(ran: Ran, last: str) -> str:
    if ran.code < 0:
        return f"died of {signal.Signals(-ran.code).name}"
    return "" if ran.code == 0 else last[:120]


_WITH_PRELOADS = """
import os, runpy, sys
for preload in sys.argv[1:-1]:
    sys.path.append(os.path.dirname(preload))
    runpy.run_path(preload)
script, sys.argv = sys.argv[-1], sys.argv[:1]
runpy.run_path(script, run_name="__main__")
"""


def _refails(case: Case, folder: Path, limit: float) -> bool:
    command = [sys.executable, "-W", "ignore", "-c", _WITH_PRELOADS]
    command += [*case.preloads, str(folder / "repro.py")]
    limit = min(limit, _limits(case).timeout_s)
    again = run(command, folder / "again", limit, _environment(case))
    return _is_the_failure(case, again)


def _refails_alone(case: Case, folder: Path, limit: float) -> bool:
    """Run the repro where nothing that was beside it can be found."""
    alone = folder.with_name("alone")
    alone.mkdir()
    shutil.copy(folder / "repro.py", alone)
    hidden = folder.rename(folder.with_name("hidden"))
    try:
        command = [sys.executable, "-W", "ignore", "repro.py"]
        limit = min(limit, _limits(case).timeout_s)
        ran = run(command, alone, limit, _environment(case))
        return _is_the_failure(case, ran)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the repro may make it anew
        hidden.rename(folder)


def _is_the_failure(case: Case, ran: Ran) -> bool:
    if case.until in COMPARING:
        return ran.code != 0 and "accuracy" in ran.said.lower()
    if case.until in (Kind.IMA, Kind.CRASH) and ran.code < 0:
        return True
    return ran.code != 0 and re.search(case.message, ran.said) is not None


def floor(case: Case, out: Path, operators: int) -> float:
    """Measure what no search can save, in CPU-seconds.

    That is one fast check of the original, a fast check for each operator of the
    minimum and one more, all of its size, and one stock check of it. There is none for
    a hang, where all depends on the time limit.
    """
    if case.until == Kind.HANG:
        return float("nan")
    minimum = out / "minimal.pt2"
    whole = _check(case, case.model, case.inputs, "fast")
    small = _check(case, minimum, None, "fast")
    return whole + (operators + 1) * small + _check(case, minimum, None, "stock")


def _check(case: Case, model: Path, inputs: Path | None, build: str) -> float:
    """Measure a check in a warm child: the second one."""
    try:
        with _server(case, model, inputs) as server:
            compiler = Compiler(server, _limits(case), {"build": build})
            compiler.original()
            return compiler.original()[1].cpu_seconds
    except ShrinkfxError:
        return float("nan")
