"""The folder of a run: lock it, record the run, let a later session resume it.

The options that the journal records for a run, and the test that they still hold.
Environment variables that may change a failure count as options.

List the runs in a folder with their outcomes, from their journals and summaries. The
outcome of a finished run is a ``Reduction``, whose text is what terminals show.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from shrinkfx.check.client.environment import select_tuning_variables
from shrinkfx.check.client.orphans import clear_orphans
from shrinkfx.check.client.restarting import OUT_REMOVED
from shrinkfx.check.client.server import REMOVED
from shrinkfx.errors import (
    BudgetExhausted,
    Finished,
    JournalError,
    KnownFailure,
    LoadError,
    NotReproducible,
    OtherVersionJournal,
    ShrinkfxError,
    StorageError,
    UsageError,
)
from shrinkfx.events import Listener
from shrinkfx.failure.signature import (
    Kind,
    Signature,
    Stage,
    describe_changed_difference,
    explain_other_kind,
)
from shrinkfx.findings.known_bugs import RUNS, KnownBug
from shrinkfx.findings.record import EXPLAIN, Explanation, explanation_lines
from shrinkfx.journal.journal import Journal, read_progress
from shrinkfx.options.options import (
    REMOVED_OPTIONS,
    BudgetOptions,
    ExplainOptions,
    Options,
)
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import short_kernels
from shrinkfx.program.listing.printed_program import group_untested_kinds
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.flags import list_record_options
from shrinkfx.protocol.record import read_older
from shrinkfx.protocol.requests import HASH_SEED
from shrinkfx.report.anonymous import use_repro_names
from shrinkfx.report.page.record import REPORT
from shrinkfx.report.record import ModelRemains
from shrinkfx.run.context import RunContext
from shrinkfx.system import scratch
from shrinkfx.system.folders import (
    CAPTURE,
    DRAFT,
    ISSUE,
    JOURNAL,
    LOCK,
    SUMMARY,
    is_folder_locked,
    lock_folder,
    moved_file_finder,
    output_folder,
    remove_if_empty,
)

BUDGET = tuple(option.name for option in list_record_options(BudgetOptions))
"""Options that may differ when a run is resumed."""

_EXPLAIN = tuple(option.name for option in list_record_options(ExplainOptions))
"""Options about the analysis of a result, which do not change the result."""

_START_OPTIONS = (
    *("title", "name", "command", "cwd", "lacking", "in_script", "others"),
    *("sandbox", "known"),
)
"""Options about how the run was started; no verdict in the journal depends on them."""


def describe_request(options: Options) -> dict[str, Any]:
    """Return all that the verdicts of a run depend on, as JSON-serializable data."""
    request = {
        "options": options.to_json(),
        "content": digest_inputs(options),
        "tuning": inherited_variables(),
    }
    read: dict[str, Any] = json.loads(json.dumps(request))  # tuples become lists
    return read


def request_identity(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run's description without the options that may change during a run."""
    free = {*BUDGET, *_EXPLAIN, *_START_OPTIONS, *REMOVED_OPTIONS}
    options = {k: v for k, v in run["options"].items() if k not in free}
    return {**run, "options": options}


def digest_inputs(options: Options) -> str:
    """Return a digest of the program, the inputs and the preloads."""
    digest = hashlib.sha256()
    for name in map(str, (options.model, options.inputs, *options.preload)):
        if os.path.isfile(name):  # the content, because the file may have moved
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        else:
            digest.update(hashlib.sha256(name.encode()).digest())
    return digest.hexdigest()


_TAKES_THE_PROGRAM = ("--resume", "--candidate")
"""Options for the folder of a run that also accept a new path of its program."""


def require_unchanged(flag: str, run: dict[str, Any], options: Options) -> None:
    """Require that the files and the environment of a run are still the same.

    Args:
        flag: the option that the user typed, such as ``--resume out``.
        run: the description in the journal.

    Raises:
        LoadError: a file does not exist any more.
        UsageError: a file or an environment variable has changed.
    """
    if options.cwd and not options.cwd.is_dir():
        raise UsageError(
            f"{flag}: the run's working folder no longer exists, and the run imports "
            f"modules from it: mkdir -p {options.cwd}, or start a new run"
        )
    for path in options.files:
        if not path.is_file():
            advice = "restore the file, or start a new run with another --out"
            if path == options.model and flag.startswith(_TAKES_THE_PROGRAM):
                advice = f"if the file has moved: shrinkfx NEW.pt2 {flag}"
            raise LoadError(str(path), "the file no longer exists", advice)
    if digest_inputs(options) != run["content"]:
        names = ", ".join(str(path) for path in options.files)
        raise UsageError(
            f"{flag}: one of these files changed since that run: {names}. Start a new "
            "run with another --out"
        )
    now, then = inherited_variables(), inherited_variables(run["tuning"])
    for name in sorted({*now, *then}):
        was = then.get(name)
        if now.get(name) != was:
            how = f"unset {name}" if was is None else f"export {name}={was}"
            raise UsageError(
                f"{flag}: the environment variable {name} had another value in that "
                f"run: {how}"
            )


ONLY_SHOWN = frozenset(
    {
        *("TORCH_LOGS", "TORCH_LOGS_FORMAT", "TORCH_CPP_LOG_LEVEL"),
        *("TORCHDYNAMO_VERBOSE", "TORCH_SYMBOLIZE_MODE", "TORCH_DISABLE_ADDR2LINE"),
        *("TORCH_SHOW_CPP_STACKTRACES", "TORCH_SHOW_CPP_STACKTRACES_WITH_LINENO"),
        *("TRITON_PRINT_AUTOTUNING", "MKL_VERBOSE", "OMP_DISPLAY_AFFINITY"),
        *("OMP_DISPLAY_ENV", "KMP_SETTINGS", "KMP_VERSION", "KMP_WARNINGS"),
    }
)
"""Variables that change only what is printed, not what is compiled or run."""


def inherited_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that may have changed the failure."""
    variables = select_tuning_variables(environment)
    return {name: variables[name] for name in variables if name not in ONLY_SHOWN}


def variables_to_test(
    preset: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the environment variables without which a repro may still fail.

    The hash seed is not among them, because one run tells nothing about other seeds.

    Args:
        preset: variables that the user has set with ``--env``. They are set for the
            input program, so the repro may not need them.
    """
    return sorted({*inherited_variables(environment), *preset} - {HASH_SEED})


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


def record_known_failure(context: RunContext, bugs: Sequence[KnownBug]) -> KnownFailure:
    """Record that the run has ended because its failure is known; return the error."""
    known = [str(bug) for bug in bugs], [str(bug.folder) for bug in bugs]
    error = KnownFailure(*known)
    ended = {"said": f"{error.status}: {'; '.join(known[0])}", "known": known}
    context.journal.note("finished", {**ended, "exit_code": error.exit_code})
    return error


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
            raise UsageError(
                f"--out {out} contains another run: choose an empty folder"
            )
        return
    with closing(Journal(out / JOURNAL)) as journal:
        run, finished = journal.fact("run"), _read_finished(out, journal)
    if run is None:  # killed before it began: there is nothing to resume
        _remove_journal(out)
        return
    if request_identity(run) != request_identity(describe_request(options)):
        raise UsageError(
            f"--out {out} contains another run: --resume {out} resumes it; or choose "
            "an empty folder"
        )
    if finished:
        raise finished
    raise UsageError(
        f"--out {out} contains this run, unfinished; to resume it: --resume {out}"
    )


def _read_finished(out: Path, journal: Journal) -> Finished | KnownFailure | None:
    """Return the outcome of a finished run and its time; None if it is not finished."""
    known = journal.fact("finished")
    if known is None:
        return None
    if "known" in known:
        return KnownFailure(*known["known"])
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
            raise UsageError(
                f"--resume {out}: the run was killed before it started: repeat the "
                "original command"
            )
        before = _recorded_options(out, journal)
        finished = _read_finished(out, journal)
        more = isinstance(finished, Finished) and finished.more
        if finished and not (more and is_larger(new.budget, before.budget)):
            raise finished
        limits = {name: getattr(new, name) or getattr(before, name) for name in BUDGET}
        options = replace(before, out=out, **limits)
        if new.model != Path():
            options = replace(options, model=new.model.resolve())
        require_unchanged(f"--resume {out}", run, options)
        stopped = journal.fact("stopped")
        if stopped and stopped["budget"] and options.budget == before.budget:
            raise BudgetExhausted(f"{out}: {stopped['said']}")
        journal.note("run", {**run, "options": options.to_json()})
        for ended in ("stopped", "finished"):  # the run is active again
            journal.note(ended, None)
        return options


def _recorded_options(out: Path, journal: Journal) -> Options:
    """Return the options of a run, with the paths that its files have now."""
    with journal.db.checked_decoding():
        options = Options.from_json(journal.fact("run")["options"])
        return options.with_files(moved_file_finder(out))


RESULT = "result"
"""Name of the journal's fact with the verified result and the options of its
reduction.
"""

TARGET = "target"
"""Name of the journal's fact with the failure that the run reduces, if it is another
one than the baseline's.
"""

PROGRAM = "program"
"""Name of the journal's fact with the graph that candidates are cut from."""


def load_finished_options(out: Path) -> Options:
    """Return the recorded options of a run that has ended with a result.

    Raises:
        UsageError: there is no run, it has no result yet, or its files have changed.
    """
    flag = f"--explain {out}"
    with _open_journal(out, "--explain") as journal:
        run, result = journal.fact("run"), journal.fact(RESULT)
        ended = journal.fact("finished") or journal.fact("stopped")
        if run is None or not ended:
            raise UsageError(
                f"{flag}: the run has no result yet; to resume it: --resume {out}"
            )
        if result is None:
            raise UsageError(
                f"{flag}: the run has no recorded result (it is a sweep, or of an "
                "earlier version): start a new run with another --out"
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
            raise UsageError(f"--report {out}: the run was killed before it started")
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
    out: Path, journal: Journal, flag: str, moved: Path | None = None
) -> Options:
    """Return the recorded options of a run whose files have not changed.

    Args:
        moved: the new path of the program, if it has moved.

    Raises:
        UsageError: a file has changed.
        LoadError: a file does not exist any more.
    """
    run, result = journal.fact("run"), journal.fact(RESULT)
    options = replace(_recorded_options(out, journal), out=out)
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
        raise UsageError(
            f"{option} {out}: {what}; the folder of a run is its --out, or "
            "shrinkfx-out/<model>-<number>"
        )


def _holds_journal(out: Path, option: str) -> bool:
    try:
        return (out / JOURNAL).is_file()
    except OSError as error:  # no permission, or not a valid name of a folder
        reason = f"{error.strerror}: choose a writable folder"
        raise UsageError(f"{option} {out}: {reason}") from error


@contextlib.contextmanager
def _add_resume_hint(out: Path, again: str = "--resume") -> Iterator[None]:
    """Add a note that says how to resume, if an error ends the run early."""
    try:
        with raise_storage_errors(out):
            yield
    except (
        *(Finished, UsageError, LoadError, NotReproducible, JournalError),
        KnownFailure,
    ):
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


@dataclass(frozen=True, repr=False)
class Reduction:
    """The result of a run. ``str()`` gives the text that the command line prints.

    Attributes:
        status: ``reduced``, ``stopped`` (by the budget or Ctrl-C) or ``unverified``.
        candidate: the reduced program, which fails with ``signature``.
        signature: the failure of the input program: kind, stage, normalized message.
        seen: the failure of the reduced program, with its own message.
        minimal: whether no single operator of the reduced program can be removed.
        operators: number of operators of the input program and of the reduced program.
        checks: number of checks of the run.
        seconds: duration of the run.
        verified: number of runs of the repro, and how many of them failed.
        repro: path of the repro; its folder contains ``minimal.pt2`` and
            ``summary.json``.
        cause: sentences about the cause of the failure.
        cause_lines: the printed lines about the cause; all is in ``explain.json``.
        issue: path of ``ISSUE.md``; None if a command of the user tests the candidates.
        left_of_model: names and values of the user's model that the repro still
            contains, as one line of text.
        shows_alone: whether the repro fails without guard pages and without the
            interpreter.
        summary: the contents of ``summary.json``.
        to_go_on: the command that resumes a stopped search, or ''.
        report: path of ``report.html``; None if it could not be written.
    """

    status: str
    candidate: Candidate
    signature: Signature
    seen: Signature
    minimal: bool
    operators: tuple[int, int]
    checks: int
    seconds: float
    verified: tuple[int, int]
    repro: Path
    summary: Mapping[str, Any]
    to_go_on: str = ""
    cause: tuple[str, ...] = ()
    cause_lines: tuple[str, ...] = ()
    report: Path | None = None
    issue: Path | None = None
    left_of_model: str = ""
    shows_alone: bool = True

    def __repr__(self) -> str:
        before, after = self.operators
        return (
            f"<Reduction: {self.status}, {before} -> {after} operators, "
            f"{self.seen.kind} in {self.seen.stage}, {self.repro}>"
        )

    def __str__(self) -> str:
        return "\n".join(self.render_lines(everything=False))

    def render_lines(
        self, *, everything: bool, until: str | None = None
    ) -> Iterator[str]:
        """Yield the lines that describe a result.

        Warnings, a flaky failure, other failures and the like have lines of their own.

        Args:
            everything: yield all lines about the cause, and up to three other failures.
            until: the kind of failure that the user asked for; None means the kind of
                the reduced failure.
        """
        runs, failed = self.verified
        before, after = self.operators
        minimal = "no single operator can be removed"
        if not self.minimal:
            minimal = "some operators may not be needed"
        spent = f"{self.checks} checks, {self.seconds:.0f} s"
        sizes = f"{_STATUS_TEXTS[self.status]} from {before} to {after} {_noun(after)}"
        yield f"result:   {sizes}; {minimal}; {spent}"
        if self.minimal:
            untested = self.summary.get("minimal_by_kind", {})
            for why, kinds in group_untested_kinds(untested).items():
                names = ", ".join(kinds)
                yield f"skipped:  reduction of {names} ({_shorten_text(why)})"
        yield f"failure:  {short_kernels(str(self.seen))}"
        wanted = until or self.signature.kind
        if why := explain_other_kind(wanted, self.seen.kind):
            yield f"note:     {why}"
        if change := describe_changed_difference(self.signature, self.seen):
            yield f"changed:  {change}"
        for text in self.summary.get("warnings", []):
            if not text.startswith(_REPEATED_WARNINGS):
                yield f"warning:  {text}"
        rate = self.summary["rate"]
        if min(rate.values()) < 1.0:
            yield (
                f"flaky:    {rate['before']:.0%} of runs of the input program fail, "
                f"{rate['after']:.0%} of the reduced program"
            )
        yield from (
            s for s in self.cause_lines if everything or s.startswith(_ALWAYS_PRINTED)
        )
        folder = shlex.quote(str(self.repro.parent))
        caught = self.summary.get("other_failures", ())
        yield from _render_other_failures(
            caught, folder, _MAX_OTHER_FAILURES if everything else 1
        )
        loop = "; each repeats the program until it fails" * (rate["after"] < 1.0)
        counts = f"{failed} of {runs} runs"
        yield f"verified: {counts} of the repro fail in the same way{loop}"
        yield f"repro:    {self.repro}"
        if reports := [p.name for p in (self.issue, self.report) if p]:
            yield f"see also: {', '.join(reports)}"
        if parts := self.left_of_model:
            yield f"privacy:  parts of your model in the repro: {parts}"
        yield _render_next_command(self)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line for this result."""
        return {"reduced": 0, "stopped": 4, "unverified": 5}[self.status]


_MAX_OTHER_FAILURES = 3
"""Maximum number of other failures to print; ``summary.json`` lists all of them."""

_MAX_TEXT_CHARACTERS = 80
"""Maximum number of characters of a message in a line."""

_REPEATED_WARNINGS = ("fake-kernel mismatch: ", "custom operator: ")
"""Prefixes of warnings that the cause states as well, so that they are not printed."""

_STATUS_TEXTS = {
    "reduced": "reduced",
    "stopped": "stopped early, reduced",
    "unverified": "not verified, reduced",
}
"""Texts of the status in the first line."""

_ALWAYS_PRINTED = ("cause:", "location:")
"""Prefixes of the lines of the cause that are always printed."""


def _render_other_failures(
    caught: Sequence[Any], folder: str, shown: int
) -> Iterator[str]:
    for each in caught[:shown]:
        text = each["text"].partition("\n")[0]
        get = f"shrinkfx --candidate {each['candidate']} --out {folder}"
        yield (
            f"other failures: a program of {each['operators']} "
            f"{_noun(each['operators'])} fails with {each['kind']} "
            f"{Stage(each['stage']).place}: `{_shorten_text(text)}`; for a repro: {get}"
        )
    if len(caught) > shown:
        yield f"other failures: {len(caught) - shown} more in summary.json"


def _noun(operators: int) -> str:
    return "operator" if operators == 1 else "operators"


def _shorten_text(text: str) -> str:
    most = _MAX_TEXT_CHARACTERS
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _render_next_command(reduction: Reduction) -> str:
    """Return the line with the command that the user would run next."""
    runs, failed = reduction.verified
    repro = shlex.quote(str(reduction.repro))
    if reduction.to_go_on:
        return f"next:     {reduction.to_go_on}"
    if reduction.signature.kind is Kind.CHECK:
        if reduction.repro.suffix == ".py":
            return f"next:     python {repro} (writes repro.pt2 for your command)"
        return f"next:     your command, with {repro} in place of {{}}"
    if failed < runs or not reduction.shows_alone:
        return f"next:     shrinkfx verify {repro}"
    if not reduction.cause:
        folder = shlex.quote(str(reduction.repro.parent))
        return f"next:     shrinkfx --explain {folder}"
    return f"next:     python {repro}"


class State(StrEnum):
    """The state of a run that has not finished, or of its journal."""

    AT_WORK = "at work"
    STOPPED = "stopped"
    """By its budget or Ctrl-C: the smallest program so far is written."""
    KILLED = "killed"
    BROKEN_OFF = "broken off"
    """By an error, or by Ctrl-C before there was a repro."""
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    """Another version of shrinkfx wrote its journal."""
    UNREADABLE = "unreadable"
    CAPTURED = "captured"
    """A script has run, and none of its programs was reduced yet."""
    DOES_NOT_FAIL = "does not fail"
    """The folder keeps the program of a dump, which does not fail."""


RESUMABLE = (State.STOPPED, State.KILLED, State.BROKEN_OFF, State.CAPTURED)
"""States of runs that ``--resume`` accepts."""

_SWEEP_STATUS = {0: "passes", 3: "missed", 6: "found"}
"""The status of a finished sweep, by its exit code."""


@dataclass(frozen=True)
class Run:
    """The state of the run in a folder; unknown fields are None.

    Attributes:
        status: a ``State``, or the outcome of a finished run.
        operators: of the input program, and of the smallest program that fails so far.
        verified: how often the repro was run, and how often it failed.
        checks: number of checks of a reduction, or of sizes that a sweep has run.
        at: time of the last record, in seconds since 1970.
        problem: what is wrong with its journal, or ''.
    """

    folder: Path
    status: str
    program: str = ""
    kind: str = ""
    operators: tuple[int | None, int | None] = (None, None)
    verified: tuple[int, int] | None = None
    checks: int | None = None
    seconds: float | None = None
    at: float = 0.0
    problem: str = ""

    @property
    def may_go_on(self) -> bool:
        return self.status in RESUMABLE


def list_runs(
    folder: Path, find_capture: Callable[[Path], Run | None] = lambda _: None
) -> list[Run]:
    """List the runs in a folder, or the run of the folder itself, the latest one last.

    The runs of a triage are listed as well.

    Args:
        find_capture: finds the capture of a script or a dump in a folder without a
            journal.

    Raises:
        UsageError: the folder does not exist, or cannot be read.
    """
    try:
        children = [*folder.iterdir(), *folder.glob(f"{RUNS}/*")]
        inside = sorted(path for path in children if path.is_dir())
    except OSError as error:
        raise UsageError(f"--list {folder}: {error.strerror}\n{_WHERE}") from error
    runs = []
    for path in (folder, *inside):
        if os.path.isfile(path / JOURNAL):
            runs.append(_run_in(path))
        elif (capture := find_capture(path)) is not None:
            if is_folder_locked(capture.folder):
                capture = replace(capture, status=State.AT_WORK, problem="")
            runs.append(capture)
    return sorted(runs, key=lambda run: run.at)


_WHERE = (
    "runs are stored in shrinkfx-out, in the folder where you started them, or in "
    "their --out; list another folder with shrinkfx --list FOLDER. To start a run: "
    "shrinkfx MODEL.pt2"
)


def _run_in(folder: Path) -> Run:
    try:
        with closing(Journal(folder / JOURNAL, only_read=True)) as journal:
            run = _read_journal_state(folder, journal)
    except StorageError as error:
        state = _STATES.get(type(error), State.UNREADABLE)
        state = State.AT_WORK if is_folder_locked(folder) else state
        at = (folder / JOURNAL).stat().st_mtime
        return Run(folder, state, at=at, problem=f"{error.reason}; {error.advice}")
    over = run.status not in {*State} or run.status == State.STOPPED
    return _with_summary(run) if over else run


_STATES: Mapping[type[StorageError], State] = {
    OtherVersionJournal: State.FOREIGN,
    JournalError: State.DAMAGED,
}
"""States of runs whose journal cannot be read, by the error."""


def _read_journal_state(folder: Path, journal: Journal) -> Run:
    """Return the state of a run from its journal.

    Raises:
        JournalError: the journal is damaged.
    """
    run = journal.fact("run")
    if run is None:  # the run was killed before it began
        run = {"options": {"model": "", "sweeping": None}}
    known = journal.fact("baseline") or {}
    progress = read_progress(journal.db)
    with journal.db.checked_decoding():
        before = known["before"]["operators"] if known else None
        return Run(
            folder,
            _status(folder, journal),
            run["options"].get("name") or Path(run["options"]["model"]).name,
            _kind(journal, sweeps=run["options"]["sweeping"]),
            (before, progress.operators),
            checks=progress.checks or progress.examples,
            seconds=progress.seconds,
            at=progress.at or (folder / JOURNAL).stat().st_mtime,
        )


def _kind(journal: Journal, *, sweeps: object) -> str:
    """Return the kind of failure that the run reduces; '' if it is not known yet."""
    unchanged = (journal.fact("unchanged") or {}).get("base")
    seen = journal.fact("baseline") or unchanged or {}
    if target := journal.fact(TARGET) or seen.get("target"):
        return str(target["kind"])
    return "sweep" if sweeps else ""


def _status(folder: Path, journal: Journal) -> str:
    if finished := journal.fact("finished"):
        status: str = finished["said"].partition(":")[0]
        of_sweep = not status.isalpha()
        return _SWEEP_STATUS.get(finished["exit_code"], "over") if of_sweep else status
    if journal.fact("stopped"):
        return State.STOPPED
    if is_folder_locked(folder):  # a finished run has returned above, even if in use
        return State.AT_WORK
    # Every process removes its lock when it ends, except if it is killed.
    return State.KILLED if (folder / LOCK).exists() else State.BROKEN_OFF


def _with_summary(run: Run) -> Run:
    """Add the facts of ``summary.json`` to a run that has ended, if it can be read."""
    try:
        summary = json.loads((run.folder / SUMMARY).read_text(encoding="utf-8"))
        return replace(
            run,
            kind=summary["kind"],
            operators=(summary["operators"]["before"], summary["operators"]["after"]),
            verified=(summary["verified"]["runs"], summary["verified"]["failed"]),
            checks=summary["checks"]["total"],
            seconds=summary["seconds"],
        )
    except (OSError, ValueError, LookupError, TypeError):
        return run


@dataclass(frozen=True)
class Past:
    """The outcome of a finished run.

    Attributes:
        came: the reduction; None if there was none, or if it cannot be read.
        again: the input program, or the capture that holds it, to start another run.
    """

    came: Reduction | None
    again: Path


def read_finished_run(folder: Path) -> Past:
    """Read the outcome of the run in a folder, without changing the folder.

    Raises:
        UsageError: the folder holds no run, or the run cannot be read.
    """
    require_journal(folder, "--out")
    with closing(Journal(folder / JOURNAL, only_read=True)) as journal:
        run = journal.fact("run")
        if run is None:
            raise UsageError(f"{folder}: the run was killed before it started")
        options = _recorded_options(folder, journal)
        try:
            reduction = _read_reduction(folder, journal, anonymous=options.anonymous)
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            reduction = None  # a file is missing, or was edited by hand
    captured = options.model.parent.name == CAPTURE
    return Past(reduction, folder / CAPTURE if captured else options.model)


def _read_reduction(
    folder: Path, journal: Journal, *, anonymous: bool
) -> Reduction | None:
    result, program = journal.fact(RESULT), journal.fact(PROGRAM)
    if result is None or program is None:
        return None
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    candidate = Candidate.from_json(Skeleton.from_json(program), result["candidate"])
    target = Signature.from_json(summary["signature"])
    seen = Signature.from_json(result["seen"]) if result["seen"] else target
    explanation = read_explanation(folder)
    if not anonymous:
        new = result.get("renamed", {})
        explanation = use_repro_names(explanation, new, models_too=True)
    return replace(
        reduction_from_summary(folder, summary, candidate, target, seen),
        cause=explanation.cause,
        cause_lines=explanation_lines(explanation, seen),
        report=_there(folder / REPORT),
        issue=_there(folder / ISSUE),
    )


def reduction_from_summary(
    folder: Path,
    summary: Mapping[str, Any],
    candidate: Candidate,
    target: Signature,
    seen: Signature,
) -> Reduction:
    """Return the result that ``summary.json`` describes, without its cause."""
    operators, verified = summary["operators"], summary["verified"]
    pages, remains = summary["guard_pages"] or {}, summary.get("left_of_model", {})
    return Reduction(
        status=summary["status"],
        candidate=candidate,
        signature=target,
        seen=seen,
        minimal=summary["minimal"],
        operators=(operators["before"], operators["after"]),
        checks=summary["checks"]["total"],
        seconds=summary["seconds"],
        verified=(verified["runs"], verified["failed"]),
        repro=folder / summary["files"][0],
        summary=summary,
        left_of_model=read_older(ModelRemains, remains).in_words(),
        shows_alone=not (
            pages.get("repro_needs_them") or summary.get("interpreted_for")
        ),
    )


def read_explanation(folder: Path) -> Explanation:
    """Read the explanation of a run; return an empty one if there is none."""
    path = folder / EXPLAIN
    if not path.is_file():
        return Explanation()
    return read_older(Explanation, json.loads(path.read_text(encoding="utf-8")))


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None
