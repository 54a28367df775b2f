"""Functions for earlier runs: list, explain, report, export a candidate, verify."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.api.validation import (
    require_environment,
    require_valid_options,
)
from shrinkfx.check.environments.choice import Agree, refuse
from shrinkfx.check.preflight import require_script
from shrinkfx.errors import Flag, UsageError
from shrinkfx.events import Listener, RunStarted, ignore_event
from shrinkfx.intake.capture.script_capture import find_capture_folder, find_unreduced
from shrinkfx.options.options import Options
from shrinkfx.run import explaining
from shrinkfx.run import folder as folders
from shrinkfx.run.explaining import Explained
from shrinkfx.run.folder import Past, Run, State
from shrinkfx.run.retrieve import Retrieved, find_candidate
from shrinkfx.run.retrieve import retrieve as retrieve_from
from shrinkfx.run.verify import Confirmed, run_repro


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
    return os.path.isfile(place / folders.JOURNAL) or find_capture_folder(
        place
    ) not in (
        None,
        place,
    )


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
        problem = " contains no digest; summary.json lists the other failures"
        raise UsageError(Flag("--candidate"), problem)
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
    """Regenerate ``report.html`` for a run.

    Each run writes this page when it ends. For a run of an earlier version of shrinkfx,
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
    return explaining.report_folder(Path(folder))


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
