"""The sweep: find the sizes at which a program with dynamic shapes fails.

Its summary has the findings, ``sweep.json``, the table and the plot.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, LoadError, UsageError, WorkerError
from shrinkfx.events import (
    Listener,
    Phase,
    PhaseEntered,
    SizesFound,
    SizesTried,
    SweepFailureFound,
)
from shrinkfx.failure.signature import ANY, Kind, is_until_target
from shrinkfx.journal.sweep_journal import SweepJournal
from shrinkfx.options.options import Options, format_command
from shrinkfx.options.values import REQUIRED_VARIABLES
from shrinkfx.program.display_text import first_line
from shrinkfx.program.sizes import Space, names_in, outside
from shrinkfx.protocol.descriptions import OpenSizes
from shrinkfx.protocol.source import is_source_archive
from shrinkfx.protocol.tasks import FindSpace
from shrinkfx.report.sweep import Point, SweepRow, draw, format_sweep_table, write_sweep
from shrinkfx.run.context import INTERRUPTED, RunContext
from shrinkfx.run.describing import describe_program, examine_operators
from shrinkfx.run.folder import JOURNAL, open_run_folder, record_run_end, resume_command
from shrinkfx.run.memory_error import wants_guard_pages
from shrinkfx.run.observe import BASELINE_TIMEOUT_S
from shrinkfx.run.sweep.at_sizes import (
    QUIET_THREADS,
    ExampleRunner,
    SweepSettings,
    settings_of,
)
from shrinkfx.sweep.examples import Answer, Example, Examples, SweepFailure
from shrinkfx.sweep.minimise import collect_failures, minimise_outside


@dataclass(frozen=True)
class SweepFinding:
    """A failure that the sweep has found, as plain data.

    Attributes:
        sizes: the smallest failing sizes, by symbol.
        nearest: the nearest passing sizes, or None.
        failing: a file with inputs of these sizes for ``--inputs``; it also has inputs
            of ``nearest``, at which a reduced program must pass.
        passing: a file with the latter inputs alone, or None.
    """

    found: SweepFailure
    sizes: Mapping[str, int]
    nearest: Mapping[str, int] | None
    failing: Path
    passing: Path | None


@dataclass(frozen=True)
class Swept:
    """The outcome of a sweep.

    Attributes:
        status: ``passes`` (nothing found), ``found``, ``missed`` (nothing of the
            requested kind) or ``stopped`` (budget or Ctrl-C).
        target: the first finding of the requested kind, to be reduced.
        table: one line per finding.
        to_go_on: the next command: it reduces a finding, or resumes the sweep; '' if
            there is none.
        report: the content of ``sweep.json``.
    """

    status: str
    findings: tuple[SweepFinding, ...]
    target: SweepFinding | None
    table: str
    folder: Path
    report: Mapping[str, Any] = field(repr=False)
    to_go_on: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether the sweep has found a failure that is to be reduced."""
        return self.status == "found" and self.target is not None

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return {"passes": 0, "missed": 3, "stopped": 4, "found": 6}[self.status]


@dataclass
class SweepSearch:
    """The results of the search; ``stopped`` is the reason of an early end."""

    inside: Examples
    outside: Examples
    found: list[SweepFailure] = field(default_factory=list)
    stopped: str = ""


def conclude_sweep(
    context: RunContext,
    runner: ExampleRunner,
    settings: SweepSettings,
    searched: SweepSearch,
) -> Swept:
    space, out, until = runner.space, context.out, context.options.until
    findings = tuple(
        _finding(runner, failure, out, number)
        for number, failure in enumerate(searched.found, 1)
    )
    wanted = [f for f in findings if _is_wanted(f.found, context.options)]
    examples = searched.inside.all()
    rows = [_row(space, finding.found) for finding in findings]
    report = {
        "status": _status(searched.stopped, until, wanted),
        "stopped": searched.stopped,
        "settings": settings.to_json(),
        "space": space.to_json(),
        "findings": [_to_json(space, finding) for finding in findings],
        "examples": {
            "inside": _counts(examples),
            "outside": _counts(searched.outside.all()),
        },
        "compiles": runner.compiles,
        "cpu_seconds": {
            **{name: round(used, 1) for name, used in context.cpu_seconds().items()},
            "per_example": round(_median([e.cpu_seconds for e in examples]), 3),
        },
        "sizes": [[*e.sizes, str(e.answer), e.failure] for e in examples],
    }
    write_sweep(out, report)
    points = [Point(e.sizes, str(e.answer)) for e in examples]
    marks = [f.found.sizes for f in findings if not f.found.missing_guard]
    if points and (how := draw(out, space.names, points, marks)):
        context.note(how)
    _note_invalid(context, examples)
    target = wanted[0] if wanted and until else None
    status = str(report["status"])
    text = format_sweep_table(rows) if rows else ""
    # If no finding is of the requested kind, suggest one of another kind.
    chosen = next(iter([*wanted, *findings]), None)
    go_on = resume_command(context) if searched.stopped else ""
    if not go_on and chosen and not target:
        go_on = _to_reduce(context.options, chosen)
    return Swept(status, findings, target, text, out, report, go_on)


def _to_reduce(options: Options, finding: SweepFinding) -> str:
    """Return the command that reduces a finding with the files in the folder."""
    failure = finding.found
    variables = REQUIRED_VARIABLES[Kind.CHECK_INPUTS] if failure.missing_guard else {}
    return format_command(
        replace(
            options,
            until=str(failure.signature.kind),
            match=options.match if _is_wanted(failure, options) else "",
            inputs=finding.failing,
            run_code=is_source_archive(options.model),
            environment={**options.environment, **variables},
            out=None,
        )
    )


def _is_wanted(case: SweepFailure, options: Options) -> bool:
    failure = case.signature
    return is_until_target(options.until or ANY, failure) and failure.matches_text(
        options.match
    )


def _status(stopped: str, until: str | None, wanted: Sequence[SweepFinding]) -> str:
    if stopped:
        return "stopped"
    if wanted:
        return "found"
    return "missed" if until else "passes"


def _finding(
    runner: ExampleRunner, failure: SweepFailure, out: Path, number: int
) -> SweepFinding:
    space, near = runner.space, failure.nearest
    return SweepFinding(
        failure,
        space.named(failure.sizes),
        None if near is None else space.named(near),
        runner.save(failure.sizes, out / f"failing-{number}.pt", near),
        None if near is None else runner.save(near, out / f"passing-{number}.pt"),
    )


def _row(space: Space, case: SweepFailure) -> SweepRow:
    failure = case.signature
    text = " ".join((failure.text or failure.detail).split())
    missing = "missing guard: " if case.missing_guard else ""
    near = "none found" if case.nearest is None else space.describe(case.nearest)
    return SweepRow(space.describe(case.sizes), failure.kind, f"{missing}{text}", near)


def _to_json(space: Space, finding: SweepFinding) -> dict[str, Any]:
    failure = finding.found
    return {
        "sizes": finding.sizes,
        "described": space.describe(failure.sizes),
        "kind": failure.signature.kind,
        "signature": asdict(failure.signature),
        "nearest_pass": finding.nearest,
        "missing_guard": failure.missing_guard,
        "first_seen_after": failure.first,
        "sizes_that_show_it": failure.failing,
        "confirmed": {"runs": failure.runs, "failed": failure.failed},
        "failing_inputs": finding.failing.name,
        "passing_inputs": finding.passing.name if finding.passing else None,
    }


def _counts(examples: Sequence[Example]) -> dict[str, int]:
    counts = Counter(e.answer for e in examples)
    return {"run": len(examples), **{str(a): counts[a] for a in Answer}}


def _median(numbers: Sequence[float]) -> float:
    return statistics.median(numbers) if numbers else 0.0


def _note_invalid(context: RunContext, examples: Sequence[Example]) -> None:
    """Note sizes at which eager fails, because the generated values may be wrong."""
    reasons = Counter(e.reason for e in examples if e.answer is Answer.INVALID)
    if reasons:
        (reason, times), *_ = reasons.most_common(1)
        context.note(
            f"at {reasons.total()} of {len(examples)} sizes eager itself fails, "
            f"{times} times with: {reason}. To use other values: --inputs FILE.py "
            "with a function inputs(**sizes)"
        )


def run_sweep(options: Options, out: Path, listener: Listener) -> Swept:
    """Run a program at many sizes, and record where it fails.

    Raises:
        UsageError: the program has no free sizes.
        LoadError: the program cannot be read.
        NotReproducible: the program does not compile, whatever the sizes.
        WorkerError: the process that holds torch died; the sweep can be resumed.
    """
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with (
        open_run_folder(options, out, listener) as context,
        context.server(worker, QUIET_THREADS) as server,
        closing(SweepJournal(out / JOURNAL)) as journal,
        closing(SweepJournal(out / JOURNAL, "outside")) as outside_journal,
    ):
        listener(PhaseEntered(Phase.SWEEP))
        context.budget.checks = journal.count()
        space = _space(context, server)
        settings = settings_of(context, server, journal)
        listener(SizesFound(tuple(map(asdict, space.symbols)), settings.to_json()))
        runner = ExampleRunner(context, server, space, settings)
        searched = _search(context, runner, settings, journal, outside_journal)
        context.budget.max_seconds = None  # the findings are written in any case
        swept = conclude_sweep(context, runner, settings, searched)
        if swept.findings and not (swept.goes_on or searched.stopped):
            _tell_other_causes(context, server)
        message = searched.stopped or f"findings in sweep.json: {len(swept.findings)}"
        if not swept.goes_on:
            record_run_end(context, swept.status, message, swept.exit_code)
        return swept


def _tell_other_causes(context: RunContext, server: Server) -> None:
    """Note custom operators that are not what they declare, as a reduction does.

    They may cause the failures. No error here changes the findings.
    """
    client = CheckClient(
        *(server, context.limits(BASELINE_TIMEOUT_S)), meter=context.meters["baseline"]
    )
    try:
        client, described = describe_program(context, client)
        examine_operators(context, client, described)
    except (LoadError, WorkerError, KeyboardInterrupt) as error:
        message = first_line(str(error)) or INTERRUPTED
        context.note(f"the custom operators were not tested: {message}")


def _space(context: RunContext, server: Server) -> Space:
    client = CheckClient(server, context.limits(BASELINE_TIMEOUT_S))
    ending = client.ask(FindSpace())
    model = str(context.options.model)
    if not isinstance(ending.answer, OpenSizes):
        why = ending.raised.message if ending.raised else ending.log[-1500:]
        raise LoadError(model, f"cannot read its sizes: {first_line(why)}")
    space = ending.answer.space
    if not space.symbols:
        raise UsageError(f"{model} has no dynamic dims: export it with dynamic_shapes")
    if not all(space.allowed):
        raise UsageError(f"{model} declares conditions that no sizes satisfy")
    for symbol, allowed in zip(space.symbols, space.allowed, strict=True):
        name = symbol.name
        places = [p.describe(name) for p in space.places if name in names_in(p.size)]
        span = f"from {allowed[0]} to {allowed[-1]}"
        span += " (no upper bound is declared)" if symbol.high is None else ""
        where = ", ".join(places)
        context.note(f"{name}: {where}; {span}, exported at {symbol.exported}")
    return space


class _Teller:
    """Reports each example, and each failure when it is seen first."""

    def __init__(self, context: RunContext, space: Space) -> None:
        self._context = context
        self._space = space
        self._known: set[int] = set()

    def __call__(self, example: Example) -> None:
        text, failure = self._space.describe(example.sizes), example.signature
        reason = str(failure) if failure else example.reason
        self._context.listener(SizesTried(text, str(example.answer), reason))
        if example.failure >= 0 and example.failure not in self._known:
            self._known.add(example.failure)
            if failure:
                words = failure.kind, failure.stage, failure.text or failure.detail
                self._context.listener(SweepFailureFound(text, *words))
            self._context.note(f"fails at {text}: {failure}")


def _search(
    context: RunContext,
    runner: ExampleRunner,
    settings: SweepSettings,
    journal: SweepJournal,
    outside_journal: SweepJournal,
) -> SweepSearch:
    # Imported here, because Hypothesis reads the current folder when it is imported.
    # If the folder was removed, that would fail before shrinkfx can report it.
    from shrinkfx.sweep.hunt import Plan, sweep

    space, count, seed = runner.space, settings.examples, settings.seed

    searched = SweepSearch(
        Examples(runner.inside, journal, _Teller(context, space)),
        Examples(runner.outside, outside_journal, _Teller(context, space)),
    )
    plan = Plan(space, settings.max_elements, seed)
    try:
        searched.found += sweep(plan, searched.inside, count=count, seed=seed)
        if settings.ranges == "beyond":
            at = [s for s in outside(space) if space.elements(s) <= plan.max_elements]
            inside = searched.inside, plan.grid
            searched.found += minimise_outside(at, searched.outside, *inside)
    except BudgetExhausted as reason:
        searched.stopped, context.out_of_budget = str(reason), True
    except KeyboardInterrupt:
        searched.stopped = INTERRUPTED
    if searched.stopped:
        context.note(f"{searched.stopped}; to resume: --resume {context.out}")
        searched.found = collect_failures(plan.grid, searched.inside)
    return searched
