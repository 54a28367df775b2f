"""The sweep: find the sizes at which a program with dynamic shapes fails.

Its summary has the findings, ``sweep.json``, the table and the plot.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import (
    BudgetExhausted,
    LoadError,
    NotReproducible,
    UsageError,
    WorkerError,
)
from shrinkfx.events import (
    Listener,
    Phase,
    PhaseEntered,
    SizesFound,
    SizesTried,
    SweepFailureFound,
)
from shrinkfx.failure.classify import NO_EXCEPTION_TEXT, classify_ending
from shrinkfx.failure.signature import ANY, Kind, is_until_target
from shrinkfx.failure.verdict import Observation
from shrinkfx.journal.journal import (
    Database,
    boot_id,
    read_progress,
    why_not_again,
)
from shrinkfx.options.options import (
    REQUIRED_VARIABLES,
    Options,
    Sweeping,
    format_command,
)
from shrinkfx.program.display_text import first_line
from shrinkfx.program.sizes import Sizes, Space, names_in, outside
from shrinkfx.protocol.answers import OpenSizes
from shrinkfx.protocol.choices import Guard, InductorOptions, Probe
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import (
    CheckAtSizes,
    CheckOptions,
    CompileOriginal,
    FindSpace,
    SaveInputs,
)
from shrinkfx.protocol.source import is_source_archive
from shrinkfx.report.sweep import Point, SweepRow, draw, format_sweep_table, write_sweep
from shrinkfx.run.context import INTERRUPTED, RunContext
from shrinkfx.run.folder import (
    digest_inputs,
    open_run_folder,
    record_run_end,
    resume_command,
)
from shrinkfx.run.observe import (
    BASELINE_TIMEOUT_S,
    describe_program,
    examine_operators,
    has_recorded_failure,
    wants_guard_pages,
)
from shrinkfx.sweep.examples import (
    Answer,
    Example,
    Examples,
    SweepFailure,
    judge_example,
)
from shrinkfx.sweep.minimise import collect_failures, minimise_outside
from shrinkfx.system.processes import estimate_available_bytes

EXAMPLES = 200
MAX_ELEMENTS = 1 << 22
_BYTES_PER_ELEMENT = 256
"""Memory that must be available for each element of the largest tensor."""

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait by spinning took 0.16 of the 0.2 CPU-seconds of a small example, on
a machine with other load.
"""

_TIMEOUT_S = 60.0

_SETTINGS = "sweep"
"""Name of the journal's fact with the settings that all examples share."""

_TRIES = 8
"""Attempts at sizes if a run ends while compiling, or ``_is_speechless``."""


def _is_speechless(seen: Observation) -> bool:
    """Return whether threads raised an error without a message, alone or at once."""
    return seen.signature is not None and seen.signature.detail == NO_EXCEPTION_TEXT


@dataclass(frozen=True)
class SweepSettings(Message):
    """The settings that all examples of a sweep share.

    Attributes:
        content: a digest of the program and its inputs.
        until: the kind of failure to look for.
        guard_pages: guard pages are wanted; they may not be available.
    """

    content: str
    torch: str
    until: str
    device: str | None
    backend: str
    inductor: InductorOptions
    environment: Mapping[str, str]
    guard_pages: bool
    examples: int
    seed: int
    max_elements: int
    ranges: str


def settings_of(context: RunContext) -> SweepSettings:
    """Return the settings of a sweep: from the options, or recorded ones if it resumes.

    Raises:
        UsageError: the earlier session used another torch or backend.
    """
    options, wanted = context.options, context.options.sweeping or Sweeping()
    free = estimate_available_bytes() // _BYTES_PER_ELEMENT
    settings = SweepSettings(
        content=digest_inputs(options),
        torch=context.ready.versions.get("torch", ""),
        until=options.until or ANY,
        device=options.device,
        backend=context.ready.backend,
        inductor=dict(options.inductor),
        environment=dict(options.environment),
        guard_pages=wants_guard_pages(options),
        examples=EXAMPLES if wanted.examples is None else wanted.examples,
        seed=wanted.seed or 0,
        max_elements=min(
            MAX_ELEMENTS if wanted.max_elements is None else wanted.max_elements, free
        ),
        ranges=wanted.ranges,
    )
    recorded = context.journal.fact(_SETTINGS)
    if recorded is None:
        context.journal.note(_SETTINGS, settings.to_json())
        return settings
    before = SweepSettings.from_json(recorded)
    for name in ("torch", "backend"):  # other settings come from the same journal
        here, there = getattr(settings, name), getattr(before, name)
        if here != there:
            raise UsageError(
                f"--resume {context.out}: that sweep used {name} {there}, but this is "
                f"{here}"
            )
    return before


class ExampleRunner:
    """Runs the program at sizes, with a package that is compiled once.

    Only AOTInductor makes packages. With torch.compile, the first example fills a cache
    for the others; the interpreter compiles again for each example.
    """

    def __init__(
        self, context: RunContext, space: Space, settings: SweepSettings
    ) -> None:
        self.context, self.space, self.settings = context, space, settings
        self.compiles = 0
        self._package = str(context.worker.directory / "sweep.pt2")
        self._has_package = context.makes_packages
        limits = context.limits(_TIMEOUT_S)
        guarded = settings.guard_pages and not context.ready.no_guard_pages
        options = CheckOptions(
            package=None if context.interprets else self._package,
            probe=Probe(context.options.probe) if context.options.probe else None,
            guard_pages=Guard.AFTER if guarded else Guard.OFF,
        )
        options = context.options.compared(options)
        meter = context.meters["search"]
        self._client = CheckClient(context.worker, limits, options, meter)
        if context.options.probe and not context.interprets:
            raise UsageError(
                "--probe only works for CUDA without a GPU: add --device cuda"
            )
        if context.interprets:
            context.note("on the interpreter, code is generated again for each example")
        if not self._has_package and settings.ranges == "beyond":
            where = "the interpreter" if context.interprets else "torch.compile"
            raise UsageError(f"--beyond-ranges: {where} does not check ranges")

    def inside(self, sizes: Sizes) -> Example:
        return self._run(sizes, outside=False)

    def outside(self, sizes: Sizes) -> Example:
        """Run sizes outside of the declared ranges; an error counts as a refusal."""
        return self._run(sizes, outside=True)

    def _run(self, sizes: Sizes, *, outside: bool) -> Example:
        self.context.budget.spend()
        named = self.space.named(sizes)
        for _ in range(_TRIES):
            self._compile_once()
            ending = self._client.ask(CheckAtSizes(named, self.settings.seed, outside))
            seen = classify_ending(ending)
            is_over = ending.how in ("timeout", "late")
            lost_package = is_over and not self._is_compiled()
            if not lost_package and not _is_speechless(seen):
                break
        else:
            seen = replace(seen, signature=None, unresolved=NO_EXCEPTION_TEXT)
        return judge_example(sizes, seen, self.settings.until)

    def _compile_once(self) -> None:
        """Compile the program, unless its package exists.

        The package is lost when the server dies, because it is in the
        server's folder.

        Raises:
            NotReproducible: compiling fails.
            WorkerError: compiling fails, but has succeeded before.
        """
        if self._is_compiled():
            return
        self.compiles += 1
        again = self.compiles > 1
        self.context.note(f"compiling the program, {'again' if again else 'once'}")
        limits = self.context.limits(BASELINE_TIMEOUT_S)
        client = self._client.with_limits(limits, self.context.meters["baseline"])
        seen = classify_ending(client.ask(CompileOriginal()))
        reason = str(seen.signature or seen.invalid or seen.unresolved)
        if again and reason:
            raise WorkerError(f"the program compiled before, but now: {reason}")
        if failure := seen.signature:
            advice = (
                f"to reduce that failure: --until {failure.kind}, without "
                "--dynamic-sweep"
            )
            raise NotReproducible(self.settings.until, 1, [str(failure)], advice)
        if reason:
            longer = "try a longer --timeout"
            raise NotReproducible(self.settings.until, 1, [reason], longer)

    def _is_compiled(self) -> bool:
        return not self._has_package or Path(self._package).exists()

    def save(self, sizes: Sizes, path: Path, passing: Sizes | None = None) -> Path:
        """Write inputs of these sizes to a file for ``--inputs``.

        Args:
            passing: sizes at which a reduced program must pass.
        """
        if path.exists() and has_recorded_failure(self.context.journal):
            return path  # a reduction depends on this file
        named = self.space.named(sizes)
        near = None if passing is None else self.space.named(passing)
        place = str(path.resolve())
        self._client.ask(SaveInputs(named, self.settings.seed, place, near))
        return path


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


def conclude_sweep(runner: ExampleRunner, searched: SweepSearch) -> Swept:
    """Write ``sweep.json`` and the files of the findings, and return the outcome."""
    context, space = runner.context, runner.space
    out, until = context.out, context.options.until
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
        "settings": runner.settings.to_json(),
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
        context.server(worker, QUIET_THREADS) as context.worker,
    ):
        listener(PhaseEntered(Phase.SWEEP))
        context.budget.checks = read_progress(context.journal.db).examples
        space, settings = _space(context), settings_of(context)
        listener(SizesFound(tuple(map(asdict, space.symbols)), settings.to_json()))
        runner = ExampleRunner(context, space, settings)
        searched = _search(runner)
        context.budget.max_seconds = None  # the findings are written in any case
        swept = conclude_sweep(runner, searched)
        if swept.findings and not (swept.goes_on or searched.stopped):
            _tell_other_causes(context)
        message = searched.stopped or f"findings in sweep.json: {len(swept.findings)}"
        if not swept.goes_on:
            record_run_end(context, swept.status, message, swept.exit_code)
        return swept


def _tell_other_causes(context: RunContext) -> None:
    """Note custom operators that are not what they declare, as a reduction does.

    They may cause the failures. No error here changes the findings.
    """
    limits, meter = context.limits(BASELINE_TIMEOUT_S), context.meters["baseline"]
    client = CheckClient(context.worker, limits, meter=meter)
    try:
        client, described = describe_program(context, client)
        examine_operators(context, client, described)
    except (LoadError, WorkerError, KeyboardInterrupt) as error:
        message = first_line(str(error)) or INTERRUPTED
        context.note(f"the custom operators were not tested: {message}")


def _space(context: RunContext) -> Space:
    client = CheckClient(context.worker, context.limits(BASELINE_TIMEOUT_S))
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
        context.note(f"{name} ({span}, exported at {symbol.exported}): {where}")
    return space


def _make_teller(context: RunContext, space: Space) -> Callable[[Example], None]:
    """Return a function that reports each example, and each failure when it is new."""
    known: set[int] = set()

    def tell(example: Example) -> None:
        text, failure = space.describe(example.sizes), example.signature
        reason = str(failure) if failure else example.reason
        context.listener(SizesTried(text, str(example.answer), reason))
        if example.failure >= 0 and example.failure not in known:
            known.add(example.failure)
            if failure:
                words = failure.kind, failure.stage, failure.text or failure.detail
                context.listener(SweepFailureFound(text, *words))
            context.note(f"fails at {text}: {failure}")

    return tell


def _search(runner: ExampleRunner) -> SweepSearch:
    # Imported here, because Hypothesis reads the current folder when it is imported.
    # If the folder was removed, that would fail before shrinkfx can report it.
    from shrinkfx.sweep.hunt import Plan, sweep

    context, space, settings = runner.context, runner.space, runner.settings
    count, seed = settings.examples, settings.seed
    db = context.journal.db
    inside, outside_journal = SweepJournal(db), SweepJournal(db, "outside")
    searched = SweepSearch(
        Examples(runner.inside, inside, _make_teller(context, space)),
        Examples(runner.outside, outside_journal, _make_teller(context, space)),
    )
    plan = Plan(space, settings.max_elements, seed)
    try:
        searched.found += sweep(plan, searched.inside, count=count, seed=seed)
        if settings.ranges == "beyond":
            at = [s for s in outside(space) if space.elements(s) <= plan.max_elements]
            known = searched.inside, plan.grid
            searched.found += minimise_outside(at, searched.outside, *known)
    except BudgetExhausted as reason:
        searched.stopped, context.out_of_budget = str(reason), True
    except KeyboardInterrupt:
        searched.stopped = INTERRUPTED
    if searched.stopped:
        context.note(f"{searched.stopped}; to resume: --resume {context.out}")
        searched.found = collect_failures(plan.grid, searched.inside)
    return searched


class SweepJournal:
    """Records the examples of a sweep, so that it can resume after a kill.

    Args:
        part: the part of the sweep, because several parts may run the same sizes.
    """

    def __init__(self, db: Database, part: str = "inside") -> None:
        self._db = db
        self._part = part
        self._boot = boot_id()

    def recall(self, sizes: Sizes, attempt: int) -> Example | None:
        """Return a recorded example, or None if its sizes have to be run.

        Sizes that did not end twice return UNRESOLVED, and are never run again.
        """
        rows = self._db.read(
            "SELECT example, boot FROM examples WHERE part=? AND sizes=? AND attempt=?",
            (self._part, json.dumps(sizes), attempt),
        )
        for text, _ in rows:
            if text is not None:
                with self._db.checked_decoding():
                    return Example.from_json(json.loads(text))
        why = why_not_again([boot for _, boot in rows], self._boot)
        return Example(sizes, Answer.UNRESOLVED, reason=why) if why else None

    def record_start(self, sizes: Sizes, attempt: int) -> int:
        """Record that sizes are about to be run, and return the row number."""
        row = (time.time(), self._boot, self._part, json.dumps(sizes), attempt)
        return self._db.write(
            "INSERT INTO examples (asked_at, boot, part, sizes, attempt)"
            " VALUES (?, ?, ?, ?, ?)",
            row,
        )

    def record_example(self, number: int, example: Example) -> None:
        row = (json.dumps(example.to_json()), number)
        self._db.write("UPDATE examples SET example=? WHERE number=?", row)

    def delete_start(self, number: int) -> None:
        """Delete an example that was not run after all."""
        self._db.write("DELETE FROM examples WHERE number=?", (number,))
