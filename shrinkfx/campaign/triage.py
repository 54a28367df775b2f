"""From many failing programs to a list of bugs."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.campaign.commands import Executor, LocalExecutor
from shrinkfx.campaign.programs import find_programs
from shrinkfx.campaign.report import Bug, find_bugs, list_others, write_page
from shrinkfx.campaign.runs import (
    STATE,
    Campaign,
    Listener,
    Result,
    Status,
    run_campaign,
    save,
)
from shrinkfx.errors import UsageError, WorkerError
from shrinkfx.findings.known_bugs import RUNS
from shrinkfx.options.options import check_folders
from shrinkfx.protocol.flags import require_above_zero
from shrinkfx.system.folders import lock_folder, output_folder

NEW_BUG, UNKNOWN, INTERRUPTED = 10, 11, 4
"""Exit codes."""

_EVERY_S = 10.0
"""Minimum time in seconds between two versions of the page."""


OnStart = Callable[[Campaign, Path], None]
"""Called with the programs, and with the folder of their runs."""


@dataclass(frozen=True)
class Triage:
    """The result of a triage.

    Attributes:
        folder: the output folder.
        campaign: the programs and their results.
        bugs: the bugs, sorted by number of programs, largest first.
        interrupted: whether Ctrl-C has ended it.
    """

    folder: Path
    campaign: Campaign
    bugs: Sequence[Bug]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of the command.

        0 if every bug was known before, or no program fails; 10 if a bug is new; 11 if
        none is new, but a failing program was not assigned to a bug, or a run ended
        with an error; 4 after Ctrl-C, unless it only watched its folders.
        """
        if self.interrupted and (self.campaign.pending or not self.campaign.watched):
            return INTERRUPTED
        if any(not bug.is_known for bug in self.bugs):
            return NEW_BUG
        others = list_others(self.campaign, self.folder)
        is_clear = all(each.status is Status.PASSES for each in others)
        return 0 if is_clear else UNKNOWN


def triage(
    paths: Sequence[str | Path],
    options: Sequence[str] = (),
    *,
    known: Sequence[str | Path] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    watch: bool = False,
    listener: Listener = lambda *_: None,
    on_start: OnStart = lambda *_: None,
) -> Triage:
    """Reduce a program of each bug, and recognize the others.

    Args:
        paths: ``.pt2`` files, folders with such files, ``.jsonl`` lists of programs.
        options: options of each run, as on the command line.
        known: folders with known bugs: folders of earlier runs.
        out: folder for the results; None means ``shrinkfx-out/triage-<number>``.
        jobs: the number of programs at a time; None for one, or as many as the Ray
            cluster can run.
        ray: the address of a Ray cluster that runs the programs; None for this machine.
        watch: whether to go on until Ctrl-C, with the programs that appear in
            ``paths``, which are folders then.
        listener: called with each result (``runs.Listener``).
        on_start: called before the first run.

    Returns:
        The bugs, each with its programs, and the result of each run.

    Raises:
        UsageError: a path contains no program (or is no folder, with ``watch``), a
            folder in ``known`` does not exist, ``out`` contains a triage, or there is
            no cluster at this address.
        LoadError: a list of programs cannot be read.
    """
    if jobs is not None:
        require_above_zero("--jobs", jobs)
    check_folders("--known", [*map(str, known)])
    watched = _require_folders(paths) if watch else ()
    programs = [] if watch else find_programs([*map(Path, paths)], options)
    resolved = tuple(str(Path(name).resolve()) for name in known)
    executor = _executor(ray)
    jobs = executor.jobs if jobs is None else jobs
    campaign = Campaign(tuple(programs), str(Path.cwd()), resolved, jobs)
    campaign = replace(campaign, watched=watched, options=tuple(options))
    folder = output_folder(Path(out) if out else None, Path("triage"))
    with lock_folder(folder):
        if (folder / STATE).exists():
            advice = f"to continue it: {resume_command(folder)}"
            raise UsageError(f"--out {folder} contains a triage; {advice}")
        return _run(campaign, folder, executor, listener, on_start)


def resume(
    folder: str | Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    listener: Listener = lambda *_: None,
    on_start: OnStart = lambda *_: None,
) -> Triage:
    """Continue a triage that was interrupted or killed.

    Args:
        jobs, ray, listener, on_start: as for ``triage``.

    Raises:
        UsageError: the folder contains no triage, another process uses it, or there is
            no cluster at this address.
    """
    folder = Path(folder)
    if not (folder / STATE).is_file():
        raise UsageError(f"--resume {folder}: the folder contains no triage")
    executor = _executor(ray)
    with lock_folder(folder):
        campaign = Campaign.load(folder)
        if jobs is not None:
            require_above_zero("--jobs", jobs)
        campaign = replace(campaign, jobs=executor.jobs if jobs is None else jobs)
        if not os.path.isdir(campaign.cwd):
            raise UsageError(
                f"--resume {folder}: {campaign.cwd} no longer exists, and options of "
                "the runs may refer to it"
            )
        return _run(campaign, folder, executor, listener, on_start)


def _require_folders(paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the absolute paths of folders.

    Raises:
        UsageError: a path is no folder.
    """
    for path in paths:
        if not Path(path).is_dir():
            raise UsageError(f"--watch: {path} is no folder")
    return tuple(str(Path(path).resolve()) for path in paths)


def _executor(ray: str | None) -> Executor:
    if ray is None:
        return LocalExecutor()
    # Ray is large, and optional.
    from shrinkfx.campaign.on_ray import RayExecutor

    return RayExecutor(ray)


def resume_command(folder: Path) -> str:
    return f"shrinkfx triage --resume {shlex.quote(str(folder))}"


def _run(
    campaign: Campaign,
    folder: Path,
    executor: Executor,
    listener: Listener,
    on_start: OnStart,
) -> Triage:
    last = saved = campaign
    interrupted, saved_at = True, 0.0

    def update(now: Campaign, *, at_once: bool = False) -> None:
        nonlocal last, saved, saved_at
        last = now
        is_due = at_once or time.monotonic() - saved_at > _EVERY_S
        if now is not saved and is_due:
            _write(now, folder)
            saved, saved_at = now, time.monotonic()

    def ended(now: Campaign, result: Result) -> None:
        update(now)
        listener(now, result)

    def grow(now: Campaign) -> Campaign:
        grown = now.with_new_programs()
        # The state has the name of a program before its first run.
        update(grown, at_once=grown is not now)
        return grown

    more = grow if campaign.watched else None
    _write(campaign, folder)
    on_start(campaign, folder / RUNS)
    try:
        with suppress(KeyboardInterrupt):
            run_campaign(campaign, folder, ended, executor, more)
            interrupted = False
    except WorkerError as error:
        advice = f"to continue: {resume_command(folder)}"
        raise WorkerError(f"{error.reason}\n{advice}") from error
    finally:
        bugs = _write(last, folder)
    return Triage(folder, last, bugs, interrupted)


def _write(campaign: Campaign, folder: Path) -> list[Bug]:
    """Write the state and the page, and return the bugs."""
    bugs = find_bugs(campaign, folder)
    save(campaign, folder, [bug.to_json() for bug in bugs])
    write_page(campaign, bugs, folder)
    return bugs
