"""Run a repro as another user would: in an empty folder, without shrinkfx."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from shrinkfx.check import oracle
from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient, Limits, Meter, RequestHandler
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.classify import SERVER_DIED, classify_ending
from shrinkfx.failure.readers.script import convert_script_ending
from shrinkfx.failure.readers.threads import lost_exception_text, may_vary_by_thread
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.uninstalled_files import ONLY_ON
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build, Guard, Probe
from shrinkfx.protocol.requests import CheckOptions, Request, RunScript
from shrinkfx.system import scratch

_TRIES = 2
"""How often a repro is run if its runs have no answer."""


@dataclass(frozen=True)
class ScriptRunner:
    """Runs scripts through a bare server, each in an empty folder of its own.

    Attributes:
        probe: the interpreter's probe, if the server emulates CUDA.
        guard: the guard pages, which the server must support.
        note: takes messages for the user.
        times: seconds of each run so far.
        logs: the logs of the runs that failed as expected.
        afresh_first: the first run is in a new interpreter that compiles everything,
            and later runs take its compiled objects.
        failed_afresh: the texts that have failed in such a run.
        seeming: by text and failure, the answers of ``seems_to_fail``.
        longer_s: the longer time limit, in force once a run was ended before it could
            fail.
        build: the build of a script that is not expected to fail, and so is not a
            repro.
        independent: the number of runs that verify a failure that may depend on the
            layout of memory. Forks of one interpreter share a layout, so each of these
            runs is in a new interpreter, with an environment of another size. 0 for
            three runs, of which two may be forks.
        measures_rate: whether the independent runs go on after one that does not fail.
    """

    server: RequestHandler
    limits: Limits
    meter: Meter
    probe: Probe = Probe.REAL
    guard: Guard = Guard.OFF
    note: Callable[[str], None] = lambda _: None
    times: list[float] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    afresh_first: bool = False
    failed_afresh: list[str] = field(default_factory=list)
    seeming: dict[tuple[str, Signature], bool | None] = field(default_factory=dict)
    longer_s: list[float] = field(default_factory=list)
    build: Build = Build.STOCK
    independent: int = 0
    measures_rate: bool = False

    @property
    def client(self) -> CheckClient:
        """A client of the bare server."""
        return CheckClient(self.server, self.limits, meter=self.meter)

    def run(
        self, files: Sequence[Path], *, fresh: bool, target: Signature | None = None
    ) -> Observation:
        """Copy ``files`` to an empty folder and run the first one.

        Args:
            fresh: in a new interpreter rather than a fork.
            target: the expected failure. If a bare Python's threads throw different
                exceptions, any of them may be seen; if it is not this failure, the
                script is repeated in one thread.
        """
        ending, seen = self._run(files, target, fresh=fresh, build=Build.STOCK)
        self.times.append(ending.seconds)
        if target is not None and target.admits(seen.signature):
            self.logs.append(ending.log)
        return seen

    def _run(
        self,
        files: Sequence[Path],
        target: Signature | None,
        *,
        fresh: bool,
        build: Build,
    ) -> tuple[Ending, Observation]:
        with scratch.make_scratch_folder("repro") as folder:
            for file in files:
                shutil.copy(file, folder)
            script = Path(folder) / files[0].name
            read = partial(_read, script.read_text(encoding="utf-8"), script.name)
            ending = oracle.ask_with_retry(
                self.server.ask,
                self._request(script, fresh=fresh, build=build),
                partial(_is_in_doubt, read, target),
            )
            return ending, read(self.meter.add(ending))

    def _request(self, script: Path, *, fresh: bool, build: Build) -> Request:
        padding = _PADDING * len(self.times) if self.independent else 0
        return Request(
            RunScript(str(script), str(script.parent), padding),
            CheckOptions(probe=self.probe, guard_pages=self.guard, build=build),
            timeout_s=max(self.limits.timeout_s, *self.longer_s, 0.0),
            max_rss_bytes=self.limits.max_rss_bytes,
            fresh=fresh,
        )

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Run once, and tell whether the target failure showed; None without an answer.

        Args:
            is_likely: if False, the script runs first in a fork with the search's
                build, and only if it fails there, as another user would run it.
        """
        if not is_likely and not _sets_variables(files[0]):
            seems_to_fail = self.seems_to_fail(files, target)
            if not seems_to_fail:
                return seems_to_fail
        first = self.afresh_first and not self.times
        fresh = first or self.independent > 0 or _sets_variables(files[0])
        failed = _failed(self._run_until_answered(files, target, fresh=fresh), target)
        if failed and fresh:
            self.failed_afresh.append(files[0].read_text())
        return failed

    def seems_to_fail(self, files: Sequence[Path], target: Signature) -> bool | None:
        """Run once with the search's build, in a fork if possible.

        A script without other files that had an answer is not run again.

        Returns:
            Whether the target failure showed; None without an answer.
        """
        key = files[0].read_text(encoding="utf-8"), target
        if len(files) == 1 and (known := self.seeming.get(key)) is not None:
            return known
        afresh = _sets_variables(files[0])
        build = Build.STOCK if afresh else self.build
        _, seen = self._run(files, target, fresh=afresh, build=build)
        self.seeming[key] = _failed(seen, target)
        return self.seeming[key]

    def run_again(
        self, files: Sequence[Path], target: Signature, budget: Allowance = UNLIMITED
    ) -> list[bool | None]:
        """Run the repro twice more, and tell for each run whether it failed.

        One run is in a new interpreter unless the repro has failed in one already; the
        others are forks. With ``independent`` runs, all runs but the first are made
        here. A repro that reads files of this machine by path proves nothing for
        another machine, so it is not run.

        Returns:
            One entry for each run, None without an answer; fewer if time is short.
        """
        if needs_local_files(files[0]):
            self.note(_LOCAL_FILES)
            return [False, False]
        failed: list[bool | None] = []
        for fresh in self._repeats(files[0]):
            if not budget.has(max(self.times, default=0.0)):
                self.note("not enough time left: skipping further runs of the repro")
                break
            with contextlib.suppress(BudgetExhausted):
                seen = self._run_until_answered(files, target, budget, fresh=fresh)
                failed.append(_failed(seen, target))
                if failed[-1] is False:
                    self.note(
                        f"a run of the repro had a different outcome: {seen.in_words}"
                    )
                    if self.independent and not self.measures_rate:
                        break
        return failed

    def _repeats(self, script: Path) -> list[bool]:
        """List whether each run that follows is in a new interpreter."""
        if self.independent:
            return [True] * (self.independent - 1)  # the first run was fresh, too
        afresh = script.read_text() not in self.failed_afresh
        sets = _sets_variables(script)
        return [afresh or sets, sets]

    def _run_until_answered(
        self,
        files: Sequence[Path],
        target: Signature,
        budget: Allowance = UNLIMITED,
        *,
        fresh: bool,
    ) -> Observation:
        """Run, and run again if there is no answer.

        A script starts Python and compiles the whole program, which a check does not.
        So a script that was ended before the stage of the failure gets more time.
        """
        for _ in range(_TRIES):
            seen = self.run(files, fresh=fresh, target=target)
            if self.limits.timeout_s < _SCRIPT_S and _is_cut_short(seen, target):
                self.longer_s[:] = [_SCRIPT_S]
                self.note(_LONGER_LIMIT.format(self.limits.timeout_s, _SCRIPT_S))
                continue
            if seen.is_conclusive:
                break
            self.note(f"a run of the repro was inconclusive: {seen.unresolved}")
            # RestartingServer has already retried a request that killed its server.
            if seen.unresolved == SERVER_DIED or not budget.has(max(self.times)):
                break
        return seen


@dataclass(frozen=True)
class SingleRun:
    """Runs a script once, in the fastest way that ``runner`` has."""

    runner: ScriptRunner

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Run the script once, even if it is likely to pass."""
        return self.runner.seems_to_fail(files, target)


_PADDING = 97
"""Bytes that each independent run adds to the environment of the run before."""

_SCRIPT_S = 60.0
"""Seconds that a script may need to start and to compile a reduced program."""

_LONGER_LIMIT = (
    "repro.py did not reach the failing step within {:g} s, the limit of a check: "
    "running it with {:g} s"
)


def _is_cut_short(seen: Observation, target: Signature) -> bool:
    """Tell whether the time limit ended a run before the stage of the failure."""
    signature, stages = seen.signature, list(Stage)
    if signature is None or signature.kind is not Kind.HANG:
        return False
    return stages.index(signature.stage) < stages.index(target.stage)


def _failed(seen: Observation, target: Signature) -> bool | None:
    return target.admits(seen.signature) if seen.is_conclusive else None


def _read(text: str, name: str, ending: Ending) -> Observation:
    return classify_ending(convert_script_ending(ending, text, name))


def _is_in_doubt(
    read: Callable[[Ending], Observation], target: Signature | None, ending: Ending
) -> bool:
    """Tell whether messages of several threads were lost, or hide the target."""
    if target is None:
        return lost_exception_text(ending)
    return may_vary_by_thread(ending) and not target.admits(read(ending).signature)


_LOCAL_FILES = (
    "repro.py uses files of this machine (see its header), so it may fail only here, "
    "and its runs are not counted. Build paths in preloaded modules from __file__"
)


def needs_local_files(script: Path) -> bool:
    """Tell whether the header says that the script needs files of this machine.

    Only the header counts, because preloads below may have comments of their own.
    """
    return bool(re.match(rf"(#.*\n)*# {ONLY_ON}", script.read_text(encoding="utf-8")))


def _sets_variables(script: Path) -> bool:
    """Tell whether the script sets a variable that a fork, with torch, would ignore.

    CUDA's variables are read when CUDA starts, which no server does, and those of
    AOTInductor's runtime when a compiled program is called.
    """
    return bool(
        re.search(
            r'os\.environ\["(?!CUDA_|PYTORCH_NO_CUDA|AOTI_RUNTIME_)',
            script.read_text(encoding="utf-8"),
        )
    )
