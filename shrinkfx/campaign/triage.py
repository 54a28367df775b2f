"""From many failing programs to a list of bugs."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.campaign.executors import LocalExecutor, RayExecutor, Runs
from shrinkfx.campaign.programs import find_programs
from shrinkfx.campaign.report import Bug, find_bugs, write_page
from shrinkfx.campaign.runs import (
    STATE,
    Campaign,
    Executor,
    Outcome,
    run_campaign,
    save,
)
from shrinkfx.errors import UsageError
from shrinkfx.system.folders import output_folder

NEW_BUG, INTERRUPTED = 10, 4
"""Exit codes."""

Listener = Callable[[Campaign, Outcome], None]
"""Called after each program, with all outcomes so far."""


@dataclass(frozen=True)
class Triage:
    """The result of a triage.

    Attributes:
        folder: the output folder.
        campaign: the programs and their outcomes.
        bugs: the bugs, that of most programs first.
        interrupted: whether Ctrl-C has ended it.
    """

    folder: Path
    campaign: Campaign
    bugs: Sequence[Bug]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 if every bug was known before, 10 if one is new, 4 after Ctrl-C."""
        if self.interrupted:
            return INTERRUPTED
        return NEW_BUG if any(not bug.is_known for bug in self.bugs) else 0


def triage(
    paths: Sequence[str | Path],
    options: Sequence[str] = (),
    *,
    known: Sequence[str | Path] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    listener: Listener = lambda *_: None,
) -> Triage:
    """Reduce a program of each bug, and recognize the others.

    Args:
        paths: ``.pt2`` files, folders with such files, ``.jsonl`` lists of programs.
        options: options of each run, as on the command line.
        known: folders with known bugs: folders of earlier runs.
        out: folder for the results; None means ``shrinkfx-out/triage-<number>``.
        jobs: the number of programs at a time.
        ray: address of a Ray cluster that runs the programs; None for this machine.
        listener: called after each program.

    Raises:
        UsageError: a path contains no program, or ``out`` contains a triage.
        LoadError: a list of programs cannot be read.
    """
    for folder in known:
        if not os.path.isdir(folder):
            raise UsageError(f"--known {folder}: no such folder")
    programs = find_programs([*map(Path, paths)], options)
    folder = output_folder(Path(out) if out else None, Path("triage"))
    if (folder / STATE).exists():
        advice = f"to continue it: {resume_command(folder)}"
        raise UsageError(f"--out {folder} contains a triage; {advice}")
    resolved = tuple(str(Path(name).resolve()) for name in known)
    campaign = Campaign(tuple(programs), resolved, jobs)
    return _run(campaign, folder, ray, listener)


def resume(
    folder: str | Path,
    *,
    ray: str | None = None,
    listener: Listener = lambda *_: None,
) -> Triage:
    """Continue a triage that was interrupted or killed.

    Raises:
        UsageError: the folder contains no triage, or another process uses it.
    """
    return _run(Campaign.load(Path(folder)), Path(folder), ray, listener)


def resume_command(folder: Path) -> str:
    return f"shrinkfx triage --resume {shlex.quote(str(folder))}"


def _run(
    campaign: Campaign, folder: Path, ray: str | None, listener: Listener
) -> Triage:
    last, interrupted = campaign, False

    def ended(now: Campaign, outcome: Outcome) -> None:
        nonlocal last
        last = now
        _write(now, folder)
        listener(now, outcome)

    _write(campaign, folder)
    runs = Runs(folder.resolve(), campaign.known)
    with contextlib.suppress(KeyboardInterrupt):
        interrupted = True
        run_campaign(campaign, folder, _make_executor(runs, campaign, ray), ended)
        interrupted = False
    return Triage(folder, last, _write(last, folder), interrupted)


def _make_executor(runs: Runs, campaign: Campaign, ray: str | None) -> Executor:
    if ray is not None:
        return RayExecutor(runs, ray)
    return LocalExecutor(runs, campaign.jobs)


def _write(campaign: Campaign, folder: Path) -> list[Bug]:
    """Write the state and the page, and return the bugs."""
    bugs = find_bugs(campaign)
    save(campaign, folder, [bug.to_json() for bug in bugs])
    write_page(campaign, bugs, folder)
    return bugs
