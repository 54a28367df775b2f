"""``shrinkfx doctor``: test which parts of shrinkfx work in this environment.

``PARTS`` lists the parts in the order in which they are tested. The probes use the
workers, checks and scripts that a run uses.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import shrinkfx
from shrinkfx.check.client.orphans import run_command
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient, Limits, Meter
from shrinkfx.check.preflight import find_compiler
from shrinkfx.check.script import ScriptRunner
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.errors import (
    REPORT_BUG,
    SEE_DOCTOR,
    LoadError,
    ShrinkfxError,
    StorageError,
    WorkerError,
)
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Done, Inspected, Row, Status
from shrinkfx.protocol.choices import Backend, Build, Probe
from shrinkfx.protocol.requests import CheckOptions, ExportSample, InspectEnvironment
from shrinkfx.system import scratch
from shrinkfx.system.processes import estimate_available_bytes
from shrinkfx.versions import RANGE, __version__, how_tested

SCHEMA = 1
"""Version of the JSON object, one higher after a key was removed or redefined."""

_PART, _STATUS = 26, 11
"""Widths of the first two columns."""

_DESCRIPTION = """\
Test each part of shrinkfx in this environment. List the parts that work and those
that are missing or broken, what you lose without them and what to do. This takes one
to two minutes.

exit code: 0 if CPU programs can be reduced and their repros verified, else 2
"""

_START_S = 60.0
"""Time limit for the start of a worker, in seconds of its own time."""

_CHECK_S, _CLOCK_S = 60.0, 180.0
"""Time limits of a check, in seconds of its own time and of wall-clock time."""

TOOL_S = 60.0
"""Time limit of a tool, in seconds of wall-clock time."""

_MAX_MESSAGE_CHARACTERS = 300
"""Maximum number of characters of a message of a check or a tool."""


class ProbeFailed(Exception):
    """A part does not work; the message describes the failure."""

    status = Status.BROKEN


class PartMissing(ProbeFailed):
    """A part is not installed."""

    status = Status.MISSING


@dataclass(frozen=True)
class Part:
    """A part of the environment.

    Attributes:
        cost: what the user loses if the part does not work.
        remedy: what to do if the part does not work.
        probe: tests the part with a program at this path; returns its detail or its
            row. Any exception means that the part does not work.
        needs: names of parts that must work before the part is tested.
    """

    name: str
    cost: str
    remedy: str
    probe: Callable[[Path], str | Row]
    needs: Sequence[str] = ()

    def test(self, program: Path, working: Sequence[str]) -> Row:
        """Test the part, unless it needs a part that does not work."""
        for name in self.needs:
            if name not in working:
                detail = f"needs {name}: see that row"
                return Row(self.name, Status.NOT_TRIED, detail)
        try:
            tested = self.probe(program)
        except Exception as error:  # noqa: BLE001 - any exception makes a row
            return self._describe_failure(error)
        if isinstance(tested, Row):
            return tested
        return Row(self.name, Status.WORKS, tested)

    def _describe_failure(self, error: Exception) -> Row:
        row = Row(self.name, Status.BROKEN, str(error), self.cost, self.remedy)
        match error:
            case ProbeFailed():
                return replace(row, status=error.status)
            case LoadError() | StorageError():
                subject = "" if error.subject == self.name else f"{error.subject}: "
                advice = error.advice.replace(SEE_DOCTOR, "").strip()
                detail = f"{subject}{error.reason}"
                return replace(row, detail=detail, remedy=advice or self.remedy)
            case WorkerError() if error.log.strip():
                last = error.log.strip().splitlines()[-1]
                return replace(row, detail=f"{error.reason}; its last line: {last}")
            case ShrinkfxError():
                return row
        return replace(row, detail=f"{type(error).__name__}: {error}")


def probe_torch(_: Path) -> str:
    """Start a worker that imports torch and does nothing else."""
    if find_spec("torch") is None:
        raise PartMissing(f"the module torch is not installed for {sys.executable}")
    with Server(command=(*WORKER, "--versions"), start_timeout_s=_START_S) as server:
        version = server.ready.versions["torch"]
    return f"{version}, {how_tested(version)}"


def probe_compiler(_: Path) -> str:
    """Find the C++ compiler and its version."""
    command, path = find_compiler({})
    if path is None:
        program = next(iter(command.split()), command)
        problem = "does not exist" if os.sep in program else "is not on the PATH"
        source = ", as set in the variable CXX" if os.environ.get("CXX") else ""
        raise PartMissing(f"{program} {problem}{source}")
    arguments = [path, *shlex.split(command)[1:], "--version"]
    return f"{run_tool(arguments).partition(chr(10))[0]}, {path}"


def probe_report_page(_: Path) -> str:
    """Import the modules that write a report."""
    if find_spec("jinja2") is None:
        raise PartMissing("not installed: jinja2")
    run_tool([sys.executable, "-P", "-c", "import shrinkfx.report.page.page"])
    return "jinja2 can be imported"


def probe_worker(program: Path) -> str:
    """Start a worker without a program, which exports one."""
    with Server(start_timeout_s=_START_S) as server:
        ending = CheckClient(server, _limits()).ask(ExportSample(str(program)))
    if isinstance(ending.answer, Done):
        return "starts, and exports a program of two operators"
    reason = f"it ended with {ending.how} {ending.code} in stage {ending.stage}"
    if ending.raised:
        reason = _cut(f"{ending.raised.type}: {ending.raised.message}")
    raise ProbeFailed(f"cannot export a program: {reason}")


@cache
def _inspect(_: Path) -> Sequence[Row]:
    with Server(start_timeout_s=_START_S) as server:
        answer = CheckClient(server, _limits()).ask(InspectEnvironment()).answer
    return answer.rows if isinstance(answer, Inspected) else ()


def find_inspected_row(name: str, program: Path) -> Row:
    """Return the row of a part that only the worker can test."""
    for row in _inspect(program):
        if row.part == name:
            return row
    raise ProbeFailed("the worker did not report it")


def probe_guard_pages(_: Path) -> str:
    """Start a worker with guard pages."""
    with Server(command=GUARDED_WORKER, start_timeout_s=_START_S) as server:
        if why_not := server.ready.no_guard_pages:
            raise ProbeFailed(why_not)
    return "tensors end at inaccessible memory"


def run_sample(
    program: Path,
    detail: str,
    build: Build = Build.STOCK,
    device: str | None = None,
    backend: Backend = Backend.AUTO,
    probes: Sequence[Probe | None] = (None,),
) -> str:
    """Check the program as a run checks its input program."""
    with Server(
        model=program, device=device, backend=backend, start_timeout_s=_START_S
    ) as server:
        client = CheckClient(server, _limits(), CheckOptions(build=build))
        for probe in probes:
            seen, _ = client.with_options(probe=probe).run_input_program()
            _require_pass(seen, f"probe {probe}: " if probe else "")
        if reasons := client.builds.fallbacks:
            raise ProbeFailed(f"not used: {_cut(', '.join(reasons))}")
        return detail.format(gpu=server.ready.gpu)


def probe_verification(program: Path) -> str:
    """Run a script that compiles the program, as a run verifies a repro."""
    script = program.with_name("repro.py")
    script.write_text(_SCRIPT.format(program=program.name))
    with Server(environment=None, start_timeout_s=_START_S) as server:
        runner = ScriptRunner(server, _limits(), Meter())
        _require_pass(runner.run([script, program], fresh=True), "the script: ")
    return "a script in an empty folder compiles and runs the program"


_SCRIPT = """\
import torch
import torch._inductor

program = torch.export.load("{program}")
args, kwargs = program.example_inputs
compiled = torch._inductor.aoti_load_package(
    torch._inductor.aoti_compile_and_package(program)
)
torch.testing.assert_close(compiled(*args), program.module()(*args))
"""


def _limits() -> Limits:
    return Limits(_CHECK_S, estimate_available_bytes() * 3 // 4, _CLOCK_S)


def _require_pass(seen: Observation, prefix: str = "") -> None:
    """Raise ``ProbeFailed`` unless a check has passed."""
    if not seen.passed:
        raise ProbeFailed(f"{prefix}{_cut(seen.in_words)}")


def _cut(text: str) -> str:
    most = _MAX_MESSAGE_CHARACTERS
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def run_tool(command: Sequence[str]) -> str:
    """Run a command and return its output.

    Raises:
        ProbeFailed: the command fails, or does not end in time.
    """
    try:
        completed = run_command(command, TOOL_S)
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"it did not end within {TOOL_S:g} s") from None
    output = f"{completed.stdout}{completed.stderr}".strip()
    if completed.returncode:
        last = _cut(output.rpartition("\n")[2])
        raise ProbeFailed(f"it ended with exit status {completed.returncode}: {last}")
    return output


_INSTALL_TORCH = f"Install torch {RANGE} for {sys.executable}."
_REPORT = f"If every row above works, {REPORT_BUG}."
_FIRST = "PyTorch", "C++ compiler"
_WORKER = (*_FIRST, "worker")
_CUDA = (*_WORKER, "Triton", "ptxas")
ESSENTIAL = (*_WORKER, "AOTInductor", "verification")
"""Parts that every run of a CPU program needs."""

INSPECTED = "Triton", "ptxas", "GPU", "compute-sanitizer", "private names of PyTorch"
"""Parts that only the worker can test; it writes their costs and remedies itself."""

PARTS = (
    Part("PyTorch", "Nothing works without it.", _INSTALL_TORCH, probe_torch),
    Part(
        "C++ compiler",
        "AOTInductor cannot compile without it.",
        "Install g++, or set CXX to the path of a compiler.",
        probe_compiler,
    ),
    Part(
        "report.html",
        "A run writes no report.html.",
        f"Run {sys.executable} -m pip install jinja2.",
        probe_report_page,
    ),
    Part(
        "worker",
        "No program can be read.",
        f"{_INSTALL_TORCH} {_REPORT}",
        probe_worker,
        _FIRST,
    ),
    *(
        Part(name, "", "", partial(find_inspected_row, name), _WORKER)
        for name in INSPECTED
    ),
    Part(
        "guard pages",
        "With --until ima, an access just outside a tensor may go unnoticed on the "
        "CPU.",
        "Run shrinkfx on Linux with a working g++.",
        probe_guard_pages,
        _WORKER,
    ),
    Part(
        "AOTInductor",
        "No CPU program can be reduced.",
        _REPORT,
        partial(
            run_sample,
            detail="compiles, loads and runs the program; eager has the same result",
        ),
        _WORKER,
    ),
    Part(
        "fast build",
        "Each check uses a normal AOTInductor build, which takes longer.",
        _INSTALL_TORCH,
        partial(run_sample, detail="builds and runs the program", build=Build.FAST),
        (*_WORKER, "AOTInductor"),
    ),
    Part(
        "verification",
        "A repro cannot be verified, so a run ends with code 5.",
        _REPORT,
        probe_verification,
        _WORKER,
    ),
    Part(
        "CUDA without a GPU",
        "CUDA programs can only be reduced on a GPU.",
        f"Install torch {RANGE} and the Triton version that matches it.",
        partial(
            run_sample,
            detail="the program's kernels compile, and run on Triton's interpreter",
            device="cuda",
            backend=Backend.INTERPRETER,
            probes=(Probe.REAL, Probe.COMPILE),
        ),
        _CUDA,
    ),
    Part(
        "CUDA on a GPU",
        "CUDA programs can only be checked on the interpreter: --backend interpreter.",
        "Install a driver and a torch build that support the GPU.",
        partial(
            run_sample,
            detail="compiles and runs the program on {gpu}",
            device="cuda",
            backend=Backend.AOTI,
        ),
        (*_CUDA, "GPU"),
    ),
)


def examine(parts: Sequence[Part] = PARTS) -> Iterator[Row]:
    """List the versions, then test each part and yield its row."""
    python = f"{platform.python_version()}, {sys.executable}"
    machine = f"{platform.system()} {platform.machine()}, {platform.release()}"
    tool = f"{__version__}, {Path(shrinkfx.__file__).parent}"
    for name, detail in (("shrinkfx", tool), ("Python", python), ("platform", machine)):
        yield Row(name, Status.WORKS, detail)
    working: list[str] = []
    with scratch.make_scratch_folder("doctor") as folder:
        for part in parts:
            row = part.test(Path(folder) / "program.pt2", working)
            if row.works:
                working.append(row.part)
            yield row


def main(words: Sequence[str]) -> int:
    """Test each part, print its row, and return the exit code."""
    arguments = _parser().parse_args(words)
    rows: list[Row] = []
    try:
        with treat_sigterm_as_ctrl_c():
            if not arguments.json:
                print(f"{'part':{_PART}}{'status':{_STATUS}}detail")
            for row in map(_shorten_row, examine()):
                rows.append(row)
                if not arguments.json:
                    _print(row)
    except KeyboardInterrupt:
        print("shrinkfx doctor: interrupted", file=sys.stderr)
        return 4
    except (ShrinkfxError, OSError) as error:  # no folder for temporary files
        print(f"shrinkfx doctor: {error}", file=sys.stderr)
        return 2
    working = {row.part for row in rows if row.works}
    can_reduce = working >= {*ESSENTIAL}
    if arguments.json:
        table = {"schema": SCHEMA, "works": can_reduce}
        print(json.dumps({**table, "rows": [*map(asdict, rows)]}, indent=2))
    elif can_reduce:
        print("CPU programs can be reduced and verified here.")
    else:
        failing = [
            row.part
            for row in rows
            if row.part in ESSENTIAL and row.status in (Status.MISSING, Status.BROKEN)
        ]
        print(f"No program can be reduced here: see {' and '.join(failing)}.")
    return 0 if can_reduce else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shrinkfx doctor",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _shorten_row(row: Row) -> Row:
    """Abbreviate the home folder in a row, because users share the table."""
    return replace(
        row,
        detail=_shorten_text(row.detail),
        cost=_shorten_text(row.cost),
        remedy=_shorten_text(row.remedy),
    )


def _shorten_text(text: str) -> str:
    home = str(Path.home())
    return " ".join((text.replace(home, "~") if len(home) > 1 else text).split())


def _print(row: Row) -> None:
    """Print a row: the detail, and below it the cost and the remedy, if any."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    column = max(40, width - _PART - _STATUS)
    lines = []
    for text in (row.detail, row.cost, row.remedy):
        lines += textwrap.wrap(text, column, break_on_hyphens=False)
    first, *others = lines or [""]
    print(f"{row.part:{_PART}}{row.status:{_STATUS}}{first}".rstrip(), flush=True)
    for line in others:
        print(f"{'':{_PART + _STATUS}}{line}", flush=True)
