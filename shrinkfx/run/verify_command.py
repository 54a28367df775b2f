"""``shrinkfx verify``: run any repro in a clean environment, and report its failure.

``--across`` and ``--torch`` also run it with other versions of PyTorch.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.environments import Agree, Choice, choose, refuse
from shrinkfx.check.oracle import Limits, Meter, RequestHandler
from shrinkfx.check.script import ScriptRunner
from shrinkfx.check.torch_versions import order, public, summarize
from shrinkfx.errors import InstallError, LoadError, UsageError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded, ignore_event
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.device import name_error_unchecked_on_gpu
from shrinkfx.failure.readers.script import (
    RAN_TO_END_PREFIX,
    convert_script_ending,
    is_repro,
)
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.options.options import Options
from shrinkfx.program.display_text import cut_text, first_line
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Backend, Guard, Probe
from shrinkfx.protocol.requests import Request, RunCommand
from shrinkfx.report.header import (
    is_of_interpreter,
    read_failure,
    read_needs,
    read_torch,
)
from shrinkfx.run.context import limits_of
from shrinkfx.run.explaining import add_versions
from shrinkfx.system import scratch
from shrinkfx.system.folders import SUMMARY
from shrinkfx.system.sandbox import Sandbox

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
        _require_runs_alone(text, guard, "--torch" if torch else "--across")
    choice = None
    if torch:
        seen_on = public(read_torch(text))
        choice = choose(torch, _installed_torch(), seen_on, agree, listener)
    files = [script, *_needed_files(script, text)]
    notice = f"running {script.name} in an empty folder"
    for event in (NoteAdded(notice), ActivityStarted(notice)):
        listener(event)
    sandbox = Sandbox.choose(
        options.sandbox, lambda text: listener(NoteAdded(text)), readable=files
    )
    device = _device_in(text)
    with Server(
        environment=None,
        sandbox=sandbox,
        device=device,
        backend=backend_for(options, expected, text),
        arch=options.arch,
        command=WORKER if guard is Guard.OFF else GUARDED_WORKER,
    ) as bare:
        version = bare.ready.versions.get("torch", "")
        if choice and not choice.is_here(public(version)):
            raise UsageError(_TWO_VERSIONS.format(version, choice.here))
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
    "--torch needs one torch in this environment: {} is imported, but {} is "
    "installed; change PYTHONPATH, or run shrinkfx in another environment"
)


def _installed_torch() -> str:
    try:
        return installed_version("torch")
    except PackageNotFoundError:
        reason = f"no torch is installed for {sys.executable}"
        advice = "run shrinkfx in an environment with PyTorch"
        raise LoadError("torch", reason, advice) from None


def _require_runs_alone(script: str, guard: Guard, option: str) -> None:
    """Refuse a repro that needs shrinkfx, because other environments lack shrinkfx."""
    if is_of_interpreter(script):
        need = "was verified on the interpreter of shrinkfx"
    elif guard is not Guard.OFF:
        need = "fails reliably only with guard pages"
    else:
        return
    raise UsageError(_NEEDS_SHRINKFX.format(option, need))


_NEEDS_SHRINKFX = (
    "{} runs a repro without shrinkfx, but this repro {}: install shrinkfx in the "
    "environment with the other PyTorch, and run PYTHON -m shrinkfx repro.py --verify"
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
    advice = "--verify expects a repro.py"
    if script.suffix != ".py":
        raise UsageError(f"{script} is not a Python file: {advice}")
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
            f"{script}: only its --check command can tell whether it fails"
        )
    return text


@dataclass(frozen=True)
class InterpreterResult:
    """The result of a repro with another interpreter.

    Attributes:
        torch: its version of PyTorch, or ''.
        seen: the outcome of the repro, in one line.
        fails: True if the repro failed as its header states, or in any way if the
            header states no failure; False if it passed; None for any other result.
    """

    python: str
    torch: str
    seen: str
    fails: bool | None

    def __str__(self) -> str:
        where = f"torch {self.torch}" if self.torch else self.python
        verdict = {True: "fails", False: PASSES, None: "cannot tell"}[self.fails]
        if self.python == sys.executable:
            return f"{where}: {verdict} (this interpreter)"
        seen = "" if self.fails is False else f": {first_line(self.seen)}"
        return f"{where}: {verdict}{seen}"


@dataclass(frozen=True)
class ByVersion:
    """The results of a repro on several versions of PyTorch, the oldest first.

    Attributes:
        runs: one for each interpreter; interpreters without PyTorch come last.
        sentence: states on which versions the repro fails.
        needs: packages that the repro needs and that were not installed, or ''.
    """

    runs: tuple[InterpreterResult, ...]
    sentence: str
    needs: str = ""

    @property
    def verdicts(self) -> dict[str, bool | None]:
        """Return the verdict of each version."""
        return verdicts(self.runs)


def by_version(
    runs: Iterable[InterpreterResult],
    released: Sequence[str] | None = None,
    needs: str = "",
) -> ByVersion:
    """Sort runs by version, and summarize them.

    Args:
        released: all existing versions; None if they are not known.
        needs: as in ``ByVersion``.
    """
    known = sorted(runs, key=lambda run: (not run.torch, order(run.torch)))
    return ByVersion(tuple(known), summarize(verdicts(known), released), needs)


def verdicts(runs: Sequence[InterpreterResult]) -> dict[str, bool | None]:
    """Return the verdicts by release, or by build if a release has several builds."""
    names = [public(run.torch) for run in runs]
    by_name: dict[str, bool | None] = {}
    for name, run in zip(names, runs, strict=True):
        key = name if names.count(name) == 1 else run.torch
        if key:  # no verdict if two interpreters with one version disagree
            same = by_name.get(key, run.fails) is run.fails
            by_name[key] = run.fails if same else None
    return by_name


PASSES = "passes"


def classify_run(
    seen: Observation, expected: Signature | None, *, checked: bool = False
) -> tuple[str, bool | None]:
    """Classify the run of a repro.

    Args:
        expected: the failure that its header states; None if it states none.
        checked: the run could detect an out-of-bounds access.

    Returns:
        The outcome in one line; and True if the repro failed as stated, or at all if
        nothing is stated, False if it passed, None if it ended in another way.
    """
    failing = seen.signature
    if failing or seen.invalid or seen.unresolved:
        fails = expected.admits(failing) if expected else failing is not None
        return seen.in_words, fails or None
    if RAN_TO_END_PREFIX in seen.log and not checked:
        return (
            f"{RAN_TO_END_PREFIX}no check was active here, so the failure may go "
            "unnoticed",
            None,
        )
    return PASSES, False


def interpreters(named: Sequence[str]) -> list[str]:
    """Find interpreters by path, or by name on PATH as a shell does.

    Raises:
        UsageError: an interpreter does not exist.
    """
    paths = []
    for name in named:
        path = shutil.which(name)
        if path is None:
            raise UsageError(
                f"--across {name}: no such interpreter; name the Python of an "
                "environment with another PyTorch, as in --across "
                "/envs/2.11/bin/python"
            )
        # Not resolved, because the link to Python is what selects the environment.
        paths.append(str(Path(path).absolute()))
    return paths


@dataclass(frozen=True)
class Others:
    """Runs a repro with other interpreters, each time in an empty folder.

    Attributes:
        server: runs commands, without environment variables that tune PyTorch.
        expected: the failure that the header states, or None.
        listener: receives the result of each interpreter.
    """

    server: RequestHandler
    limits: Limits
    files: Sequence[Path]
    expected: Signature | None
    listener: Listener = ignore_event

    def run(self, pythons: Sequence[str]) -> Iterator[InterpreterResult]:
        """Run the repro with each interpreter, and yield the results."""
        for python in pythons:
            self.listener(
                ActivityStarted(f"running {self.files[0].name} with {python}")
            )
            ending = self._ask(python, "-c", _PRINT_VERSION)
            version = ending.log.strip().rpartition("\n")[2]
            if ending.how != "exit" or ending.code or ending.raised:
                why = (
                    cut_text(version)
                    or f"the process ended with {ending.how} {ending.code}"
                )
                one = InterpreterResult(
                    python, "", f"does not import torch: {why}", None
                )
            else:
                one = self._seen(python, version)
            self.listener(NoteAdded(str(one)))
            yield one

    def run_on(
        self, choice: Choice, here: InterpreterResult
    ) -> tuple[list[InterpreterResult], bool]:
        """Run the repro on the chosen versions of PyTorch except this interpreter's.

        Args:
            here: the result with this interpreter.

        Returns:
            The results, and whether Ctrl-C ended the runs early.
        """
        runs: dict[str, InterpreterResult] = {}

        def fails(version: str) -> bool | None:
            if choice.is_here(version):
                return here.fails
            if version not in runs:
                try:
                    (runs[version],) = self.run([choice.python(version)])
                except InstallError as error:
                    runs[version] = InterpreterResult("", version, error.reason, None)
                    self.listener(NoteAdded(str(runs[version])))
            return runs[version].fails

        try:
            choice.visit(fails)
        except KeyboardInterrupt:
            return [*runs.values()], True
        return [*runs.values()], False

    def _seen(self, python: str, version: str) -> InterpreterResult:
        script = self.files[0]
        ending = self._ask(python, "-X", "faulthandler", script.name)
        seen = classify_ending(
            convert_script_ending(
                ending, script.read_text(encoding="utf-8"), script.name
            )
        )
        return InterpreterResult(python, version, *classify_run(seen, self.expected))

    def _ask(self, python: str, *arguments: str) -> Ending:
        with scratch.make_scratch_folder("repro") as folder:
            for file in self.files:
                shutil.copy(file, folder)
            # PYTHONPATH is for this interpreter, and may break another one.
            words = ("env", "-u", "PYTHONPATH", python, *arguments)
            request = Request(
                RunCommand(words, folder),
                timeout_s=self.limits.timeout_s,
                max_rss_bytes=self.limits.max_rss_bytes,
            )
            return self.server.ask(request)


_PRINT_VERSION = "import torch; print(torch.__version__)"
