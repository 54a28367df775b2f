"""The Python API of shrinkfx.

``minify`` reduces a failing program, with the options as keywords. The other functions
take an ``Options`` record or the folder of a run: ``reduce`` and ``sweep`` start a run,
and ``resume`` continues one; ``capture`` finds the failing program of a script;
``explain``, ``report``, ``retrieve``, ``runs``, ``past`` and ``verify`` work with the
results of earlier runs.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from shrinkfx.check.command import Command
from shrinkfx.check.environments import Agree, refuse
from shrinkfx.check.preflight import (
    require_command,
    require_compiler,
    require_inputs,
    require_preloads,
    require_program,
    require_script,
)
from shrinkfx.errors import (
    LoadError,
    NotCuttable,
    NothingToReduce,
    NotReproducible,
    UsageError,
)
from shrinkfx.events import (
    ActivityStarted,
    Listener,
    NoteAdded,
    RunStarted,
    ignore_event,
)
from shrinkfx.events.terminal import Quiet, make_display
from shrinkfx.failure.signature import Kind
from shrinkfx.intake.capture import script_capture
from shrinkfx.intake.capture.script_capture import find_capture_folder, find_unreduced
from shrinkfx.intake.dump import is_dump
from shrinkfx.intake.in_memory import ObjectInput, save_object, watch_session
from shrinkfx.intake.resolve_input import resolve_program
from shrinkfx.options.options import (
    REQUIRED_VARIABLES,
    Options,
    Sweeping,
    parse_kept_kinds,
)
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.protocol.flags import list_record_options, require_valid_values
from shrinkfx.protocol.source import is_source_archive
from shrinkfx.run import explaining
from shrinkfx.run import folder as folders
from shrinkfx.run.explaining import Explained
from shrinkfx.run.folder import (
    Past,
    Reduction,
    Run,
    State,
    create_run_folder,
    raise_storage_errors,
)
from shrinkfx.run.pipeline import run
from shrinkfx.run.retrieve import Retrieved, find_candidate
from shrinkfx.run.retrieve import retrieve as retrieve_from
from shrinkfx.run.sweep import Swept, run_sweep
from shrinkfx.run.verify_command import Confirmed, run_repro
from shrinkfx.search.strategy import available as available_strategies
from shrinkfx.search.strategy import choose
from shrinkfx.system.folders import JOURNAL

__all__ = [
    "Caught",
    "Confirmed",
    "Explained",
    "Options",
    "Past",
    "Reduction",
    "Retrieved",
    "Run",
    "State",
    "Sweeping",
    "Swept",
    "available_strategies",
    "capture",
    "catch",
    "explain",
    "is_capture",
    "is_dump",
    "is_run",
    "minify",
    "past",
    "recaptured",
    "reduce",
    "reduce_found",
    "refuse",
    "report",
    "resume",
    "retrieve",
    "runs",
    "sweep",
    "taken_in",
    "verify",
]


@contextmanager
def capture(
    options: Options,
    command: Sequence[str],
    listener: Listener = ignore_event,
    *,
    program: int | None = None,
    stdout: IO[str] | None = None,
) -> Iterator[Options]:
    """Run a failing command, and find the program that fails in it.

    The command runs unchanged. shrinkfx saves each program that the command passes to
    Inductor, by AOTInductor or torch.compile, before it is compiled, loaded or called;
    the saved programs are
    in ``capture/`` of the run's folder. Reduce the program inside the ``with`` block,
    because the folder is locked for this process until the end of the block::

        with shrinkfx.api.capture(options, ["python", "serve.py"]) as captured:
            shrinkfx.api.reduce(captured)

    Args:
        options: options of the run that reduces the program; ``model`` is ignored.
        command: the words of the command.
        listener: called with each event (``shrinkfx.events``).
        program: number of the captured program to reduce; None means the program that
            failed.
        stdout: file for the output of the command; None leaves it unchanged.

    Yields:
        The options for ``reduce``.

    Raises:
        UsageError: the command or the program with this number does not exist, or an
            option is invalid.
        NothingToReduce: the command does not fail, or its failure is not one of a
            program that shrinkfx can capture.
        LoadError: the inputs or a preload cannot be read, or there is no C++ compiler.
        StorageError: a file cannot be written, for example because the disk is full.
    """
    require_environment()
    words = tuple(command)
    options = replace(options, model=script_capture.name_run(words))
    # The script may run for a long time, so options are checked before it starts.
    # The capture supplies the inputs, so options that need inputs are accepted.
    require_valid_options(replace(options, inputs=options.inputs or options.model))
    if options.sweeping:
        require_valid_sweep(options)
    require_other_files(options)
    with create_run_folder(options) as folder:
        listener(RunStarted("capture", str(options.model), str(folder)))
        options = replace(options, out=folder)
        reporter = make_teller(listener)
        with raise_storage_errors(folder):
            captured = script_capture.capture(
                options, words, program, folder, reporter, stdout
            )
        yield captured


@contextmanager
def catch(out: str | Path | None = None) -> Iterator[Caught]:
    """Save the programs that the block passes to Inductor, for ``Caught.minify``.

    The block runs in this process, for example in a cell of a notebook. Its exceptions
    propagate. Functions that torch.compile has compiled before are compiled again.

    Args:
        out: folder for the programs; None means ``shrinkfx-out/session-<number>``.

    Raises:
        UsageError: the folder contains a run, or cannot be written.
    """
    require_environment()
    options = Options(Path("session"), out=Path(out) if out else None)
    with (
        create_run_folder(options) as folder,
        script_capture.capture_session(options, folder) as place,
        watch_session(place),
    ):
        caught = Caught(place)
        try:
            yield caught
        except Exception as error:
            if caught.programs:
                error.add_note(f"to reduce it: caught.minify(), or shrinkfx {place}")
            raise


@dataclass(frozen=True)
class Caught:
    """The programs of a block.

    Attributes:
        path: their folder. The command ``shrinkfx PATH`` reduces the one that failed,
            even if a crash has ended this process; with ``--program N``, another one.
    """

    path: Path

    @property
    def programs(self) -> tuple[Path, ...]:
        """The programs, in the order in which they were compiled."""
        return script_capture.list_programs(self.path)

    def minify(self, **options: Any) -> Reduction:  # noqa: ANN401 - as minify() has them
        """Reduce the program of the step that failed.

        If no step failed, the programs that were called are tried in turn.

        Args:
            options: keywords of ``shrinkfx.minify``; ``out`` is the folder that
                contains ``path`` by default, or a new one if it has a run.

        Raises:
            NothingToReduce: no program was compiled, or none can be saved.
            ShrinkfxError: see ``shrinkfx.minify``.
        """
        if not self.path.exists():
            raise NothingToReduce("the block compiled nothing with Inductor")
        has_run = (self.path.parent / JOURNAL).exists()
        return minify(
            self.path,
            **{
                "out": None if has_run else self.path.parent,
                "command": "with shrinkfx.catch() as caught: ...",
                **options,
            },
        )


def recaptured(
    options: Options, listener: Listener = ignore_event, *, program: int | None = None
) -> Options:
    """Find a program that an earlier ``capture`` saved, without running the script.

    Args:
        options: options of the run that reduces the program; ``model`` is the folder of
            the captured run, or ``capture`` in it.
        listener: called with each event (``shrinkfx.events``).
        program: number of the captured program to reduce; None means the program that
            failed.

    Returns:
        The options for ``reduce``.

    Raises:
        UsageError: the folder contains no captured program, or none with this number.
        NothingToReduce: the script did not fail, and ``program`` is None.
    """
    return script_capture.resolve_earlier_capture(
        options, options.model, program, make_teller(listener)
    )


def is_capture(path: str | Path) -> bool:
    """Return whether a folder contains a capture, which ``recaptured`` can use."""
    return find_capture_folder(Path(path)) is not None


def make_teller(listener: Listener) -> script_capture.Reporter:
    """Make a ``Reporter`` that passes its messages to a listener as events."""
    return script_capture.Reporter(
        say=lambda text: listener(NoteAdded(text)),
        doing=lambda text: listener(ActivityStarted(text)),
    )


def reduce(options: Options, listener: Listener = ignore_event) -> Reduction:
    """Reduce a program as ``minify`` does, with the options in one record.

    Args:
        options: ``model`` is the path of a ``.pt2`` or of a dump. If it is a captured
            program that does not fail or load, ``others`` are tried in turn, and then
            the graphs of a second run of the script.
        listener: called with each event (``shrinkfx.events``).

    Raises:
        ShrinkfxError: see ``minify``.
    """
    require_environment()
    require_valid_options(options)
    if options.inputs and options.inputs.suffix == ".py":
        raise UsageError("--inputs FILE.py is for --dynamic-sweep: name a .pt")
    while True:
        try:
            return _load_and_run("reduce", run, options, listener)
        except NotCuttable:  # the program does fail
            raise
        except (LoadError, NotReproducible) as error:
            teller = make_teller(listener)
            other = script_capture.resolve_next_program(options, teller, error)
            with raise_storage_errors(options.model.parent):
                other = other or script_capture.capture_again(options, teller, error)
            if other is None:
                raise
            options = other


def sweep(options: Options, listener: Listener = ignore_event) -> Swept:
    """Find the sizes at which a program with dynamic shapes fails.

    Args:
        options: ``sweeping`` holds the settings of the sweep; ``until``, if set, is the
            kind of failure that ``reduce_found`` reduces afterwards. ``inputs`` may be
            a ``.py`` file that defines ``inputs(**sizes)``.
        listener: called with each event (``shrinkfx.events``).

    Raises:
        UsageError: an option is invalid, or the program has no dynamic sizes.
        LoadError: the program, its inputs or a preload cannot be read.
        NotReproducible: the program does not compile.
        Finished: ``out`` contains this sweep, already finished.
        StorageError: a file cannot be written, for example because the disk is full;
            ``resume`` continues the sweep.
        WorkerError: the worker, the process that imports torch, died; ``resume``
            continues the sweep.
    """
    require_environment()
    require_valid_options(options)
    require_valid_sweep(options)
    return _load_and_run("sweep", run_sweep, options, listener)


@contextmanager
def taken_in(options: Options, listener: Listener = ignore_event) -> Iterator[Options]:
    """Load the program of a dump, and yield options with that program as ``model``.

    For a ``.pt2``, the options are unchanged. ``reduce`` and ``sweep`` load dumps
    themselves. Use this function to sweep a dump and then reduce the finding with
    ``reduce_found``: call both inside the ``with`` block, because the folder of the run
    is locked until its end.

    Args:
        options: ``model`` is the path of the dump or of a ``.pt2``.
        listener: called with each event (``shrinkfx.events``).

    Raises:
        UsageError: an option is invalid, or the dump contains code and ``run_code`` is
            not set.
        LoadError: the dump cannot be read, run or exported.
    """
    require_environment()
    require_valid_options(options)
    if options.sweeping:
        require_valid_sweep(options)
    with _load_dump(options, listener) as loaded:
        yield loaded


def _load_dump(options: Options, listener: Listener) -> AbstractContextManager[Options]:
    """Load the program of a dump, after checking the other files of the run."""
    require_others = partial(require_other_files, options)
    return resolve_program(
        options, lambda sentence: listener(NoteAdded(sentence)), require_others
    )


RunResult = TypeVar("RunResult", Reduction, Swept)


def _load_and_run(
    task: str,
    work: Callable[[Options, Path, Listener], RunResult],
    options: Options,
    listener: Listener,
) -> RunResult:
    with _load_dump(options, listener) as options:
        require_files(options)
        options = options.with_required_variables()
        with folders.create_run_folder(options) as folder:
            listener(RunStarted(task, str(options.model), str(folder)))
            return work(options, folder, listener)


def reduce_found(
    options: Options, swept: Swept, listener: Listener = ignore_event
) -> Reduction:
    """Reduce the failure that a sweep found, at the smallest failing sizes.

    The result is written to the folder of the sweep. The reduced program fails at these
    sizes, and passes at the nearest sizes at which the input program passes.

    Args:
        options: the options of the sweep.
        swept: the result of the sweep; ``swept.target`` is the failure to reduce.
        listener: called with each event (``shrinkfx.events``).

    Raises:
        UsageError: the sweep found no failure to reduce.
        NotReproducible: the program does not fail in this way outside the sweep.
        StorageError: a file cannot be written, for example because the disk is full;
            ``resume`` continues the run.
        WorkerError: the worker, the process that imports torch, died; ``resume``
            continues the run.
    """
    if swept.target is None:
        raise UsageError("the sweep found no failure to reduce")
    options = replace(options, inputs=swept.target.failing, sweeping=None)
    if swept.target.found.missing_guard:  # found with input checks on
        environment = {**options.environment, **REQUIRED_VARIABLES[Kind.CHECK_INPUTS]}
        options = replace(options, environment=environment)
    return run(options.with_required_variables(), swept.folder, listener)


def resume(
    folder: str | Path,
    *,
    model: str | Path | None = None,
    max_checks: int | None = None,
    max_minutes: float | None = None,
    max_disk: float | None = None,
    jobs: int | None = None,
    swept: Callable[[Swept], None] | None = None,
    listener: Listener = ignore_event,
) -> Reduction | Swept:
    """Continue a run that was killed, stopped or interrupted at any moment.

    The folder contains the options of the run. No answered query is repeated. The
    checks and minutes that the run has already used count toward its limits.

    Args:
        folder: the output folder of the run (``out``).
        model: path of the program, if it has moved since the run started.
        max_checks: new limit of checks, including those already made; None keeps the
            limit of the run.
        max_minutes: new limit of minutes, including those already used; None keeps the
            limit of the run.
        max_disk: new limit of disk space in GB; None keeps the limit of the run.
        jobs: new number of candidates to check in parallel; None keeps that of the run.
        swept: called with the result of a finished sweep before its finding is reduced.
        listener: called with each event (``shrinkfx.events``).

    Returns:
        The result of the reduction; of a sweep that is not followed by a reduction,
        that of the sweep.

    Raises:
        Finished: the run is already finished.
        BudgetExhausted: the run has used up its budget; pass a larger one.
        UsageError: the folder contains no run, or the program or another part of the
            run has changed.
        LoadError: the program, its inputs or a preload no longer exists.
        StorageError: the disk is full, or the journal is damaged.
    """
    require_environment()
    changes = Options(
        Path(model or ""),
        max_checks=max_checks,
        max_minutes=max_minutes,
        max_disk=max_disk,
        jobs=jobs,
    )
    require_valid_values(changes)
    options = _read_capture(Path(folder), changes, listener)
    options = options or folders.load_options_to_resume(Path(folder), changes)
    task = "sweep" if options.sweeping else "reduce"
    listener(RunStarted(task, str(options.model), str(folder)))
    if not options.sweeping:
        return run(options, Path(folder), listener)
    result = run_sweep(options, Path(folder), listener)
    if not result.goes_on:
        return result
    if swept:
        swept(result)
    return reduce_found(options, result, listener)


def _read_capture(folder: Path, changes: Options, listener: Listener) -> Options | None:
    """Return options to reduce the capture in a folder, if no reduction was started.

    Returns:
        None if a reduction was started there, or if there is no capture.
    """
    if os.path.isfile(folder / JOURNAL):
        return None
    pending = script_capture.read_pending_options(folder, make_teller(listener))
    if pending is None:
        return None
    limits = {
        name: getattr(changes, name) or getattr(pending, name)
        for name in folders.BUDGET
    }
    return replace(pending, **limits).with_required_variables()


def minify(
    path: str | Path | object,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: object = None,
    until: str | None = None,
    strict_kind: bool = False,
    match: str = "",
    check: str | None = None,
    inputs: str | Path | None = None,
    preload: Sequence[str | Path] = (),
    run_code: bool = False,
    sandbox: str = "off",
    device: str | None = None,
    backend: str = Backend.AUTO,
    arch: str = ARCHS[0],
    probe: str | None = None,
    all_probes: bool = False,
    inductor: InductorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    build: str = Build.FAST,
    guard_pages: str = "auto",
    sanitizer: str | None = None,
    timeout_s: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = False,
    baseline_runs: int | None = None,
    max_checks: int | None = None,
    max_minutes: float | None = None,
    max_disk: float | None = None,
    jobs: int | None = None,
    gpus: Sequence[str] = (),
    out: str | Path | None = None,
    strategies: Sequence[str] | None = None,
    known: Sequence[str | Path] = (),
    keep: Sequence[str] = (),
    explain: bool = False,
    no_explain: bool = False,
    title: str | None = None,
    anonymous: bool = False,
    command: str = "",
    quiet: bool = False,
    listener: Listener | None = None,
) -> Reduction:
    """Reduce a failing program to a small one that fails in the same way.

    The run writes the small program as ``repro.py``, and verifies that this script
    fails.

    Args:
        path: the failing program: the path of a ``.pt2`` from ``torch.export.save``;
            the path of a dump, from PyTorch's AOTI minifier or of a torch.compile graph
            saved as Python; the folder of a capture, ``DIR/capture``; an
            ``ExportedProgram``; or an ``nn.Module`` or a function, which shrinkfx
            exports with ``args``, ``kwargs`` and ``dynamic_shapes``.
        args: positional arguments for the export of a module; for an
            ``ExportedProgram``, the failing inputs.
        kwargs: keyword arguments, likewise.
        dynamic_shapes: dynamic shapes of a module, as for ``torch.export.export``.
        until: kind of failure to reduce, such as ``assert`` or ``mismatch``; ``any``;
            or None for the failure that the program shows.
        strict_kind: stop if the program raises an error of another kind than ``until``,
            instead of reducing that error.
        match: accept only failures whose message matches this regular expression.
        check: shell command that tests candidates in place of AOTInductor: ``{}`` is
            the path of a candidate's ``.pt2``; exit code 0 means that the candidate
            still fails, 125 that the command cannot tell. It replaces ``until``.
        inputs: file with the failing inputs, if they differ from those in the ``.pt2``:
            a tuple saved with ``torch.save``, or a dict with ``args`` and ``kwargs``.
        preload: modules, ``.py`` or ``.so`` files that register custom operators.
        run_code: allow shrinkfx to execute Python code that a dump or a source archive
            stores as its program; such a file is refused otherwise.
        sandbox: ``on`` runs the program, and all that loads or compiles it, in a
            sandbox of bubblewrap; ``auto``, only where bubblewrap works; or ``off``.
        device: device to move the program to: ``cpu``, ``cuda`` or ``cuda:1``.
        backend: ``aoti``; ``inductor``, which is ``torch.compile``; ``interpreter``,
            which checks CUDA kernels without a GPU; or ``auto``, the interpreter for a
            CUDA program if there is no GPU, ``inductor`` for another graph of
            torch.compile, else ``aoti``.
        arch: GPU architecture of the interpreter's kernels, such as ``sm_90``.
        probe: what the interpreter runs: ``real`` (the kernels on the failing inputs),
            ``hints`` (on AOTInductor's benchmark inputs), ``contract`` (declared sizes
            and strides), ``compile`` (only compilation), or None for the first probe
            that shows the failure.
        all_probes: run all probes, even after one has shown the failure.
        inductor: Inductor options of the failing run, by name.
        environment: environment variables of the failing run. ``until="check-inputs"``
            adds ``AOTI_RUNTIME_CHECK_INPUTS=1``.
        build: how candidates for the CPU are built: ``fast`` reuses a precompiled
            runtime for all candidates, and confirms the result with a normal
            AOTInductor build; ``stock`` always uses the normal build.
        guard_pages: ``on`` places an inaccessible page next to each tensor, so that
            out-of-bounds accesses fault; ``off``; or ``auto``, which does so for
            ``until="ima"`` and ``"crash"``.
        sanitizer: tool of compute-sanitizer under which every check on a GPU runs:
            ``memcheck``, ``initcheck`` or ``racecheck``; None for no tool.
        timeout_s: time limit of a check in seconds, without the time that it waits for
            a busy machine; None means ten times the input program's time, 1 to 10
            minutes.
        rtol: relative tolerance for comparing values with eager; None means that of
            ``torch.testing`` for the dtype.
        atol: absolute tolerance, likewise.
        strict: also require the same strides as in eager, except for dims of size 1.
        baseline_runs: how often to run the input program before concluding that it
            does not fail; None means up to 100 runs, for as long as its compilation
            took, at least 6 s and at most 1 minute.
        max_checks: stop after this number of checks.
        max_minutes: total time limit in minutes, with a verified repro at the end.
        max_disk: disk space in GB that the run may use in ``$TMPDIR``; None means the
            free space.
        jobs: number of candidates to check in parallel; None means half the cores, at
            most 4, or fewer if memory is short.
        gpus: numbers of the GPUs to distribute the checks over, such as ``("0", "1")``.
        out: folder for the results; None means ``shrinkfx-out/<model>-<number>``.
        strategies: name of a strategy, or several names in order; None means all.
        known: folders of earlier runs, or folders that hold such folders. If the
            program fails because of a bug in them, the run ends with KnownFailure.
        keep: kinds of parts not to simplify in the reduced program: ``sizes``,
            ``values``, ``weights``, ``dtypes``, ``layouts``, ``arguments``,
            ``operands``, ``branches``; or ``all``.
        explain: run the full root-cause analysis: which compiler decisions the failure
            needs, and what each flag of PyTorch's debugging guide reports.
        no_explain: skip the root-cause analysis.
        title: title of ``ISSUE.md``; None means one made of the operators and the
            failure.
        anonymous: replace the model's names in ``repro.py``, ``ISSUE.md`` and
            ``report.html``, and omit source locations.
        command: the command that the header of the repro shows.
        quiet: show no progress and no result. By default, stderr shows the output of
            the command line: a live line, or plain lines if stderr is not a terminal,
            and the result at the end.
        listener: called with each event (``shrinkfx.events``), in place of that output.

    Returns:
        The result: status, paths of the repro and the reports, cause, and counts.

    Raises:
        UsageError: an option or an argument is invalid.
        StrategyError: a strategy is unknown or invalid.
        LoadError: the program, its inputs or a preload cannot be read.
        NotReproducible: the program does not fail as requested.
        KnownFailure: the program fails because of a bug in ``known``.
        Finished: ``out`` contains this run, already finished.
        StorageError: a file cannot be written, for example because the disk is full;
            ``shrinkfx.api.resume`` continues the run.
        WorkerError: the worker, the process that imports torch, died;
            ``shrinkfx.api.resume`` continues the run.
    """
    keywords = locals()  # each option has the name of its keyword
    source = ObjectInput(path, args, kwargs, dynamic_shapes)
    names = [preload] if isinstance(preload, (str, Path)) else preload
    chosen = [strategies] if isinstance(strategies, str) else strategies
    of_bugs = [known] if isinstance(known, (str, Path)) else known
    converted = {
        "inputs": Path(inputs) if inputs else None,
        "preload": tuple(str(name) for name in names),
        "inductor": dict(inductor or {}),
        "environment": dict(environment or {}),
        "gpus": tuple(gpus),
        "out": Path(out) if out else None,
        "strategies": None if chosen is None else tuple(chosen),
        "known": tuple(map(str, of_bugs)),
        "keep": parse_kept_kinds(keep),
    }
    unchanged = {
        each.name: keywords[each.name] for each in list_record_options(Options)
    }
    options = Options(
        source.path() if source.is_path else Path(),
        command=command,
        **{**unchanged, **converted},
    )
    try:
        with closing(Quiet() if quiet else make_display(sys.stderr)) as display:
            work = _reduce_path if source.is_path else partial(_reduce_object, source)
            reduction = work(options, listener or display)
    except KeyboardInterrupt as error:
        # The traceback is internal; without it, the note on how to resume is visible.
        raise error.with_traceback(None) from None
    if listener is None and not quiet:
        print(reduction, file=sys.stderr)
    return reduction


def _reduce_path(options: Options, listener: Listener) -> Reduction:
    """Reduce the program in a file, or the one that failed in a captured script."""
    if is_capture(options.model):
        options = recaptured(options, listener)
    return reduce(options, listener)


def _reduce_object(
    source: ObjectInput, options: Options, listener: Listener
) -> Reduction:
    """Save an object from memory in the folder of its run, and reduce that file."""
    require_environment()
    require_valid_options(options)
    with save_object(source, options) as (saved, found):
        for text in found.notes:
            listener(NoteAdded(text))
        return reduce(saved, listener)


# --- earlier runs


def runs(folder: str | Path) -> list[Run]:
    """List the runs in a folder, in the order of their last activity.

    The list includes captures without a reduction, and dumps whose program does not
    fail. Listing changes no file and does not disturb a run that is at work.

    Args:
        folder: a folder that contains the folders of runs, such as ``shrinkfx-out``, or
            the folder of one run.

    Raises:
        UsageError: the folder does not exist, or it cannot be read.
    """
    return folders.list_runs(Path(folder), _find_capture)


def _find_capture(folder: Path) -> Run | None:
    """Return the state of a capture that has not become a run."""
    found = find_unreduced(folder)
    if found is None:
        return None
    state = State.CAPTURED if found.has_ended else State.UNREADABLE
    if found.does_not_fail:
        state = State.DOES_NOT_FAIL
    problem = _KILLED_IN_CAPTURE if state == State.UNREADABLE else ""
    return Run(found.folder, state, found.script, at=found.at, problem=problem)


_KILLED_IN_CAPTURE = "killed while the script ran; run the capture again"


def is_run(folder: str | Path) -> bool:
    """Return whether a folder is that of a run, finished or unfinished.

    The folder of a captured script counts as one even before a reduction starts in it.
    """
    place = Path(folder)
    has_journal = os.path.isfile(place / JOURNAL)
    return has_journal or find_capture_folder(place) not in (None, place)


def past(folder: str | Path) -> Past:
    """Read the result of a finished run from its folder, without changing the folder.

    The result includes what ``explain`` found after the run.

    Args:
        folder: the output folder of the run (``out``).

    Raises:
        UsageError: the folder contains no run, or the run was killed before it started.
        StorageError: the journal of the run cannot be read.
    """
    return folders.read_finished_run(Path(folder))


def retrieve(
    folder: str | Path,
    digest: str,
    listener: Listener = ignore_event,
    *,
    model: str | Path | None = None,
    command: str = "",
) -> Retrieved:
    """Export a candidate of an earlier run, for example one of the other failures.

    The candidate runs again, with the options of the run. If it fails, its repro is
    written and verified.

    Args:
        folder: the output folder of the run (``out``).
        digest: the candidate's digest, or a unique prefix of it; ``summary.json`` lists
            the digests of the other failures.
        listener: called with each event (``shrinkfx.events``).
        model: path of the program, if it has moved since the run.
        command: the command that the header of the repro shows.

    Raises:
        UsageError: the run has no such candidate, or the program or another part of the
            run has changed.
        LoadError: the program, its inputs or a preload no longer exists.
    """
    require_environment()
    if not digest:
        raise UsageError(
            "--candidate contains no digest; summary.json lists the other failures"
        )
    candidate = find_candidate(Path(folder), digest, Path(model) if model else None)
    options = replace(candidate.options, command=command).with_required_variables()
    listener(RunStarted("candidate", str(options.model), str(folder)))
    return retrieve_from(replace(candidate, options=options), Path(folder), listener)


def explain(
    folder: str | Path, listener: Listener = ignore_event, *, title: str | None = None
) -> Explained:
    """Run the full root-cause analysis on the reduced program of a finished run.

    The analysis tests which decisions of the compiler the failure needs, and what each
    flag of PyTorch's debugging guide reports. It writes the results to ``explain.json``
    and the cause to the header of ``repro.py``, and regenerates ``report.html``.

    Args:
        folder: the output folder of the run (``out``).
        listener: called with each event (``shrinkfx.events``).
        title: a new title for ``ISSUE.md``; None keeps the title option of the run.

    Raises:
        UsageError: the folder contains no result, or the program or another part of the
            run has changed.
        LoadError: the program, its inputs or a preload no longer exists.
        WorkerError: the worker, the process that imports torch, died.
    """
    require_environment()
    options = folders.load_finished_options(Path(folder))
    options = replace(options, title=title or options.title)
    listener(RunStarted("explain", str(options.model), str(folder)))
    explained = explaining.explain_folder(options, Path(folder), listener)
    explaining.report_explained(Path(folder), listener)
    return explained


def report(folder: str | Path, listener: Listener = ignore_event) -> Path:
    """Regenerate ``report.html`` and ``ISSUE.md`` for a run.

    Each run writes them when it ends. An edited ``ISSUE.md`` stays, and the new text is
    in ``ISSUE.new.md``. For a run of an earlier version of shrinkfx,
    the program is loaded again to draw its graph, if the file still exists.

    Args:
        folder: the output folder of the run (``out``).
        listener: called with each event (``shrinkfx.events``).

    Returns:
        The path of the page.

    Raises:
        UsageError: the folder contains no run, or another process is at work there.
        StorageError: the page cannot be written.
    """
    require_environment()
    listener(RunStarted("report", "", str(folder)))
    return explaining.report_again(Path(folder), listener)


def verify(
    options: Options,
    listener: Listener = ignore_event,
    *,
    across: Sequence[str] = (),
    torch: str = "",
    agree: Agree = refuse,
) -> Confirmed:
    """Run a repro in an empty folder, and test whether it fails as its header states.

    Args:
        options: ``model`` is the path of the repro, or the folder of the run that wrote
            it. Only the backend, the architecture and the time limit are used as well.
        listener: called with each event (``shrinkfx.events``).
        across: paths of other Python interpreters to run the repro with, for example
            from environments with other versions of PyTorch.
        torch: other versions of PyTorch to run the repro on, such as
            ``2.13.0,2.14.1``; or ``bisect``, which finds the first version on which it
            fails. Missing versions are installed.
        agree: called once with a description of the planned installation; returns
            whether to install. The default refuses to install.

    Raises:
        UsageError: the file is not a repro, or only the user's own command can judge
            it; an interpreter does not work, a version is unknown, or ``agree`` returns
            False.
        InstallError: a version of PyTorch cannot be installed.
        LoadError: the repro cannot be read.
        WorkerError: the worker, the process that imports torch, died.
    """
    require_environment()
    require_valid_options(options)
    if os.path.isfile(script := options.model / "repro.py"):
        options = replace(options, model=script)
    require_script(options.model)
    listener(RunStarted("verify", str(options.model)))
    return run_repro(options, listener, across, torch, agree)


# --- checks before a run starts anything

_DESCRIPTORS = 64
"""Minimum limit of open files of a process; the linker was observed with 28."""


def require_environment() -> None:
    """Check the current folder and the limit of open files.

    Raises:
        UsageError: the current folder no longer exists, or the limit is too low.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the current folder no longer exists ({error.strerror}): cd to another "
            "folder"
        ) from error
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < _DESCRIPTORS:
        raise UsageError(
            f"this process may open {allowed} files at once, but a run needs "
            f"{_DESCRIPTORS}: run ulimit -n {_DESCRIPTORS} or higher"
        )


def require_valid_options(options: Options) -> None:
    """Check the options of a run, each by itself and together.

    Raises:
        UsageError: an option is invalid, or two options exclude each other.
        StrategyError: a strategy is unknown or invalid.
    """
    require_valid_values(options)
    for message in _list_contradictions(options):
        raise UsageError(message)
    choose(options.strategies)


def _list_contradictions(options: Options) -> Iterator[str]:
    """Yield a message for each pair of options that exclude or need each other."""
    if options.check is not None:
        yield from _list_conflicts_with_check(options)
    if options.probe is not None and options.all_probes:
        yield f"--all-probes, or --probe {options.probe}: use only one of them"
    if options.explain and options.no_explain:
        yield "--explain, or --no-explain: use only one of them"
    if options.until == Kind.HANG and options.timeout_s is None:
        yield "--until hang needs --timeout, which defines how long a hang is"
    if not options.gpus:
        return
    if options.device == "cpu" or options.backend == Backend.INTERPRETER:
        yield "--gpus only applies to CUDA devices: omit it"
    if options.device not in (None, "cuda", "cuda:0"):
        yield (
            f"--gpus, or --device {options.device}: a check sees only its own GPU, as "
            "cuda:0; use --device cuda"
        )
    if options.check is not None:
        yield "--gpus: a command (--check) chooses its own GPU"


def _list_conflicts_with_check(options: Options) -> Iterator[str]:
    """Yield a message for each option that does not apply to a command."""
    takes_inputs = Command.parse(options.check or "").takes_inputs
    if options.until or options.match:
        yield "--check replaces --until and --match: use only one of them"
    if options.strict_kind:
        yield "--strict-kind does not apply to a command (--check)"
    if options.comparison_settings:
        flags = ", ".join(f"--{name}" for name in options.comparison_settings)
        yield f"--check does its own comparison: omit {flags}"
    if options.guard_pages == "on":
        yield "--guard-pages on does not apply to a command (--check)"
    if options.sanitizer:
        yield "--sanitizer does not apply to a command (--check)"
    if takes_inputs and not options.inputs:
        yield "--check with {inputs} needs --inputs FILE"


def require_valid_sweep(options: Options) -> None:
    """Check the options of a sweep.

    Raises:
        UsageError: an option is invalid, or does not apply to a sweep.
    """
    if options.check is not None:
        raise UsageError("--dynamic-sweep runs AOTInductor: omit --check")
    require_valid_values(options.sweeping or Sweeping())


def require_files(options: Options) -> None:
    """Check the program and the other files of a run before a worker is started.

    Raises:
        LoadError: a file is missing or invalid, or there is no C++ compiler.
        UsageError: the program is stored as code that the user has not allowed to run,
            or ``check`` cannot test it.
    """
    require_program(options.model, run_code=options.run_code)
    if options.check is not None and is_source_archive(options.model):
        raise UsageError(
            "--check needs a .pt2, but torch.export.save rejects this program"
        )
    require_other_files(options)


def require_other_files(options: Options) -> None:
    """Check the inputs, the preloads, the C++ compiler and the command of ``check``.

    Raises:
        LoadError: one of them is missing or invalid.
    """
    if options.inputs:
        require_inputs(options.inputs)
    require_preloads(options.preload)
    require_compiler(options.environment)
    if options.check is not None:
        require_command(options.check, options.environment)
