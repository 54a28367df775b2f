"""The library: one call from a failing program to a verified repro.

The only module that knows the concrete classes of search, check and report.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline import Baseline, baseline, describe
from shrinkfx.check.oracle import Compiler, InductorOracle, Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.check.server import Server
from shrinkfx.errors import (
    BudgetExhausted,
    LoadError,
    NotReproducible,
    UsageError,
    WorkerError,
)
from shrinkfx.failure.signature import ANY, UNTIL, Kind, Signature
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Ending, Task
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.report.output import (
    Preloads,
    Written,
    output_folder,
    write_smallest_repro,
    write_summary,
)
from shrinkfx.report.repro import DATA, About
from shrinkfx.search.budget import Budget
from shrinkfx.search.events import Listener, Noted, Started, ignore
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.journal import Journal
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose

logger = logging.getLogger(__name__)

BASELINE_TIMEOUT_S = 600.0
"""Seconds that a run of the unchanged program may take without ``timeout_s``."""


@dataclass(frozen=True)
class Options:
    """What to reduce, and how; the command line in one record.

    Attributes:
        until: a kind of failure, ``any``, or None for whatever the baseline shows.
        inductor: Inductor options for every compile.
        environment: variables for the worker and for the repro.
        timeout_s: seconds per check; None means ten times the baseline.
        command: how the run was started, for the repro's header.
    """

    model: Path
    until: str | None = None
    inputs: Path | None = None
    preload: tuple[str, ...] = ()
    device: str | None = None
    inductor: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None
    max_checks: int | None = None
    max_minutes: float | None = None
    out: Path | None = None
    strategies: tuple[str, ...] | None = None
    command: str = ""


@dataclass(frozen=True)
class Reduction:
    """What came of a run.

    Attributes:
        status: ``reduced``, ``stopped`` (budget or Ctrl-C) or ``unverified``.
        candidate: the smallest program that failed as ``signature`` says.
        minimal: no single operator of it can be dropped.
        operators: of the original, and of the result.
        verified: how often the repro was run, and how often it failed.
        repro: the script; its folder holds ``minimal.pt2`` and ``summary.json``.
        summary: what ``summary.json`` holds.
    """

    status: str
    candidate: Candidate = field(repr=False)
    signature: Signature
    minimal: bool
    operators: tuple[int, int]
    checks: int
    seconds: float
    verified: tuple[int, int]
    repro: Path
    summary: Mapping[str, Any] = field(repr=False)


def minify(
    path: str | Path, *, listener: Listener = ignore, **options: object
) -> Reduction:
    """Reduce the program in ``path`` to the smallest that fails in the same way.

    Args:
        path: a ``.pt2`` as ``torch.export.save`` writes it.
        listener: told of every check and step (``shrinkfx.search.events``).
        **options: the other fields of ``shrinkfx.api.Options``.

    Raises:
        UsageError: an option makes no sense.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not fail as asked.
        WorkerError: the process that holds torch died.
    """
    chosen = Options(model=Path(path), **options)  # type: ignore[arg-type]
    _check(chosen)
    out = output_folder(chosen.out, chosen.model)
    return _Run(chosen, out, listener).go()


def _check(options: Options) -> None:
    """Refuse what cannot work before anything is started."""
    if options.until is not None and options.until not in UNTIL:
        raise UsageError(f"no kind '{options.until}': one of {', '.join(UNTIL)}")
    if options.until == Kind.HANG and options.timeout_s is None:
        raise UsageError("--until hang needs --timeout: how long is a hang?")
    if not options.model.is_file():
        raise LoadError(str(options.model), "no such file", "give the path of a .pt2")
    for name in ("timeout_s", "max_checks", "max_minutes"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            raise UsageError(f"{name} must be above 0, not {value}")
    choose(options.strategies)


class _Run:
    """One run from baseline to report; its fields are what the phases hand on."""

    def __init__(self, options: Options, out: Path, listener: Listener) -> None:
        self._options = options
        self._out = out
        self._listener = listener
        self._budget = Budget(
            options.max_checks,
            options.max_minutes * 60 if options.max_minutes else None,
        )
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
            meter = self._meters["baseline"]
            meter.cpu_seconds += server.ready.cpu_seconds
            limits = self._limits(options.timeout_s or BASELINE_TIMEOUT_S)
            compiler = Compiler(server, limits, meter=meter)
            described, skeleton, compiler = self._describe(compiler)
            base = baseline(compiler, options.until, self._note)
            limits = self._limits(options.timeout_s or _timeout(base.seconds))
            compiler = compiler.with_options(fallback_random=base.fallback_random)
            search = compiler.with_limits(limits, self._meters["search"])
            found = self._search(skeleton, search, base)
            writer = search.with_limits(limits, self._meters["verify"])
            printed = self._write(server, writer, found.reducer.best)
            written, verified = self._report(server, found, printed, base, writer)
            return self._conclude(
                *(described.answer, printed, found, base.target, written, verified),
                server.ready.versions,
            )

    def _note(self, text: str) -> None:
        logger.info("%s", text)
        self._listener(Noted(text))

    def _limits(self, timeout_s: float) -> Limits:
        return Limits(timeout_s, _available_bytes() * 3 // 4)

    def _describe(self, compiler: Compiler) -> tuple[Ending, Skeleton, Compiler]:
        """Run the original in eager and fetch its graph."""
        ending = compiler.ask(Task.DESCRIBE)
        if "skeleton" not in ending.answer:
            error = ending.answer.get("error", {})
            reason = error.get("message") or f"eager ended with {ending.how}"
            advice = f"the last lines were:\n{ending.log[-1500:]}"
            raise LoadError(str(self._options.model), reason, advice)
        with open(ending.answer["skeleton"], encoding="utf-8") as file:
            skeleton = Skeleton.from_json(json.load(file))
        if eager_error := ending.answer["eager_error"]:
            self._note(f"eager fails too ({eager_error}): going on without comparing")
            compiler = compiler.with_options(reference=False)
        return ending, skeleton, compiler

    def _search(
        self, skeleton: Skeleton, compiler: Compiler, base: Baseline
    ) -> FormSearch:
        whole = Candidate.whole(skeleton)
        seen = compiler.candidate(whole)
        if not base.target.admits(seen.signature):
            raise NotReproducible(
                base.target.kind,
                [describe(seen)],
                "that is the program without in-place operators and with its inputs "
                "flat, which is what can be cut; the program as it is does fail",
            )
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

        program = InductorOracle(compiler, base.target)
        source = InductorOracle(compiler.with_options(form="source"), base.target)
        search = FormSearch(whole, program, source, make)
        self._listener(Started(whole.cost[0], self._options.max_checks))
        try:
            search.run()
        except BudgetExhausted as spent:
            self._stop(str(spent))
        except KeyboardInterrupt:
            self._stop("interrupted")
        finally:
            journal.close()
        return search

    def _stop(self, why: str) -> None:
        self._stopped = why
        self._note(f"{why}: writing and verifying the smallest program so far")

    def _write(
        self, server: Server, compiler: Compiler, best: Candidate
    ) -> Mapping[str, Any]:
        """Have the best candidate saved and printed, in the output folder."""
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
        search: FormSearch,
        printed: Mapping[str, Any],
        base: Baseline,
        compiler: Compiler,
    ) -> tuple[Written, tuple[int, int]]:
        """Write the repro and run it as a stranger would."""
        options, best = self._options, search.reducer.best
        environment = {**server.ready.environment, **options.environment}
        about = About(
            signature=base.target,
            command=options.command or f"shrinkfx.minify({options.model.name!r})",
            versions=server.ready.versions,
            operators=(best.skeleton.original_operators, printed["operators"]),
            environment=environment,
            inductor={
                **options.inductor,
                **({"fallback_random": True} if base.fallback_random else {}),
            },
            reference=bool(compiler.options.get("reference", True)),
        )
        if not search.printable:
            printed = {**printed, "unprintable": "its source does not fail"}
        self._note("writing repro.py and running it in an empty folder")
        with Server(environment=environment) as bare:
            meter = self._meters["verify"]
            meter.cpu_seconds += bare.ready.cpu_seconds
            runner = ScriptRunner(bare, compiler.limits, meter)
            preloads = _preloads(options.preload, server.ready.preload_files)
            written = write_smallest_repro(self._out, printed, about, preloads, runner)
            return written, runner.verify(written.files, base.target)

    def _conclude(
        self,
        described: Mapping[str, Any],
        printed: Mapping[str, Any],
        search: FormSearch,
        target: Signature,
        written: Written,
        verified: tuple[int, int],
        versions: Mapping[str, str],
    ) -> Reduction:
        reducer, skeleton = search.reducer, search.reducer.best.skeleton
        good = verified[0] == verified[1]
        status = "stopped" if self._stopped else "reduced" if good else "unverified"
        operators = (skeleton.original_operators, int(printed["operators"]))
        verdicts = search.verdicts()
        summary = {
            "status": status,
            "until": self._options.until or ANY,
            "kind": target.kind,
            "signature": {
                "kind": target.kind,
                "stage": target.stage,
                "detail": target.detail,
                "text": target.text,
            },
            "operators": _pair(operators),
            "nodes": _pair((skeleton.original_nodes, printed["nodes"])),
            "inputs": _pair((described["inputs"], printed["inputs"])),
            "dynamic_dims": _pair((described["dynamic_dims"], printed["dynamic_dims"])),
            "checks": {
                "total": len(verdicts),
                "by_verdict": dict(Counter(str(v.outcome) for v in verdicts)),
                "cached": search.cached,
            },
            "seconds": round(self._budget.seconds, 1),
            "cpu_seconds": {
                k: round(m.cpu_seconds, 1) for k, m in self._meters.items()
            },
            "minimal": reducer.minimal,
            "verified": {"runs": verified[0], "failed": verified[1]},
            "repro": "repro.py",
            "repro_form": written.how,
            "files": [file.name for file in written.files],
            "stopped": self._stopped,
            "versions": dict(versions),
        }
        write_summary(self._out, summary)
        return Reduction(
            status=status,
            candidate=reducer.best,
            signature=target,
            minimal=reducer.minimal,
            operators=operators,
            checks=len(verdicts),
            seconds=self._budget.seconds,
            verified=verified,
            repro=self._out / "repro.py",
            summary=summary,
        )


def _pair(values: tuple[int, int]) -> dict[str, int]:
    return {"before": values[0], "after": values[1]}


def _preloads(names: Sequence[str], files: Mapping[str, str]) -> Preloads:
    """Sort preloads by how a repro can carry them."""
    return Preloads(
        files=tuple(Path(files[n]) for n in names if files.get(n)),
        modules=tuple(n for n in names if not files.get(n) and not n.endswith(".so")),
        libraries=tuple(Path(n) for n in names if n.endswith(".so")),
    )


def _timeout(baseline_seconds: float) -> float:
    """Give a check ten times what the baseline took, between 1 and 10 minutes."""
    return min(600.0, max(60.0, 10 * baseline_seconds))


def _available_bytes() -> int:
    """Memory that is free now, as the kernel estimates it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024
