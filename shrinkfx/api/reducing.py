"""Functions that start or resume a run: a reduction, or a sweep over sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from shrinkfx.api.captures import make_teller
from shrinkfx.api.keyword_errors import api_function
from shrinkfx.api.validation import (
    require_environment,
    require_files,
    require_other_files,
    require_valid_options,
    require_valid_sweep,
)
from shrinkfx.errors import NotReproducible, UsageError
from shrinkfx.events import Listener, NoteAdded, RunStarted, ignore_event
from shrinkfx.failure.signature import Kind
from shrinkfx.flags import require_valid_values
from shrinkfx.intake.capture import script_capture
from shrinkfx.intake.resolve_input import resolve_program, with_torch_compile
from shrinkfx.options.options import Options
from shrinkfx.options.values import REQUIRED_VARIABLES
from shrinkfx.run import folder as folders
from shrinkfx.run.folder import Reduction
from shrinkfx.run.pipeline import run
from shrinkfx.run.sweep.pipeline import Swept, run_sweep
from shrinkfx.wording import Flag


@api_function
def reduce(options: Options, listener: Listener = ignore_event) -> Reduction:
    """Reduce a program as ``minify`` does, with the options in one record.

    Args:
        options: ``model`` is the path of a ``.pt2`` or of a dump.
        listener: called with each event (``shrinkfx.events``).

    Raises:
        ShrinkfxError: see ``minify``.
    """
    require_environment()
    require_valid_options(options)
    if options.inputs and options.inputs.suffix == ".py":
        script, task = Flag("--inputs", stands="FILE.py"), Flag("--dynamic-sweep")
        raise UsageError(script, " is for ", task, ": name a .pt")
    return _load_and_run("reduce", _run_reduction, options, listener)


@api_function
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


@api_function
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


def _run_reduction(options: Options, folder: Path, listener: Listener) -> Reduction:
    """Run a reduction.

    Raises:
        NotReproducible: the program does not fail as requested. For a dump of a
            torch.compile graph, the message also states whether it fails there.
    """
    try:
        return run(options, folder, listener)
    except NotReproducible as error:
        extended = with_torch_compile(error, options)
        if extended is error:
            raise
        raise extended from error


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


@api_function
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


@api_function
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
        return _run_reduction(options, Path(folder), listener)
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
    if os.path.isfile(folder / folders.JOURNAL):
        return None
    pending = script_capture.read_pending_options(folder, make_teller(listener))
    if pending is None:
        return None
    limits = {
        name: getattr(changes, name) or getattr(pending, name)
        for name in folders.BUDGET
    }
    return replace(pending, **limits).with_required_variables()
