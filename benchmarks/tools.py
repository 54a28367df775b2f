"""Run a tool on a failing program and measure it; run shrinkfx."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits, Meter  # noqa: E402
from shrinkfx.check.script import ScriptRunner  # noqa: E402
from shrinkfx.errors import ShrinkfxError  # noqa: E402
from shrinkfx.failure.signature import Kind  # noqa: E402
from shrinkfx.protocol.choices import Build, Guard  # noqa: E402
from shrinkfx.protocol.requests import CheckOptions  # noqa: E402


@dataclass(frozen=True)
class Case:
    """A failing program.

    Attributes:
        message: a pattern for what the failure says.
        tries: runs in which a failure of this kind shows, if only in some.
    """

    name: str
    model: Path
    until: str
    message: str = ""
    preloads: tuple[str, ...] = ()
    inputs: Path | None = None
    options: tuple[str, ...] = ()
    tries: int = 1


@dataclass(frozen=True)
class Result:
    """What a tool made of a case.

    Attributes:
        ended: how, if not well.
        search: CPU-seconds of the search alone.
        total: CPU-seconds in all.
        wall: seconds, on a machine that other jobs shared.
        refails: its repro fails in the same way.
        self_contained: so it does in an empty folder, without anything else.
        parts: of ours: the total by part of the run, as ``summary.json`` has it.
        outcome: of the peer: an ``Outcome``.
        flags: of the peer: what its launcher was given.
        measured: the day, and the revision of the code.
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
    outcome: str = ""
    flags: tuple[str, ...] = ()
    measured: str = ""


@dataclass(frozen=True)
class Ran:
    """A process tree that has ended."""

    code: int
    cpu: float
    wall: float
    said: str
    cut: bool = False


def run(
    command: Sequence[str],
    folder: Path,
    limit: float,
    environment: Mapping[str, str] | None = None,
    caches: Path | None = None,
) -> Ran:
    """Run a command in a tool's folder of a case, and measure its tree.

    It is cut off after ``limit`` CPU-seconds, or after twenty times as many seconds.
    Its caches are those that the tool has for all cases, beside the cases' folders, if
    no others are given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    caches = caches or caches_of(folder)
    own = _variables_of(caches)
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
        code, usage, cut = _wait(process, limit)
    cpu = usage.ru_utime + usage.ru_stime
    said = log.read_text(errors="replace")
    return Ran(code, cpu, time.monotonic() - start, said, cut)


def _variables_of(caches: Path) -> dict[str, str]:
    (caches / "tmp").mkdir(parents=True, exist_ok=True)
    return {
        "TMPDIR": str(caches / "tmp"),  # where Inductor puts precompiled headers
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "XDG_CACHE_HOME": str(caches),
    }


def caches_of(folder: Path) -> Path:
    return folder.parents[1] / f"caches_of_{folder.name}"


def _wait(process: subprocess.Popen[bytes], limit: float) -> tuple[int, Any, bool]:
    stop, cut = time.monotonic() + 20 * limit, False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage, cut
        if time.monotonic() > stop or _cpu_of(process.pid) > limit:
            os.killpg(process.pid, signal.SIGKILL)
            cut = True
        time.sleep(1)


def written_bytes(pid: int) -> int:
    """Read what a process has written, and its children that have ended."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def _cpu_of(session: int) -> float:
    """Add up the CPU-seconds of a session's processes, and of those they waited for."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def with_shrinkfx(case: Case, folder: Path, limit: float) -> Result:
    """Run shrinkfx; what it leaves is in ``out`` below the folder."""
    out = folder / "out"
    command = [sys.executable, "-W", "ignore", "-m", "shrinkfx", str(case.model)]
    command += ["--until", case.until, "--out", str(out), *case.options]
    for preload in case.preloads:
        command += ["--preload", preload]
    if case.inputs:
        command += ["--inputs", str(case.inputs)]
    ran = run(command, folder, limit, _to_find_shrinkfx())
    return _result(ran, out)


def capture(
    script: Path, folder: Path, limit: float, variables: Mapping[str, str]
) -> Result:
    """Run shrinkfx on a failing script; what it leaves is in ``out``."""
    out = folder / "out"
    command = [sys.executable, "-W", "ignore", "-m", "shrinkfx", "--capture"]
    command += ["--out", str(out), sys.executable, "-W", "ignore", str(script)]
    return _result(
        run(command, folder, limit, {**variables, **_to_find_shrinkfx()}), out
    )


def _result(ran: Ran, out: Path) -> Result:
    """Read what a run of shrinkfx wrote into its folder."""
    if not (out / "summary.json").exists():
        last = (ran.said.strip() or "nothing").splitlines()[-1]
        return Result(ended(ran, last), total=ran.cpu, wall=ran.wall)
    summary = json.loads((out / "summary.json").read_text())
    verified = summary["verified"]
    fails = verified["runs"] == verified["failed"] > 0
    return Result(
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
    )


def _to_find_shrinkfx() -> dict[str, str]:
    """Give the variables that a bare checkout needs; one that is installed has none."""
    if any(distributions(name="shrinkfx")):
        return {}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path}


def ended(ran: Ran, last: str) -> str:
    if ran.cut:
        return "cut off: too many CPU-seconds, or too long"
    if ran.code < 0:
        return f"died of {signal.Signals(-ran.code).name}"
    return "" if ran.code == 0 else last[:120]


def server_of(
    case: Case,
    model: Path,
    inputs: Path | None = None,
    command: Sequence[str] = WORKER,
) -> Server:
    return Server(
        model=model,
        inputs=inputs,
        preloads=case.preloads,
        environment=environment_of(case),
        command=command,
    )


def limits_of(case: Case) -> Limits:
    seconds = _HANGS_S if case.until == Kind.HANG else 600.0
    return Limits(seconds, 8 << 30)


_HANGS_S = 60.0
"""Seconds after which a program that should hang is believed to."""


def environment_of(case: Case) -> dict[str, str]:
    checks = case.until == Kind.CHECK_INPUTS
    return {"AOTI_RUNTIME_CHECK_INPUTS": "1"} if checks else {}


def floor(case: Case, folder: Path) -> dict[str, float]:
    """Measure what a verified result cannot cost less than, in CPU-seconds by part.

    ``start``: one worker that has loaded the program. ``original``: one fast check of
    that. ``smaller``: a fast check for each operator of the minimum and one more, all
    of its size. ``repro``: one fresh run of the repro, which is the stock build of the
    minimum. Nothing for a hang, where all depends on the time limit, and where one of
    them could not be measured.

    Args:
        folder: of shrinkfx, with its output.
    """
    if case.until == Kind.HANG:
        return {}
    summary = json.loads((folder / "out" / "summary.json").read_text())
    try:
        with mock.patch.dict(os.environ, _variables_of(caches_of(folder))):
            start, original = _warm_check(case, case.model, case.inputs)
            _, smaller = _warm_check(case, folder / "out" / "minimal.pt2", None)
            repro = _fresh_run(case, folder / "out", summary)
    except ShrinkfxError as error:
        print(f"{case.name} has no floor: {error}", file=sys.stderr)
        return {}
    checks = summary["operators"]["after"] + 1
    parts = {"start": start, "original": original, "smaller": checks * smaller}
    return {**parts, "repro": repro}


def _warm_check(case: Case, model: Path, inputs: Path | None) -> tuple[float, float]:
    """Measure the start of a worker, and a check in a warm child.

    That is the third one: before the second, the server makes ready what all share.
    """
    with server_of(case, model, inputs) as server:
        compiler = CheckClient(server, limits_of(case), CheckOptions(build=Build.FAST))
        for _ in range(2):
            compiler.run_input_program()
        return server.ready.cpu_seconds, compiler.run_input_program()[1].cpu_seconds


def _fresh_run(case: Case, out: Path, summary: Mapping[str, Any]) -> float:
    pages = summary["guard_pages"] or {}
    guard = Guard.OFF
    if pages.get("repro_needs_them"):
        guard = Guard.BEFORE if "before" in pages["are"] else Guard.AFTER
    command = GUARDED_WORKER if guard is not Guard.OFF else WORKER
    with Server(environment=None, command=command) as bare:
        runner = ScriptRunner(bare, limits_of(case), Meter(), guard=guard)
        runner.run([out / name for name in summary["files"]], fresh=True)
        return runner.meter.cpu_seconds
