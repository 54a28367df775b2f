"""The errors a user can meet, each with what to do next.

A candidate that fails is never one of these: it is a value, a ``Verdict``.
"""

from __future__ import annotations

import time

from shrinkfx.wording import Flag, Said, Words

SEE_DOCTOR = "run shrinkfx doctor to see which parts of this environment work"
"""Last line of the advice of errors that a broken environment may cause."""

REPORT_BUG = "please report this with the output of shrinkfx doctor"
"""Advice of errors that a bug of shrinkfx may cause."""


class ShrinkfxError(Exception):
    """Catch this to catch everything that shrinkfx raises on purpose.

    Args:
        parts: what it says; each option that it names is a part of its own. As text
            they are as the command line has them.
    """

    exit_code = 1

    def __init__(self, *parts: Said) -> None:
        self.words = Words(*parts)
        super().__init__(str(self.words))


class UsageError(ShrinkfxError):
    """An option or an argument makes no sense; nothing has been started."""

    exit_code = 2


class LoadError(ShrinkfxError):
    """The program, its inputs or a preload could not be read.

    Args:
        subject: the file or module at fault.
        reason: what was seen.
        advice: the next thing to try.
    """

    exit_code = 2

    def __init__(self, subject: Said, reason: str, advice: Said = "") -> None:
        self.subject = Words(subject)
        self.reason = reason
        self.advice = Words(advice)
        super().__init__(subject, ": ", reason, *(("\n", advice) if advice else ()))


class NotReproducible(ShrinkfxError):
    """The program does not fail as asked.

    Args:
        wanted: the kind of failure that was asked for.
        runs: how often it was run.
        seen: what the runs showed instead.
        advice: the next thing to try.
        seconds: how long the runs took which compiled nothing, if that has ended them.
        kind: the kind of failure that every run showed; '' if they showed several, or
            one passed.
    """

    exit_code = 3
    kind = ""

    def __init__(
        self,
        wanted: str | Flag,
        runs: int,
        seen: list[str],
        advice: Said,
        seconds: float | None = None,
        kind: str = "",
    ) -> None:
        self.kind = kind
        self.wanted = wanted
        self.runs = runs
        self.seen = seen
        self.advice = Words(advice)
        self.seconds = seconds
        asked = "" if wanted == "any" else (" with '", wanted, "'")
        texts = "\n".join(f"  {text}" for text in seen)
        made = f"{runs} runs" if runs != 1 else "1 run"
        did = f"outcome of {made}"
        if seconds is not None:
            did = f"outcome of {made} in {seconds:.0f} s"
        whole = "the program does not fail", *asked, f"; {did}:\n{texts}\n", advice
        super().__init__(*whole)


class NothingToReduce(ShrinkfxError):
    """A script that was captured does not fail, or not in what can be reduced."""

    exit_code = 3


class NotCuttable(NotReproducible):
    """No form of the program that can be cut fails as the file's does.

    Args:
        wanted: the kind of failure that was asked for.
        known: what is known of the program as the file holds it.
        seen: what the runs of the other forms showed instead.
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


class FailsOtherwise(NotReproducible):
    """The program fails, but not as the script does that it comes from.

    Args:
        in_script: how that fails.
        seen: how the program does.
        advice: the next thing to try.
    """

    def __init__(self, in_script: str, seen: str, advice: Words) -> None:
        self.wanted = "any"
        self.runs = 1
        self.seen = [seen]
        self.advice = advice
        told = "the program fails, but differently than in the script"
        here = f"in the script: {in_script}\n  here: {seen}"
        ShrinkfxError.__init__(self, f"{told}:\n  {here}\n", advice)


class InvalidEdit(ShrinkfxError):
    """An edit does not fit the candidate it was applied to.

    Strategies may propose such edits; the reducer passes over them.
    """


class StrategyError(ShrinkfxError):
    """A strategy is unknown, or breaks the contract of ``Strategy.propose``."""

    exit_code = 2


class Unforeseen(ShrinkfxError):
    """Nobody can say what a search would ask after an answer that it may get.

    It never ends a run: if the search gets there, that says what the matter is.
    """


class WorkerError(ShrinkfxError):
    """The process that holds torch died or stopped answering.

    Args:
        reason: what the parent saw.
        log: the last lines that the worker wrote.
        killed: something has ended it from outside.
    """

    def __init__(self, reason: str, log: str = "", *, killed: bool = False) -> None:
        self.reason = reason
        self.log = log
        self.killed = killed
        super().__init__(reason + (f"\nits last lines:\n{log}" if log else ""))


class StorageError(ShrinkfxError):
    """Something could not be written or read back: what is known so far is kept.

    Args:
        subject: the file or folder.
        reason: what was seen.
        advice: what to do about it.
    """

    exit_code = 2

    def __init__(self, subject: str, reason: str, advice: Said) -> None:
        self.subject = subject
        self.reason = reason
        self.advice = Words(advice)
        super().__init__(f"{subject}: {reason}\n", advice)


class InstallError(ShrinkfxError):
    """An environment with another version of PyTorch could not be made.

    Args:
        subject: the version, the package index, the installer or the folder.
        reason: how the installation failed.
        advice: what the user can do.
    """

    exit_code = 2

    def __init__(self, subject: str, reason: str, advice: Said) -> None:
        self.subject = subject
        self.reason = reason
        self.advice = Words(advice)
        sentence = reason.rstrip(".")
        super().__init__(f"{subject}: {sentence}. Nothing was changed.\n", advice)


class JournalError(StorageError):
    """The journal of a run is damaged, or another version's: nothing goes on there."""


class ForeignJournal(JournalError):
    """The journal of a run is another version's."""


class Finished(ShrinkfxError):
    """The folder holds this very run, and it has come to its end.

    Args:
        folder: where its results are.
        said: what came of it, in a line.
        exit_code: as of that run.
        at: when that was, in seconds since 1970.
        more: options by which ``--resume`` does what it left out for want of minutes or
            checks; or ''.
    """

    def __init__(
        self, folder: str, said: str, exit_code: int, at: float, more: str = ""
    ) -> None:
        self.folder = folder
        self.said = said
        self.exit_code = exit_code
        self.more = more
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        left = f"; skipped steps: shrinkfx --resume {folder} {more}" if more else ""
        super().__init__(f"{folder}: this run finished on {when}: {said}{left}")


class BudgetExhausted(ShrinkfxError):
    """The checks or the minutes that were allowed are spent."""

    exit_code = 4


class ShareSpent(BudgetExhausted):
    """A part of a run has asked all that it may: a larger budget changes nothing."""
