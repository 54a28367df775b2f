"""One run, from baseline to report: the phases, and what they hand on.

With ``api``, the only module that knows the concrete classes of search, check and
report.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline import baseline, describe
from shrinkfx.check.oracle import (
    Compiler,
    Limits,
    Meter,
    make_oracle,
    runs_to_be_sure,
)
from shrinkfx.check.script import ScriptRunner
from shrinkfx.check.server import Server, tuning
from shrinkfx.errors import (
    BudgetExhausted,
    LoadError,
    NotReproducible,
    StrategyError,
    WorkerError,
)
from shrinkfx.failure.classify import first_line
from shrinkfx.failure.signature import ANY, Signature, Stage
from shrinkfx.failure.verdict import Oracle, Outcome
from shrinkfx.options import Options, Reduction
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Ending, Task
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.report.header import About
from shrinkfx.report.output import (
    Preload,
    Written,
    write_smallest_repro,
)
from shrinkfx.report.repro import DATA
from shrinkfx.report.summary import Sizes, Spent, summarise, write_summary
from shrinkfx.search.budget import Budget
from shrinkfx.search.events import Listener, Noted, Started
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.journal import Journal
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose

logger = logging.getLogger(__name__)

BASELINE_TIMEOUT_S = 600.0
"""Seconds that a run of the unchanged program may take without ``timeout_s``."""


@dataclass(frozen=True)
class _Subject:
    """The program under reduction, once its failure has been seen.

    Attributes:
        whole: the candidate that holds all of it.
        before: its size.
        compiler: set up so that the failure shows.
        rate: the part of the original's runs that failed so.
    """

    whole: Candidate
    before: Sizes
    compiler: Compiler
    target: Signature
    rate: float


class Run:
    """One run from baseline to report."""

    def __init__(self, options: Options, out: Path, listener: Listener) -> None:
        self._options = options
        self._out = out
        self._listener = listener
        minutes = options.max_minutes
        self._budget = Budget(options.max_checks, minutes * 60 if minutes else None)
        self._meters = {name: Meter() for name in ("baseline", "search", "verify")}
        self._stopped = ""

    def go(self) -> Reduction:
        options = self._options
        with Server(
            model=options.model.resolve(),
            inputs=options.inputs.resolve() if options.inputs else None,
            preloads=options.preload,
            device=options.device,
            inductor=options.inductor,
            environment=options.environment,
        ) as server:
            self._meters["baseline"].cpu_seconds += server.ready.cpu_seconds
            subject = self._baseline(server)
            search = self._search(subject)
            printed = self._write(subject, search.reducer.best, search.reducer.form)
            written, verified = self._report(server, subject, search, printed)
            after = Sizes.from_json(printed)
            versions = server.ready.versions
        return self._conclude(subject, search, written, verified, after, versions)

    def _note(self, text: str) -> None:
        logger.info("%s", text)
        self._listener(Noted(text))

    def _limits(self, timeout_s: float) -> Limits:
        return Limits(timeout_s, _available_bytes() * 3 // 4)

    def _baseline(self, server: Server) -> _Subject:
        """See the failure, in the file's program and in the form that can be cut."""
        options = self._options
        limits = self._limits(options.timeout_s or BASELINE_TIMEOUT_S)
        compiler = Compiler(server, limits, meter=self._meters["baseline"])
        compiler, described, skeleton = self._describe(compiler)
        base = baseline(
            compiler,
            options.until,
            options.match,
            options.baseline_runs,
            self._note,
        )
        limits = self._limits(options.timeout_s or _timeout(base.seconds))
        compiler = compiler.with_limits(limits, self._meters["baseline"])
        compiler = compiler.with_options(fallback_random=base.fallback_random)
        whole = Candidate.whole(skeleton)
        seen = make_oracle(compiler, base.target, base.rate).check(whole)
        if not seen.reproduced:
            self._note("without in-place operators it does not fail: keeping those")
            compiler = compiler.with_options(in_place=True)
            compiler, described, skeleton = self._describe(compiler)
            whole = Candidate.whole(skeleton)
            again = make_oracle(compiler, base.target, base.rate).check(whole)
            if not again.reproduced:
                runs = [describe(v.observation) for v in (seen, again)]
                raise NotReproducible(base.target.kind, 2, runs, _NOT_CUTTABLE)
        before = Sizes(
            operators=skeleton.original_operators,
            nodes=skeleton.original_nodes,
            inputs=described["inputs"],
            dynamic_dims=described["dynamic_dims"],
        )
        compiler = compiler.with_limits(limits, self._meters["search"])
        return _Subject(whole, before, compiler, base.target, base.rate)

    def _describe(
        self, compiler: Compiler
    ) -> tuple[Compiler, Mapping[str, Any], Skeleton]:
        """Run the original in eager and fetch its graph."""
        ending = compiler.ask(Task.DESCRIBE)
        if "skeleton" not in ending.answer:
            subject = self._options.inputs or self._options.model
            raise LoadError(str(subject), *_why_undescribed(ending))
        with open(ending.answer["skeleton"], encoding="utf-8") as file:
            skeleton = Skeleton.from_json(json.load(file))
        for lie in ending.answer["lies"]:
            self._note(f"lying operator: {lie}")
        if eager_error := ending.answer["eager_error"]:
            line = first_line(eager_error)
            self._note(f"eager fails too ({line}): going on without comparing")
            compiler = compiler.with_options(reference=False)
        return compiler, ending.answer, skeleton

    def _search(self, subject: _Subject) -> FormSearch:
        """Reduce until nothing more can go, the budget is spent, or Ctrl-C."""
        strategies = choose(self._options.strategies)
        journal = Journal(self._out / "journal.sqlite")

        def make(start: Candidate, oracle: Oracle, form: str) -> Reducer:
            return Reducer(
                start,
                oracle,
                strategies,
                budget=self._budget,
                journal=journal,
                listener=self._listener,
                form=form,
            )

        compiler, target, rate = subject.compiler, subject.target, subject.rate
        program = make_oracle(compiler, target, rate)
        source = make_oracle(compiler.with_options(form="source"), target, rate)
        search = FormSearch(subject.whole, program, source, make)
        self._listener(Started(subject.whole.cost[0], self._options.max_checks))
        try:
            search.run()
        except BudgetExhausted as spent:
            self._stop(str(spent))
        except StrategyError as error:
            self._stop(str(error))
        except KeyboardInterrupt:
            self._stop("interrupted")
        finally:
            journal.close()
        return search

    def _stop(self, why: str) -> None:
        self._stopped = why
        self._note(f"{why}: writing and verifying the smallest program so far")

    def _write(
        self, subject: _Subject, best: Candidate, form: str
    ) -> Mapping[str, Any]:
        """Have the best candidate saved and printed, in the output folder."""
        compiler = subject.compiler.with_options(form=form)
        compiler = compiler.with_limits(compiler.limits, self._meters["verify"])
        ending = compiler.ask(
            Task.WRITE,
            candidate=best.to_json(),
            path=str((self._out / "minimal.pt2").resolve()),
            data=str((self._out / DATA).resolve()),
        )
        if "operators" not in ending.answer:
            raise WorkerError("the result could not be written", ending.log[-2000:])
        return ending.answer

    def _report(
        self,
        server: Server,
        subject: _Subject,
        search: FormSearch,
        printed: Mapping[str, Any],
    ) -> tuple[Written, tuple[int, int]]:
        """Write the repro and run it as a stranger would."""
        options, checks = self._options, subject.compiler.options
        environment = {
            **tuning(os.environ),
            **server.ready.environment,
            **options.environment,
        }
        random = {"fallback_random": True} if checks.get("fallback_random") else {}
        seen = search.reducer.seen or subject.target
        about = About(
            # A script's comparison has words of its own.
            signature=replace(
                seen, match="" if seen.stage is Stage.COMPARE else subject.target.match
            ),
            command=options.command or f"shrinkfx.minify({options.model.name!r})",
            versions=server.ready.versions,
            operators=(subject.before.operators, printed["operators"]),
            environment=environment,
            inductor={**options.inductor, **random},
            reference=bool(checks.get("reference", True)),
            random=printed["random"],
            runs=runs_to_be_sure(subject.rate),
            own_error=printed["own_error"],
            copies=bool(checks.get("in_place")),
        )
        if not search.printable:
            printed = {**printed, "unprintable": "its source does not fail"}
        self._note("writing repro.py and running it in an empty folder")
        # A stranger's environment: the script must set what matters itself.
        with Server(environment=None) as bare:
            meter = self._meters["verify"]
            meter.cpu_seconds += bare.ready.cpu_seconds
            runner = ScriptRunner(bare, subject.compiler.limits, meter)
            files = server.ready.preload_files
            preloads = [
                Preload(name, Path(files[name]) if files.get(name) else None)
                for name in options.preload
            ]
            written = write_smallest_repro(self._out, printed, about, preloads, runner)
            return written, runner.verify(written.files, about.signature)

    def _conclude(
        self,
        subject: _Subject,
        search: FormSearch,
        written: Written,
        verified: tuple[int, int],
        after: Sizes,
        versions: Mapping[str, str],
    ) -> Reduction:
        good = verified[0] == verified[1]
        status = "unverified"
        if good:
            status = "stopped" if self._stopped else "reduced"
        reducer, verdicts = search.reducer, search.verdicts()
        spent = Spent(
            outcomes=[str(verdict.outcome) for verdict in verdicts],
            by_catch=Counter(
                str(verdict.observation.signature)
                for verdict in verdicts
                if verdict.outcome is Outcome.DIFFERENT
            ),
            cached=search.cached,
            seconds=self._budget.seconds,
            cpu_seconds={k: m.cpu_seconds for k, m in self._meters.items()},
        )
        summary = summarise(
            status=status,
            stopped=self._stopped,
            until=self._options.until or ANY,
            signature=subject.target,
            rate=subject.rate,
            sizes=(subject.before, after),
            spent=spent,
            minimal=reducer.minimal,
            verified=verified,
            written=written,
            versions=versions,
        )
        write_summary(self._out, summary)
        return Reduction(
            status=status,
            candidate=reducer.best,
            signature=subject.target,
            minimal=reducer.minimal,
            operators=(subject.before.operators, after.operators),
            checks=len(verdicts),
            seconds=self._budget.seconds,
            verified=verified,
            repro=self._out / "repro.py",
            summary=summary,
        )


_NOT_CUTTABLE = (
    "these are the program with its inputs flat, without in-place operators and with "
    "them: the forms that can be cut. As the file holds it, it does fail; please "
    "report this with the .pt2"
)


def _why_undescribed(ending: Ending) -> tuple[str, str]:
    """Say why there is no graph, and what to look at."""
    error = ending.answer.get("error")
    if error and error["type"] == LoadError.__name__:
        return str(error["message"]).partition(": ")[2], ""
    if error:
        reason = f"eager could not be run ({first_line(error['message'])})"
        return reason, "do the inputs fit the program's signature and ranges?"
    reason = f"eager ended with {ending.how} {ending.code}"
    return reason, f"its last lines:\n{ending.log[-1500:]}"


def _timeout(baseline_seconds: float) -> float:
    """Give a check ten times what the baseline took, between 1 and 10 minutes."""
    return min(600.0, max(60.0, 10 * baseline_seconds))


def _available_bytes() -> int:
    """Memory that is free now, as the kernel estimates it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024
