"""The sweep: find the sizes at which a program with dynamic shapes fails."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

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
from shrinkfx.journal.sweep_journal import SweepJournal
from shrinkfx.options.options import Options
from shrinkfx.program.display_text import first_line
from shrinkfx.program.sizes import Space, names_in, outside
from shrinkfx.protocol.descriptions import OpenSizes
from shrinkfx.protocol.tasks import FindSpace
from shrinkfx.run.context import INTERRUPTED, RunContext
from shrinkfx.run.describing import describe_program
from shrinkfx.run.examining import examine_operators
from shrinkfx.run.folder import JOURNAL, open_run_folder, record_run_end
from shrinkfx.run.memory_error import wants_guard_pages
from shrinkfx.run.observe import BASELINE_TIMEOUT_S
from shrinkfx.run.sweep.at_sizes import (
    QUIET_THREADS,
    ExampleRunner,
    SweepSettings,
    settings_of,
)
from shrinkfx.run.sweep.conclude import SweepSearch, Swept, conclude_sweep
from shrinkfx.sweep.examples import Example, Examples
from shrinkfx.sweep.minimise import collect_failures, minimise_outside


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
