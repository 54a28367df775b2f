"""What earlier runs have left: lists of them, candidates, causes, pages, repros."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.api.in_python import public
from shrinkfx.api.settings import with_what_shows_it
from shrinkfx.check.preflight import require_script
from shrinkfx.environments.choice import Agree, refuse
from shrinkfx.errors import UsageError
from shrinkfx.events import Begun, Listener, ignore
from shrinkfx.intake.capture.door import place_of
from shrinkfx.intake.left import without_run
from shrinkfx.options.options import Options
from shrinkfx.run.explaining import Explained, explain_folder
from shrinkfx.run.folder import JOURNAL, over
from shrinkfx.run.past import Past, past_run
from shrinkfx.run.reporting import report_explained, report_folder
from shrinkfx.run.retrieve import Retrieved, find
from shrinkfx.run.retrieve import retrieve as retrieve_from
from shrinkfx.run.runs import Run, list_runs
from shrinkfx.run.verify import Confirmed, confirm
from shrinkfx.validation import require_sense, require_surroundings
from shrinkfx.wording import Flag


@public
def runs(folder: str | Path) -> list[Run]:
    """List the runs in a folder, or the one that it is of, the last one last.

    Captures are among them whose programs nobody has reduced. Nothing is changed there,
    and no run that is at work is disturbed.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    return list_runs(Path(folder), without_run)


def is_run(folder: str | Path) -> bool:
    """Tell whether a folder is that of a run, which may be over or go on.

    A script's that was captured is one, also where its program is not yet reduced.
    """
    place = Path(folder)
    return os.path.isfile(place / JOURNAL) or place_of(place) not in (None, place)


@public
def past(folder: str | Path) -> Past:
    """Read what a run came to that is over, as it was told at its end.

    What has been found out since by ``explain`` is in it. Nothing is changed there.

    Args:
        folder: what the run was told as ``out``.

    Raises:
        UsageError: no run is there, or it never began.
        StorageError: its journal cannot be read.
    """
    return past_run(Path(folder))


@public
def retrieve(
    folder: str | Path,
    digest: str,
    listener: Listener = ignore,
    *,
    model: str | Path | None = None,
    command: str = "",
) -> Retrieved:
    """Write a candidate that an earlier run has met, by-catch for example.

    All that the run was asked for is in its folder.

    Args:
        folder: what the run was told as ``out``.
        digest: the candidate's, or a unique beginning of it.
        model: where the program is now, if it has been moved.
        command: how this was started, for the repro's header.

    Raises:
        UsageError: there is no such candidate, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
    """
    require_surroundings()
    if not digest:
        names = " contains no digest; summary.json lists the other failures"
        raise UsageError(Flag("--candidate"), names)
    met = find(Path(folder), digest, Path(model) if model else None)
    options = with_what_shows_it(replace(met.options, command=command))
    listener(Begun("candidate", str(options.model), str(folder)))
    return retrieve_from(replace(met, options=options), Path(folder), listener)


@public
def explain(
    folder: str | Path, listener: Listener = ignore, *, title: str | None = None
) -> Explained:
    """Find out what the failure comes from that a run has reduced.

    Asks the result which decisions of the compiler its failure needs, and what each
    flag of PyTorch's debugging guide says of it; ``explain.json`` holds what is known,
    and the header of ``repro.py`` the cause.

    Args:
        folder: of a run that is over.
        title: of ``ISSUE.md``, instead of what the run was told.

    Raises:
        UsageError: no result is there, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
        WorkerError: the process that holds torch died.
    """
    require_surroundings()
    options = over(Path(folder))
    options = replace(options, title=title or options.title)
    listener(Begun("explain", str(options.model), str(folder)))
    explained = explain_folder(options, Path(folder), listener)
    report_explained(Path(folder), listener)
    return explained


@public
def report(folder: str | Path, listener: Listener = ignore) -> Path:
    """Write ``report.html`` of a run anew: the run, as a page for a browser.

    Each run writes it at its end. Where an earlier version of shrinkfx has made the
    run, the program is read anew for its graph, if it is still there.

    Args:
        folder: what the run was told as ``out``.

    Returns:
        The page.

    Raises:
        UsageError: no run is there, or another process is at work there.
        StorageError: the page cannot be written.
    """
    require_surroundings()
    listener(Begun("report", "", str(folder)))
    return report_folder(Path(folder), listener)


@public
def verify(
    options: Options,
    listener: Listener = ignore,
    *,
    across: Sequence[str] = (),
    torch: str = "",
    agree: Agree = refuse,
) -> Confirmed:
    """Run a repro as a stranger would: does it fail as its header states?

    Args:
        options: ``model`` is the script, or the folder of the run that has written it;
            back end, arch and time limit count.
        across: other interpreters, with other versions of PyTorch, to run it as well.
        torch: other versions of PyTorch to run it on, separated by commas, or
            ``bisect``. Missing versions are installed.
        agree: called once with a description of the installation; returns whether to
            install.

    Raises:
        UsageError: it is no script, or only a command of its maker's can judge it; an
            interpreter is none, a version is unknown, or ``agree`` returns False.
        InstallError: a version of PyTorch cannot be installed.
        LoadError: it cannot be read.
        WorkerError: the process that holds torch died.
    """
    require_surroundings()
    require_sense(options)
    if os.path.isfile(within := options.model / "repro.py"):
        options = replace(options, model=within)
    require_script(options.model)
    listener(Begun("verify", str(options.model)))
    return confirm(options, listener, across, torch, agree)
