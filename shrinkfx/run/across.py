"""Run a repro with other versions of PyTorch: ``--across`` and ``--torch``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.check.oracle import Limits, RequestHandler
from shrinkfx.environments.choice import Choice
from shrinkfx.environments.versions import order, public, summarize
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded, ignore_event
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.script import RAN_TO_END_PREFIX, convert_script_ending
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.display_text import cut_text, first_line
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import RunCommand
from shrinkfx.system import scratch
from shrinkfx.wording import Flag


@dataclass(frozen=True)
class InterpreterResult:
    """The result of a repro with another interpreter.

    Attributes:
        torch: its version of PyTorch, or ''.
        seen: the outcome of the repro, in one line.
        fails: True if the repro failed as its header states, or in any way if the
            header states no failure; False if it passed; None for any other result.
    """

    python: str
    torch: str
    seen: str
    fails: bool | None

    def __str__(self) -> str:
        where = f"torch {self.torch}" if self.torch else self.python
        verdict = {True: "fails", False: PASSES, None: "cannot tell"}[self.fails]
        if self.python == sys.executable:
            return f"{where}: {verdict} (this interpreter)"
        seen = "" if self.fails is False else f": {first_line(self.seen)}"
        return f"{where}: {verdict}{seen}"


@dataclass(frozen=True)
class ByVersion:
    """The results of a repro on several versions of PyTorch, the oldest first.

    Attributes:
        runs: one for each interpreter; interpreters without PyTorch come last.
        sentence: states on which versions the repro fails.
        needs: packages that the repro needs and that were not installed, or ''.
    """

    runs: tuple[InterpreterResult, ...]
    sentence: str
    needs: str = ""

    @property
    def verdicts(self) -> dict[str, bool | None]:
        """Return the verdict of each version."""
        return verdicts(self.runs)


def by_version(
    runs: Iterable[InterpreterResult],
    released: Sequence[str] | None = None,
    needs: str = "",
) -> ByVersion:
    """Sort runs by version, and summarize them.

    Args:
        released: all existing versions; None if they are not known.
        needs: as in ``ByVersion``.
    """
    known = sorted(runs, key=lambda run: (not run.torch, order(run.torch)))
    return ByVersion(tuple(known), summarize(verdicts(known), released), needs)


def verdicts(runs: Sequence[InterpreterResult]) -> dict[str, bool | None]:
    """Return the verdicts by release, or by build if a release has several builds."""
    names = [public(run.torch) for run in runs]
    by_name: dict[str, bool | None] = {}
    for name, run in zip(names, runs, strict=True):
        key = name if names.count(name) == 1 else run.torch
        if key:  # no verdict if two interpreters with one version disagree
            same = by_name.get(key, run.fails) is run.fails
            by_name[key] = run.fails if same else None
    return by_name


PASSES = "passes"


def classify_run(
    seen: Observation, expected: Signature | None, *, checked: bool = False
) -> tuple[str, bool | None]:
    """Classify the run of a repro.

    Args:
        expected: the failure that its header states; None if it states none.
        checked: the run could detect an out-of-bounds access.

    Returns:
        The outcome in one line; and True if the repro failed as stated, or at all if
        nothing is stated, False if it passed, None if it ended in another way.
    """
    failing = seen.signature
    if failing or seen.invalid or seen.unresolved:
        fails = expected.admits(failing) if expected else failing is not None
        return seen.in_words, fails or None
    if RAN_TO_END_PREFIX in seen.log and not checked:
        return (
            f"{RAN_TO_END_PREFIX}no check was active here, so the failure may go "
            "unnoticed",
            None,
        )
    return PASSES, False


def interpreters(named: Sequence[str]) -> list[str]:
    """Find interpreters by path, or by name on PATH as a shell does.

    Raises:
        UsageError: an interpreter does not exist.
    """
    paths = []
    for name in named:
        path = shutil.which(name)
        if path is None:
            raise UsageError(
                Flag("--across", name),
                ": no such interpreter; name the Python of an environment with "
                "another PyTorch, as in ",
                Flag("--across", "/envs/2.11/bin/python"),
            )
        # Not resolved, because the link to Python is what selects the environment.
        paths.append(str(Path(path).absolute()))
    return paths


@dataclass(frozen=True)
class Others:
    """Runs a repro with other interpreters, each time in an empty folder.

    Attributes:
        server: runs commands, without environment variables that tune PyTorch.
        expected: the failure that the header states, or None.
        listener: receives the result of each interpreter.
    """

    server: RequestHandler
    limits: Limits
    files: Sequence[Path]
    expected: Signature | None
    listener: Listener = ignore_event

    def run(self, pythons: Sequence[str]) -> Iterator[InterpreterResult]:
        """Run the repro with each interpreter, and yield the results."""
        for python in pythons:
            self.listener(
                ActivityStarted(f"running {self.files[0].name} with {python}")
            )
            ending = self._ask(python, "-c", _PRINT_VERSION)
            version = ending.log.strip().rpartition("\n")[2]
            if ending.how != "exit" or ending.code or ending.raised:
                why = (
                    cut_text(version)
                    or f"the process ended with {ending.how} {ending.code}"
                )
                one = InterpreterResult(
                    python, "", f"does not import torch: {why}", None
                )
            else:
                one = self._seen(python, version)
            self.listener(NoteAdded(str(one)))
            yield one

    def run_on(
        self, choice: Choice, here: InterpreterResult
    ) -> tuple[list[InterpreterResult], bool]:
        """Run the repro on the chosen versions of PyTorch except this interpreter's.

        Args:
            here: the result with this interpreter.

        Returns:
            The results, and whether Ctrl-C ended the runs early.
        """
        runs: dict[str, InterpreterResult] = {}

        def fails(version: str) -> bool | None:
            if choice.is_here(version):
                return here.fails
            if version not in runs:
                try:
                    (runs[version],) = self.run([choice.python(version)])
                except InstallError as error:
                    runs[version] = InterpreterResult("", version, error.reason, None)
                    self.listener(NoteAdded(str(runs[version])))
            return runs[version].fails

        try:
            choice.visit(fails)
        except KeyboardInterrupt:
            return [*runs.values()], True
        return [*runs.values()], False

    def _seen(self, python: str, version: str) -> InterpreterResult:
        script = self.files[0]
        ending = self._ask(python, "-X", "faulthandler", script.name)
        seen = classify_ending(
            convert_script_ending(
                ending, script.read_text(encoding="utf-8"), script.name
            )
        )
        return InterpreterResult(python, version, *classify_run(seen, self.expected))

    def _ask(self, python: str, *arguments: str) -> Ending:
        with scratch.make_scratch_folder("repro") as folder:
            for file in self.files:
                shutil.copy(file, folder)
            # PYTHONPATH is for this interpreter, and may break another one.
            words = ("env", "-u", "PYTHONPATH", python, *arguments)
            request = Request(
                RunCommand(words, folder),
                timeout_s=self.limits.timeout_s,
                max_rss_bytes=self.limits.max_rss_bytes,
            )
            return self.server.ask(request)


_PRINT_VERSION = "import torch; print(torch.__version__)"
