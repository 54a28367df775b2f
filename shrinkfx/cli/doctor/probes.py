"""The probe of each part, made of the workers, checks and scripts that a run uses.

A probe returns the row of its part first, and then the rows of other parts that it has
tested. If a probe raises an exception, its part is broken.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import shrinkfx
from shrinkfx.check.client.orphans import run_command
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient, Limits, Meter
from shrinkfx.check.preflight import find_compiler
from shrinkfx.check.script import ScriptRunner
from shrinkfx.cli.doctor import parts
from shrinkfx.errors import LoadError, WorkerError
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.display_text import cut_text
from shrinkfx.protocol.answers import Done, Ending, Inspected, Row, Status
from shrinkfx.protocol.choices import Backend, Build, Probe
from shrinkfx.protocol.requests import CheckOptions, ExportSample, InspectEnvironment
from shrinkfx.system.host_memory import estimate_available_bytes
from shrinkfx.versions import __version__, how_tested

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


def list_versions() -> list[Row]:
    """List the versions of shrinkfx and Python, and the platform."""
    python = f"{platform.python_version()}, {sys.executable}"
    machine = f"{platform.system()} {platform.machine()}, {platform.release()}"
    tool = f"{__version__}, {Path(shrinkfx.__file__).parent}"
    rows = (("shrinkfx", tool), ("Python", python), ("platform", machine))
    return [Row(name, Status.WORKS, detail) for name, detail in rows]


def probe_torch() -> list[Row]:
    """Start a worker that imports torch and does nothing else."""
    if find_spec("torch") is None:
        problem = f"the module torch is not installed for {sys.executable}"
        return [parts.TORCH.missing(problem)]
    with Server(command=(*WORKER, "--versions"), start_timeout_s=_START_S) as server:
        version = server.ready.versions["torch"]
    return [parts.TORCH.works(f"{version}, {how_tested(version)}")]


def probe_compiler() -> list[Row]:
    """Find the C++ compiler and its version."""
    command, path = find_compiler({})
    if path is None:
        program = next(iter(command.split()), command)
        problem = "does not exist" if os.sep in program else "is not on the PATH"
        source = ", as set in the variable CXX" if os.environ.get("CXX") else ""
        return [parts.COMPILER.missing(f"{program} {problem}{source}")]
    arguments = [path, *shlex.split(command)[1:], "--version"]
    version = _output_of(arguments).partition("\n")[0]
    return [parts.COMPILER.works(f"{version}, {path}")]


def probe_worker(program: Path) -> list[Row]:
    """Start a worker without a program; it exports one and inspects the environment.

    The worker has guard pages if it starts with them.

    Args:
        program: path at which the worker saves the program.
    """
    try:
        guarded = Server(command=GUARDED_WORKER, start_timeout_s=_START_S)
    except (LoadError, WorkerError) as error:
        with Server(start_timeout_s=_START_S) as server:
            rows = _rows_without_program(server, program)
        return [*rows, parts.GUARD_PAGES.broken(error.reason)]
    with guarded as server:
        rows = _rows_without_program(server, program)
        why_not = server.ready.no_guard_pages
    if why_not:
        return [*rows, parts.GUARD_PAGES.broken(why_not)]
    return [*rows, parts.GUARD_PAGES.works("tensors end at inaccessible memory")]


def _rows_without_program(server: Server, program: Path) -> list[Row]:
    client = CheckClient(server, _limits())
    ending = client.ask(ExportSample(str(program)))
    if isinstance(ending.answer, Done):
        rows = [parts.WORKER.works("starts, and exports a program of two operators")]
    else:
        reason = f"cannot export a program: {_describe_ending(ending)}"
        rows = [parts.WORKER.broken(reason)]
    answer = client.ask(InspectEnvironment()).answer
    return [*rows, *(answer.rows if isinstance(answer, Inspected) else ())]


def probe_aotinductor(program: Path) -> list[Row]:
    """Compile, load and run the program as a check does, with the fast build."""
    with Server(model=program, start_timeout_s=_START_S) as server:
        client = CheckClient(server, _limits(), CheckOptions(build=Build.FAST))
        seen, _ = client.run_input_program()
        stock = seen
        if not seen.passed:
            stock, _ = client.with_stock_build().run_input_program()
    if not stock.passed:
        fast = parts.FAST_BUILD.not_tried(parts.AOTI.name)
        return [parts.AOTI.broken(_message(stock)), fast]
    works = parts.AOTI.works(
        "compiles, loads and runs the program; eager has the same result"
    )
    if reasons := client.builds.fallbacks:
        fell_back = f"not used: {cut_text(', '.join(reasons), _MAX_MESSAGE_CHARACTERS)}"
        return [works, parts.FAST_BUILD.broken(fell_back)]
    if seen is not stock:
        only_fast = f"fails only in the fast build: {_message(seen)}"
        return [works, parts.FAST_BUILD.broken(only_fast)]
    return [works, parts.FAST_BUILD.works("the AOTInductor check used it")]


def probe_verification(program: Path) -> list[Row]:
    """Run a script that compiles the program, as a run verifies a repro."""
    script = program.with_name("repro.py")
    script.write_text(_SCRIPT.format(program=program.name))
    with Server(environment=None, start_timeout_s=_START_S) as server:
        runner = ScriptRunner(server, _limits(), Meter())
        _require_pass("the script", runner.run([script, program], fresh=True))
    detail = "a script in an empty folder compiles and runs the program"
    return [parts.VERIFICATION.works(detail)]


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


def probe_interpreter(program: Path) -> list[Row]:
    """Compile the program for CUDA, and run it on Triton's interpreter."""
    with _server_for_cuda(program, Backend.INTERPRETER) as server:
        client = CheckClient(server, _limits())
        for probe in (Probe.REAL, Probe.COMPILE):
            seen, _ = client.with_options(probe=probe).run_input_program()
            _require_pass(f"probe {probe}", seen)
    detail = "the program's kernels compile, and run on Triton's interpreter"
    return [parts.INTERPRETER.works(detail)]


def probe_gpu(program: Path) -> list[Row]:
    """Compile the program for the first GPU, and run it there."""
    with _server_for_cuda(program, Backend.AOTI) as server:
        seen, _ = CheckClient(server, _limits()).run_input_program()
        _require_pass("AOTInductor", seen)
        detail = f"compiles and runs the program on {server.ready.gpu}"
        return [parts.ON_GPU.works(detail)]


def _server_for_cuda(program: Path, backend: Backend) -> Server:
    limit = _START_S
    return Server(model=program, device="cuda", backend=backend, start_timeout_s=limit)


def probe_report_page() -> list[Row]:
    """Import the modules that write a report."""
    if find_spec("jinja2") is None:
        return [parts.PAGE.missing("not installed: jinja2")]
    _output_of([sys.executable, "-P", "-c", "import shrinkfx.report.page.page"])
    return [parts.PAGE.works("jinja2 can be imported")]


def _limits() -> Limits:
    return Limits(_CHECK_S, estimate_available_bytes() * 3 // 4, _CLOCK_S)


def _require_pass(what: str, seen: Observation) -> None:
    """Raise unless a check has passed.

    Raises:
        Failed: the check has not passed.
    """
    if not seen.passed:
        raise ProbeFailed(f"{what}: {_message(seen)}")


def _message(seen: Observation) -> str:
    return cut_text(seen.in_words, _MAX_MESSAGE_CHARACTERS)


def _describe_ending(ending: Ending) -> str:
    """Describe the end of a child that returned no answer."""
    if raised := ending.raised:
        return cut_text(f"{raised.type}: {raised.message}", _MAX_MESSAGE_CHARACTERS)
    return f"it ended with {ending.how} {ending.code} in stage {ending.stage}"


def _output_of(command: Sequence[str]) -> str:
    """Run a command and return its output.

    Raises:
        Failed: the command fails, or does not end in time.
    """
    try:
        completed = run_command(command, TOOL_S)
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"it did not end within {TOOL_S:g} s") from None
    output = f"{completed.stdout}{completed.stderr}".strip()
    if completed.returncode:
        last = cut_text(output.rpartition("\n")[2], _MAX_MESSAGE_CHARACTERS)
        raise ProbeFailed(f"it ended with exit status {completed.returncode}: {last}")
    return output
