"""The exceptions that shrinkfx raises on purpose, with advice for the user.

A failing candidate is not an exception: it is a value, a ``Verdict``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

SEE_DOCTOR = "run shrinkfx doctor to see which parts of this environment work"
"""Last line of the advice of errors that a broken environment may cause."""

REPORT_BUG = "please report this with the output of shrinkfx doctor"
"""Advice of errors that a bug of shrinkfx may cause."""


class ShrinkfxError(Exception):
    """Base class of all exceptions that shrinkfx raises on purpose.

    Args:
        parts: the parts of the message. It names options as on the command line, for
            callers of the Python API too.
    """

    exit_code = 1
    status = "error"
    """The status in the last event of a run that it ends."""

    def __init__(self, *parts: str) -> None:
        super().__init__("".join(parts))


class UsageError(ShrinkfxError):
    """An option or an argument is invalid; nothing was started."""

    exit_code = 2


class LoadError(ShrinkfxError):
    """The program, its inputs or a preload cannot be read.

    Args:
        subject: the file or module that cannot be read.
        reason: what is wrong with it.
        advice: what the user can try next.
    """

    exit_code = 2

    def __init__(self, subject: str, reason: str, advice: str = "") -> None:
        self.subject = subject
        self.reason = reason
        self.advice = advice
        super().__init__(subject, ": ", reason, *(("\n", advice) if advice else ()))


class NotReproducible(ShrinkfxError):
    """The program does not fail as requested.

    Args:
        wanted: the requested kind of failure.
        runs: number of runs of the program.
        seen: the outcomes of the runs.
        advice: what the user can try next.
        seconds: duration of the runs without the compilation, if a time limit ended
            them.
        kind: the kind of failure that every run showed; '' if a run passed, or if the
            kinds differ.
    """

    exit_code = 3
    kind = ""

    def __init__(
        self,
        wanted: str,
        runs: int,
        seen: list[str],
        advice: str,
        seconds: float | None = None,
        kind: str = "",
    ) -> None:
        self.kind = kind
        self.wanted = wanted
        self.runs = runs
        self.seen = seen
        self.advice = advice
        self.seconds = seconds
        request = "" if wanted == "any" else (" with '", wanted, "'")
        texts = "\n".join(f"  {text}" for text in seen)
        count = f"{runs} runs" if runs != 1 else "1 run"
        head = f"outcome of {count}"
        if seconds is not None:
            head = f"outcome of {count} in {seconds:.0f} s"
        message = "the program does not fail", *request, f"; {head}:\n{texts}\n", advice
        super().__init__(*message)


class KnownFailure(ShrinkfxError):
    """The program fails because of bugs that earlier runs have reduced.

    Args:
        bugs: one line for each bug.
        folders: the folders with the bugs.
    """

    exit_code = 7
    status = "known"

    def __init__(self, bugs: Sequence[str], folders: Sequence[str]) -> None:
        self.folders = folders
        super().__init__(
            f"known bug: {'; '.join(bugs)}\n"
            "the operators of each bug alone fail in the same way; without them, this "
            "program passes, or fails in a way that the options exclude\n"
            "to reduce it anyway: omit --known, and name another --out"
        )


class NothingToReduce(ShrinkfxError):
    """The captured script does not fail, or not in a part that can be reduced."""

    exit_code = 3


class NotCuttable(NotReproducible):
    """No graph form of the program that shrinkfx can cut shows the failure.

    Args:
        wanted: the requested kind of failure.
        known: a clause that describes the failure of the program in the file.
        seen: the outcomes of the runs of the other forms.
    """

    def __init__(self, wanted: str, known: str, seen: list[str]) -> None:
        self.wanted = wanted
        self.runs = len(seen)
        self.seen = seen
        texts = "\n".join(
            f"  {text}"
            + (f" ({seen.count(text)} times)" if seen.count(text) > 1 else "")
            for text in dict.fromkeys(seen)
        )
        ShrinkfxError.__init__(
            self,
            f"{known}, but no form of the program that shrinkfx can reduce fails "
            "(flat inputs, without and with in-place operators); outcome of the other "
            f"forms:\n{texts}\n{REPORT_BUG} and the .pt2",
        )


class FailsDifferently(NotReproducible):
    """The captured program fails, but differently than in its script.

    Args:
        in_script: the failure in the script.
        seen: the failure in this run.
        advice: what the user can try next.
    """

    def __init__(self, in_script: str, seen: str, advice: str) -> None:
        self.wanted = "any"
        self.runs = 1
        self.seen = [seen]
        self.advice = advice
        summary = "the program fails, but differently than in the script"
        comparison = f"in the script: {in_script}\n  here: {seen}"
        ShrinkfxError.__init__(self, f"{summary}:\n  {comparison}\n", advice)


class InvalidEdit(ShrinkfxError):
    """An edit does not apply to a candidate.

    Strategies may propose such edits; the reducer skips them.
    """


class StrategyError(ShrinkfxError):
    """A strategy is unknown, or breaks the contract of ``Strategy.propose``."""

    exit_code = 2


class SpeculationError(ShrinkfxError):
    """A speculative search cannot compute its next query.

    This exception never ends a run: if the search itself reaches that query, it raises
    the underlying error.
    """


class WorkerError(ShrinkfxError):
    """The worker, the process that imports torch, died or stopped answering.

    Args:
        reason: what the parent process observed.
        log: the last lines of the worker's log.
        killed: whether the worker was killed from outside.
    """

    def __init__(self, reason: str, log: str = "", *, killed: bool = False) -> None:
        self.reason = reason
        self.log = log
        self.killed = killed
        super().__init__(reason + (f"\nits last lines:\n{log}" if log else ""))


class StorageError(ShrinkfxError):
    """A file cannot be written or read; the results so far are kept.

    Args:
        subject: the file or folder.
        reason: the cause of the error.
        advice: what the user can do.
    """

    exit_code = 2

    def __init__(self, subject: str, reason: str, advice: str) -> None:
        self.subject = subject
        self.reason = reason
        self.advice = advice
        super().__init__(f"{subject}: {reason}\n", advice)


class InstallError(ShrinkfxError):
    """An environment with another version of PyTorch cannot be made.

    Args:
        subject: the version, the package index, the installer or the folder.
        reason: how the installation failed.
        advice: what the user can do.
    """

    exit_code = 2

    def __init__(self, subject: str, reason: str, advice: str) -> None:
        self.subject = subject
        self.reason = reason
        self.advice = advice
        sentence = reason.rstrip(".")
        super().__init__(f"{subject}: {sentence}. Nothing was changed.\n", advice)


class JournalError(StorageError):
    """The journal is damaged or of another version; the run cannot be resumed."""


class OtherVersionJournal(JournalError):
    """The journal of a run was written by another version of shrinkfx."""


class Finished(ShrinkfxError):
    """The folder contains this run, which is already finished.

    Args:
        folder: the folder of the run.
        said: the result of the run, in one line.
        exit_code: the exit code of the run.
        at: when the run finished, in seconds since 1970.
        more: options of ``--resume`` with which the run does the steps that it skipped
            for lack of minutes or checks; '' if it skipped none.
    """

    def __init__(
        self, folder: str, said: str, exit_code: int, at: float, more: str = ""
    ) -> None:
        self.folder = folder
        self.said = said
        self.exit_code = exit_code
        self.more = more
        date = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        skipped = f"; skipped steps: shrinkfx --resume {folder} {more}" if more else ""
        super().__init__(f"{folder}: this run finished on {date}: {said}{skipped}")


class BudgetExhausted(ShrinkfxError):
    """The run has used up its checks or its minutes."""

    exit_code = 4


class PhaseLimitReached(BudgetExhausted):
    """A phase has used up its own limit of checks, which the budget does not change."""


def join_lines(messages: Iterable[str]) -> str:
    """Join messages with newlines, without the empty ones."""
    return "\n".join(filter(None, messages))
