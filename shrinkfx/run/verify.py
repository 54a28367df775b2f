"""``shrinkfx verify``: run any repro in a clean environment, and report its failure."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.environments.choice import Agree, choose, refuse
from shrinkfx.environments.versions import public
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded
from shrinkfx.failure.readers.interpreter import name_error_unchecked_on_gpu
from shrinkfx.failure.readers.script import is_repro
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import Backend, Guard, Probe
from shrinkfx.report.header import (
    is_of_interpreter,
    read_failure,
    read_needs,
    read_torch,
)
from shrinkfx.report.summary import SUMMARY
from shrinkfx.run.across import (
    ByVersion,
    InterpreterResult,
    Others,
    by_version,
    classify_run,
    interpreters,
)
from shrinkfx.run.context import limits_of
from shrinkfx.run.issue import add_versions
from shrinkfx.wording import Flag, MessageText

TIMEOUT_S = 600.0
"""Default time limit for a repro, in seconds."""


@dataclass(frozen=True)
class Confirmed:
    """The outcome of a repro.

    Attributes:
        expected: the failure that its header states, or None if it states none.
        seen: the outcome, in one line.
        fails: it failed as stated; or at all, if no failure is stated.
        torch: the version of PyTorch that it ran on.
        across: the results with other interpreters.
        versions: the results by version of PyTorch, with this interpreter's; None if
            the repro ran with this interpreter only.
        interrupted: Ctrl-C ended the runs before each version was tested.
    """

    expected: Signature | None
    seen: str
    fails: bool
    torch: str = ""
    across: tuple[InterpreterResult, ...] = ()
    versions: ByVersion | None = None
    interrupted: bool = False


def run_repro(
    options: Options,
    listener: Listener,
    across: Sequence[str] = (),
    torch: str = "",
    agree: Agree = refuse,
) -> Confirmed:
    """Run the script at ``options.model`` once, in an empty folder.

    The files that ``summary.json`` names are copied to that folder; without a summary,
    those that the script names.

    Args:
        across: other interpreters to run it with.
        torch: other versions of PyTorch to run it on, or ``bisect``.
        agree: asks the user for consent to install these versions.

    Raises:
        UsageError: the file is not a repro of shrinkfx, or an interpreter does not
            exist.
        LoadError: the file cannot be read.
        InstallError: a version of PyTorch cannot be installed.
    """
    script, pythons = options.model, interpreters(across)
    text = _read(script)
    expected, guard = read_failure(text)
    if pythons or torch:
        option = Flag("--torch") if torch else Flag("--across")
        _require_runs_alone(text, guard, option)
    choice = None
    if torch:
        seen_on = public(read_torch(text))
        choice = choose(torch, _installed_torch(), seen_on, agree, listener)
    files = [script, *_needed_files(script, text)]
    notice = f"running {script.name} in an empty folder"
    for event in (NoteAdded(notice), ActivityStarted(notice)):
        listener(event)
    device = _device_in(text)
    with Server(
        environment=None,
        device=device,
        backend=backend_for(options, expected, text),
        arch=options.arch,
        command=WORKER if guard is Guard.OFF else GUARDED_WORKER,
    ) as bare:
        version = bare.ready.versions.get("torch", "")
        if choice and not choice.is_here(public(version)):
            reason = _TWO_VERSIONS.format(version, choice.here)
            raise UsageError(Flag("--torch"), reason)
        probe = Probe(options.probe or _probe(expected))
        limits = limits_of(options, TIMEOUT_S)
        runner = ScriptRunner(bare, limits, Meter(), probe, guard)
        interpreted = bare.ready.backend == Backend.INTERPRETER
        if interpreted:
            listener(NoteAdded(f"running on Triton's interpreter, for {options.arch}"))
        seen = runner.run(files, fresh=True, target=expected)
        guarded = guard is not Guard.OFF and not bare.ready.no_guard_pages
        outcome, fails = classify_run(seen, expected, checked=interpreted or guarded)
        here = InterpreterResult(sys.executable, version, outcome, fails)
        others = Others(bare, limits, files, expected, listener)
        results, interrupted = [*others.run(pythons)], False
        if choice is not None:
            on_versions, interrupted = others.run_on(choice, here)
            results += on_versions
    table = None
    if choice or results:
        released, needs = (choice.released, read_needs(text)) if choice else (None, "")
        table = by_version([here, *results], released, needs)
        add_versions(script, table.verdicts, listener)
    known = expected, outcome, bool(fails), version, tuple(results), table
    return Confirmed(*known, interrupted)


_TWO_VERSIONS = (
    " needs one torch in this environment: {} is imported, but {} is installed; "
    "change PYTHONPATH, or run shrinkfx in another environment"
)


def _installed_torch() -> str:
    try:
        return installed_version("torch")
    except PackageNotFoundError:
        reason = f"no torch is installed for {sys.executable}"
        advice = "run shrinkfx in an environment with PyTorch"
        raise LoadError("torch", reason, advice) from None


def _require_runs_alone(script: str, guard: Guard, option: Flag) -> None:
    """Refuse a repro that needs shrinkfx, because other environments lack shrinkfx."""
    if is_of_interpreter(script):
        raise UsageError(option, _NOT_ACROSS)
    if guard is not Guard.OFF:
        raise UsageError(option, _NOT_WITH_PAGES)


_NOT_WITH_PAGES = (
    " runs a repro without shrinkfx, but this repro fails reliably only with guard "
    "pages: install shrinkfx in the environment with the other PyTorch, and run "
    "PYTHON -m shrinkfx repro.py --verify"
)

_NOT_ACROSS = (
    " runs a repro without shrinkfx, but this repro was verified on the interpreter "
    "of shrinkfx: install shrinkfx in the environment with the other PyTorch, and run "
    "PYTHON -m shrinkfx repro.py --verify"
)


def backend_for(options: Options, expected: Signature | None, script: str) -> Backend:
    """Return the interpreter if a run on a GPU may not show the failure.

    The interpreter checks each access.
    """
    backend = Backend(options.backend)
    silent = expected is not None and name_error_unchecked_on_gpu(expected)
    if backend is Backend.AUTO and silent and is_of_interpreter(script):
        return Backend.INTERPRETER
    return backend


_CUDA = re.compile(r"""['"]cuda(?::(\d+))?['"]|\.cuda\((\d+)?""")
"""Text that occurs only in scripts for CUDA."""


def _device_in(script: str) -> str | None:
    """Return the GPU with the highest number that a script uses; None if it uses none.

    >>> _device_in('x.to("cuda:1") + y.to("cuda")'), _device_in("x")
    ('cuda:1', None)
    """
    matches = _CUDA.findall(script)
    numbers = [int(one or other or 0) for one, other in matches]
    return f"cuda:{max(numbers)}" if numbers else None


def _probe(expected: Signature | None) -> Probe:
    """Return the probe that shows a failure of this kind."""
    if expected is None:
        return Probe.REAL
    if expected.kind is Kind.COMPILE_ERROR:
        return Probe.COMPILE
    if expected.stage is Stage.COMPILE:
        return Probe.HINTS
    of_layout = expected.detail.startswith("layout of ")
    return Probe.CONTRACT if of_layout else Probe.REAL


def _needed_files(script: Path, text: str) -> list[Path]:
    """Return the files that a script needs: from its summary, else by their names."""
    folder = script.resolve().parent
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        named = set(summary["files"]) if summary["repro"] == script.name else None
    except (OSError, ValueError, KeyError, TypeError):
        named = None
    siblings = sorted(p for p in folder.iterdir() if p.name != script.name)
    if named is None:
        return [file for file in siblings if _named(file, text)]
    return [file for file in siblings if file.name in named and file.is_file()]


def _named(file: Path, text: str) -> bool:
    """Return whether a script names a file; it imports modules without the suffix."""
    name = file.stem if file.suffix == ".py" else file.name
    return file.is_file() and bool(re.search(rf"\b{re.escape(name)}\b", text))


def _read(script: Path) -> str:
    advice = MessageText(Flag("--verify"), " expects a repro.py")
    if script.suffix != ".py":
        raise UsageError(f"{script} is not a Python file: ", advice)
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(str(script), f"cannot be read: {error}", advice) from error
    if not is_repro(text):
        raise UsageError(
            f"{script} was not written by shrinkfx: its header states no failure. "
            f"To run any script: python {script}"
        )
    expected, _ = read_failure(text)
    if expected and expected.kind is Kind.CHECK:
        raise UsageError(
            f"{script}: only its ",
            Flag("--check"),
            " command can tell whether it fails",
        )
    return text
