"""The folder of a run: lock it, record the run, and let a later session resume it."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.check.client.restarting import OUT_REMOVED
from shrinkfx.check.client.server import REMOVED
from shrinkfx.errors import (
    BudgetExhausted,
    Finished,
    JournalError,
    LoadError,
    NotReproducible,
    ShrinkfxError,
    StorageError,
    UsageError,
)
from shrinkfx.events import Listener
from shrinkfx.journal.journal import Journal
from shrinkfx.journal.run_progress import read_progress
from shrinkfx.options.options import Options
from shrinkfx.run.context import RunContext
from shrinkfx.run.recorded_options import (
    BUDGET,
    describe_request,
    request_identity,
    require_unchanged,
)
from shrinkfx.system import scratch
from shrinkfx.system.atomic_files import DRAFT
from shrinkfx.system.folder_lock import lock_folder
from shrinkfx.system.output_folder import (
    moved_file_finder,
    output_folder,
    remove_if_empty,
)
from shrinkfx.wording import Flag, MessagePart

JOURNAL = "journal.sqlite"


@contextlib.contextmanager
def open_run_folder(
    options: Options, out: Path, listener: Listener, again: str = "--resume"
) -> Iterator[RunContext]:
    """Lock the folder of a run, a new one or one to resume, and yield its context.

    If a new run ends before it learns anything, its journal is removed. Any other error
    gets a note that says how to resume.

    Args:
        again: the option that continues this task. A task other than ``--resume`` works
            on a result and does not count as time of the run, which may still be
            resumed.

    Raises:
        UsageError: another process uses the folder.
        StorageError: the disk is full, or the journal is damaged.
    """
    clear_orphans()
    with (
        _add_resume_hint(out, again),
        lock_folder(out),
        contextlib.ExitStack() as at_the_end,
    ):
        _remove_drafts(out)
        at_the_end.callback(_remove_drafts, out)
        counts_time = again == "--resume"
        with closing(Journal(out / JOURNAL, counts_time=counts_time)) as journal:
            is_new = journal.fact("run") is None
            journal.db.check()
            journal.get_or_compute("run", lambda: describe_request(options))
            journal.tick()
            try:
                yield RunContext(options, out, listener, journal)
            except (UsageError, LoadError, NotReproducible):
                if is_new and journal.is_empty():
                    _remove_journal(out)
                raise


def record_run_end(
    context: RunContext,
    status: str,
    message: str,
    exit_code: int,
    *,
    is_short: bool = False,
) -> None:
    """Record that the run has ended; a run that was stopped may be resumed.

    Args:
        is_short: the run skipped steps that a larger budget allows.
    """
    name = "stopped" if status == "stopped" else "finished"
    ended = {"said": message, "exit_code": exit_code, "budget": context.out_of_budget}
    more = larger_budget(context.options) if is_short else ""
    context.journal.note(name, {**ended, "more": more})


@contextlib.contextmanager
def create_run_folder(options: Options) -> Iterator[Path]:
    """Create and lock the folder of a new run, and yield its path.

    Raises:
        Finished: the folder holds this run, which is finished.
        UsageError: the folder holds another run, or this one unfinished.
        StorageError: the journal there cannot be read.
    """
    out = output_folder(options.out, Path(options.called))
    try:
        with lock_folder(out):
            _refuse_if_begun(out, options)
            yield out
    finally:
        remove_if_empty(out)


def _refuse_if_begun(out: Path, options: Options) -> None:
    if not _holds_journal(out, "--out"):
        if (out / "summary.json").exists():
            flag = Flag("--out", str(out))
            raise UsageError(flag, " contains another run: choose an empty folder")
        return
    with closing(Journal(out / JOURNAL)) as journal:
        run, finished = journal.fact("run"), _read_finished(out, journal)
    if run is None:  # killed before it began: there is nothing to resume
        _remove_journal(out)
        return
    if request_identity(run) != request_identity(describe_request(options)):
        raise UsageError(
            Flag("--out", str(out)),
            " contains another run: ",
            Flag("--resume", str(out)),
            " resumes it; or choose an empty folder",
        )
    if finished:
        raise finished
    flag, again = Flag("--out", str(out)), Flag("--resume", str(out))
    raise UsageError(flag, " contains this run, unfinished; to resume it: ", again)


def _read_finished(out: Path, journal: Journal) -> Finished | None:
    """Return the outcome of a finished run and its time; None if it is not finished."""
    known = journal.fact("finished")
    if known is None:
        return None
    at = read_progress(journal.db).at
    more = known.get("more", "")  # unknown to older versions
    return Finished(str(out), known["said"], known["exit_code"], at, more)


def load_options_to_resume(out: Path, new: Options) -> Options:
    """Return the recorded options of a run, with new ones for the program and budget.

    Args:
        new: the options of this call: the path of the program, and the budget.

    Raises:
        UsageError: the folder holds no run, or its files or environment have changed.
        Finished: nothing remains to do, or the budget is not larger.
        BudgetExhausted: the budget stopped the run, and the new one is the same.
    """
    with _open_journal(out, "--resume") as journal:
        run = journal.fact("run")
        if run is None:
            again = "repeat the original command"
            flag = Flag("--resume", str(out))
            raise UsageError(flag, f": the run was killed before it started: {again}")
        with journal.db.checked_decoding():
            before = Options.from_json(run["options"]).with_files(
                moved_file_finder(out)
            )
        finished = _read_finished(out, journal)
        if finished and not (finished.more and is_larger(new.budget, before.budget)):
            raise finished
        limits = {name: getattr(new, name) or getattr(before, name) for name in BUDGET}
        options = replace(before, out=out, **limits)
        if new.model != Path():
            options = replace(options, model=new.model.resolve())
        require_unchanged(Flag("--resume", str(out)), run, options)
        stopped = journal.fact("stopped")
        if stopped and stopped["budget"] and options.budget == before.budget:
            raise BudgetExhausted(f"{out}: {stopped['said']}")
        journal.note("run", {**run, "options": options.to_json()})
        for ended in ("stopped", "finished"):  # the run is active again
            journal.note(ended, None)
        return options


RESULT = "result"
"""Name of the journal's fact with the verified result and the options of its
reduction.
"""

PROGRAM = "program"
"""Name of the journal's fact with the graph that candidates are cut from."""


def load_finished_options(out: Path) -> Options:
    """Return the recorded options of a run that has ended with a result.

    Raises:
        UsageError: there is no run, it has no result yet, or its files have changed.
    """
    flag = Flag("--explain", str(out))
    with _open_journal(out, "--explain") as journal:
        run, result = journal.fact("run"), journal.fact(RESULT)
        ended = journal.fact("finished") or journal.fact("stopped")
        if run is None or not ended:
            again = Flag("--resume", str(out))
            raise UsageError(flag, ": the run has no result yet; to resume it: ", again)
        if result is None:
            why = (
                "the run has no recorded result (it is a sweep, or of an earlier "
                "version)"
            )
            raise UsageError(
                flag, f": {why}: start a new run with another ", Flag("--out")
            )
        return load_unchanged_options(out, journal, flag)


@contextlib.contextmanager
def open_journal_for_report(out: Path) -> Iterator[Journal]:
    """Open the journal of a run for a look at its outcome, without resuming it.

    Raises:
        UsageError: there is no run, or another process uses the folder.
    """
    with _open_journal(out, "--report", counts_time=False) as journal:
        if journal.fact("run") is None:
            flag = Flag("--report", str(out))
            raise UsageError(flag, ": the run was killed before it started")
        yield journal


@contextlib.contextmanager
def _open_journal(
    out: Path, option: str, *, counts_time: bool = True
) -> Iterator[Journal]:
    """Lock the folder of a run, and open its journal for a task with this option."""
    require_journal(out, option)
    with (
        _add_resume_hint(out, option),
        lock_folder(out),
        closing(Journal(out / JOURNAL, counts_time=counts_time)) as journal,
    ):
        yield journal


def load_unchanged_options(
    out: Path, journal: Journal, flag: MessagePart, moved: Path | None = None
) -> Options:
    """Return the recorded options of a run whose files have not changed.

    Args:
        moved: the new path of the program, if it has moved.

    Raises:
        UsageError: a file has changed.
        LoadError: a file does not exist any more.
    """
    run, result = journal.fact("run"), journal.fact(RESULT)
    with journal.db.checked_decoding():
        options = Options.from_json(run["options"]).with_files(moved_file_finder(out))
        options = replace(options, out=out)
    if moved is not None:
        options = replace(options, model=moved.resolve())
    require_unchanged(flag, run, options)
    if result is None:
        return options
    # A sweep creates the inputs of its reduction, and drops the options of sweeps.
    inputs = Path(result["inputs"]) if result["inputs"] else None
    changes = {"inputs": inputs, "environment": result["environment"]}
    return replace(options, sweeping=None, **changes).with_files(moved_file_finder(out))


def require_journal(out: Path, option: str) -> None:
    """Require that a folder holds a run.

    Raises:
        UsageError: it does not.
    """
    if not _holds_journal(out, option):
        what = "the folder contains no run" if out.exists() else "no such folder"
        flag = Flag(option, str(out))
        where = (
            "the folder of a run is its ",
            Flag("--out"),
            ", or shrinkfx-out/<model>-<number>",
        )
        raise UsageError(flag, f": {what}; ", *where)


def _holds_journal(out: Path, option: str) -> bool:
    try:
        return (out / JOURNAL).is_file()
    except OSError as error:  # no permission, or not a valid name of a folder
        flag, advice = Flag(option, str(out)), "choose a writable folder"
        raise UsageError(flag, f": {error.strerror}: {advice}") from error


@contextlib.contextmanager
def _add_resume_hint(out: Path, again: str = "--resume") -> Iterator[None]:
    """Add a note that says how to resume, if an error ends the run early."""
    try:
        with raise_storage_errors(out):
            yield
    except (Finished, UsageError, LoadError, NotReproducible, JournalError):
        raise
    except BudgetExhausted as error:
        error.add_note(
            f"to continue with a larger budget: shrinkfx --resume {out} --max-checks N "
            "--max-minutes M"
        )
        raise
    except (ShrinkfxError, KeyboardInterrupt) as error:
        if _holds_journal(out, "--out"):
            error.add_note(f"to resume: shrinkfx {again} {out}")
        raise


def _remove_drafts(out: Path) -> None:
    for path in out.glob(f"{DRAFT}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove_journal(out: Path) -> None:
    for path in out.glob(f"{JOURNAL}*"):
        path.unlink()


_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)


@contextlib.contextmanager
def raise_storage_errors(out: Path) -> Iterator[None]:
    """Raise StorageError if a file cannot be written, or its folder was removed.

    Args:
        out: the folder of the run, which the error names if no file is known.

    Raises:
        StorageError: the message says what to do.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and scratch.is_root_removed():
            raise StorageError(str(scratch.root()), *REMOVED) from error
        if error.errno == errno.ENOENT and not out.is_dir():
            raise StorageError(str(out), *OUT_REMOVED) from error
        if error.errno not in _STORAGE:
            raise
        where = str(error.filename or out)
        raise StorageError(
            where, error.strerror or "", "free some disk space"
        ) from error


def resume_command(context: RunContext, *, larger: bool = False) -> str:
    """Return the command that resumes a run that was stopped or skipped steps.

    Args:
        larger: only a larger budget can continue the run.
    """
    takes_more = larger or context.out_of_budget
    more = larger_budget(context.options) if takes_more else ""
    return f"shrinkfx --resume {context.out} {more}".rstrip()


def larger_budget(options: Options) -> str:
    """Return the budget options that the run has, with placeholders; '' for none."""
    flags = ["--max-checks N"] if options.max_checks else []
    flags += ["--max-minutes M"] if options.max_minutes else []
    return " ".join(flags)


_Budget = tuple[int | None, float | None]


def is_larger(request: _Budget, before: _Budget) -> bool:
    """Return whether a limit that was set before is larger now."""
    pairs = zip(request, before, strict=True)
    return any(new and old and new > old for new, old in pairs)
