"""What a task prints: text for people, or lines of JSON."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from shrinkfx import api
from shrinkfx.api import Run, State
from shrinkfx.cli.streams import redirect_to_devnull
from shrinkfx.errors import (
    FailsDifferently,
    Finished,
    KnownFailure,
    NotCuttable,
    NotReproducible,
    ShrinkfxError,
    UsageError,
)
from shrinkfx.events import (
    BaselineFound,
    Event,
    OtherFailureFound,
    QueryAnswered,
    RunEnded,
    RunStarted,
    SizesFound,
    SizesTried,
    StepTaken,
    SweepFailureFound,
)


def print_runs(folder: Path) -> RunEnded:
    runs = api.runs(folder)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for line in render_run_lines(runs, folder, width):
        print(line)
    return RunEnded("listed", 0, result={"runs": [*map(run_to_json, runs)]})


def print_candidate(retrieved: api.Retrieved) -> RunEnded:
    print(f"candidate: {retrieved.operators} operators: {retrieved.seen}")
    print(f"program:   {retrieved.program}")
    verified = retrieved.verified
    result: dict[str, Any] = {
        "seen": retrieved.seen,
        "operators": retrieved.operators,
        "program": str(retrieved.program),
    }
    if verified is None:
        return RunEnded("passes", 3, result=result)
    repro = verified.written.files[0]
    print(f"repro:     {repro}")
    print(f"verified:  {verified.failed} of {verified.runs} runs fail in the same way")
    program = shlex.quote(str(retrieved.program))
    print("note:     only a full run writes ISSUE.md, report.html and the cause:")
    print(f"next:     shrinkfx {program}  (with the --preload of its run, if any)")
    counts = {"runs": verified.runs, "failed": verified.failed}
    result |= {"repro": str(repro), "verified": counts}
    if verified.always_fails:
        return RunEnded("verified", 0, result=result)
    return RunEnded("unverified", 5, result=result)


def print_finished_run(error: Finished) -> RunEnded:
    """Print the result of a finished run again, and the commands to use it."""
    folder, end = shlex.quote(error.folder), RunEnded("finished", error.exit_code)
    past = api.past(error.folder)
    if past.came is not None:
        end = replace(print_reduction(past.came, everything=False), status=end.status)
    again = shlex.quote(str(past.again))
    print(f"report:   to regenerate the report: shrinkfx --report {folder}")
    if past.came is not None:
        full = "for the full root-cause analysis"
        print(f"explain:  {full}: shrinkfx --explain {folder}")
    print(f"new run:  to reduce the same program again: shrinkfx {again}")
    return replace(end, result={**(end.result or {}), "folder": error.folder})


def describe_error(error: ShrinkfxError) -> dict[str, Any]:
    """Return what an error tells about the program, for the last event."""
    match error:
        case KnownFailure():
            return {"known_bugs": [*error.folders]}
        case NotCuttable() | FailsDifferently():
            return {"fails": True}
        case NotReproducible():
            return {"fails": bool(error.kind)}
    return {}


def print_report(path: Path) -> RunEnded:
    print(f"report:   {path}")
    return RunEnded("reported", 0, result={"report": str(path)})


def print_explanation(explained: api.Explained) -> RunEnded:
    print("\n".join(explained.lines))
    print(f"details:  {explained.path}")
    result = {"cause": explained.cause, "folder": str(explained.folder)}
    return RunEnded("explained", 0, result=result)


def print_verification(confirmed: api.Confirmed) -> RunEnded:
    expected = str(confirmed.expected or "").removesuffix(": ")
    if expected:
        print(f"expected: {expected}")
    print(f"seen:     {confirmed.seen}")
    as_stated = " as its header states" if expected else ""
    on = f" on torch {confirmed.torch}, in this interpreter" if confirmed.across else ""
    print(f"it {'fails' if confirmed.fails else 'does not fail'}{as_stated}{on}")
    result: dict[str, Any] = {"expected": expected, "seen": confirmed.seen}
    if confirmed.across:
        result["across"] = [*map(vars, confirmed.across)]
    if (table := confirmed.versions) is not None:
        print("across versions:")
        for run in table.runs:
            print(f"  {run}")
        print(table.sentence)
        if table.needs:
            print(f"not installed for these versions: {table.needs}")
        result["versions"] = table.sentence
    if confirmed.interrupted:
        print(
            "interrupted: not all versions were tested. Run the same command again; it "
            "reuses the environments."
        )
        return RunEnded("interrupted", 4, result=result)
    status, code = ("fails", 0) if confirmed.fails else ("passes", 3)
    return RunEnded(status, code, result=result)


def print_sweep(swept: api.Swept) -> RunEnded:
    counts = swept.report["examples"]["inside"]
    rare = [f"{counts[k]} are {k}" for k in ("invalid", "unresolved") if counts[k]]
    results = [f"{counts['passes']} pass", f"{counts['fails']} fail", *rare]
    print(f"{counts['run']} sizes run: {', '.join(results)}")
    if counts["fails"]:
        print(_format_failing_sizes(swept.report))
    print(swept.table or "the program fails at none of these sizes")
    if swept.target:
        print(f"inputs:   {swept.target.failing}")
    print(f"folder:   {swept.folder}")
    if swept.to_go_on:
        print(f"next:     {swept.to_go_on}")
    result = {"examples": counts, "findings": swept.report["findings"]}
    result["folder"] = str(swept.folder)
    return RunEnded(swept.status, swept.exit_code, result=result)


def _format_failing_sizes(report: Mapping[str, Any]) -> str:
    """Return the smallest failing sizes, as ``fails at n, m = (2, 3), (2, 4)``."""
    names = ", ".join(symbol["name"] for symbol in report["space"]["symbols"])
    rows = sorted(sizes for *sizes, answer, _ in report["sizes"] if answer == "fails")
    texts = [f"({', '.join(map(str, r))})" if len(r) > 1 else str(r[0]) for r in rows]
    more = f" and {len(rows) - _SHOWN_SIZES} more" if len(rows) > _SHOWN_SIZES else ""
    return f"fails at {names} = {', '.join(texts[:_SHOWN_SIZES])}{more}"


_SHOWN_SIZES = 12


def print_reduction(
    reduction: api.Reduction, *, everything: bool, until: str | None = None
) -> RunEnded:
    for line in reduction.render_lines(everything=everything, until=until):
        print(line)
    runs, failed = reduction.verified
    before, after = reduction.operators
    result = {
        "operators": [before, after],
        "minimal": reduction.minimal,
        "failure": str(reduction.seen),
        "verified": {"runs": runs, "failed": failed},
        "checks": reduction.checks,
        "seconds": round(reduction.seconds, 1),
        "repro": str(reduction.repro),
        "report": str(reduction.report) if reduction.report else None,
        "cause": reduction.summary["cause"],
        "known_bugs": reduction.summary.get("known_bugs", []),
        "issue": str(reduction.issue or ""),
    }
    return RunEnded(reduction.status, reduction.exit_code, result=result)


_HEAD = (
    *("name", "status", "program", "kind", "operators"),
    *("verified", "checks", "seconds", "when"),
)
_NUMBERS = (4, 5, 6, 7)
"""Right-aligned columns."""

_CUT_FIRST = (2, 0)
"""Columns to shorten, in this order, if the table is too wide for the terminal."""
_MIN_WIDTH = 8
"""Minimum width of a shortened column."""


def render_run_lines(runs: Sequence[Run], folder: Path, width: int) -> Iterator[str]:
    """Yield the table of runs, commands to continue them, and their problems.

    Args:
        width: columns of the terminal.
    """
    if not runs:
        yield f"{folder} contains no runs: start one with shrinkfx MODEL.pt2"
        return
    yield from _format_table([_HEAD, *map(_format_row, runs)], width)
    if last_run := next((run for run in reversed(runs) if run.may_go_on), None):
        yield f"to resume an unfinished run: shrinkfx --resume {last_run.folder}"
        if last_run.status == State.CAPTURED:
            yield (
                f"to reduce another program of that script: shrinkfx {last_run.folder} "
                "--program N"
            )
    for run in runs:
        if run.problem:
            yield f"{run.folder}: {run.problem}"


def run_to_json(run: Run) -> dict[str, Any]:
    """Convert a run to JSON, for ``--json``."""
    return {**vars(run), "folder": str(run.folder), "status": str(run.status)}


def _format_row(run: Run) -> tuple[str, ...]:
    cells = (
        run.folder.resolve().name,
        str(run.status),
        run.program,
        run.kind,
        _operators(*run.operators),
        f"{run.verified[1]} of {run.verified[0]}" if run.verified else "",
        "" if run.checks is None else str(run.checks),
        "" if run.seconds is None else f"{run.seconds:.0f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at)),
    )
    return tuple(cell or "-" for cell in cells)


def _operators(before: int | None, now: int | None) -> str:
    if before is None:
        return ""
    return str(before) if now is None else f"{before} -> {now}"


def _format_table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for column in _CUT_FIRST:
        too_wide = sum(wide) + 2 * (len(wide) - 1) - width
        narrow = max(_MIN_WIDTH, wide[column] - max(0, too_wide))
        wide[column] = min(wide[column], narrow)
    for row in rows:
        cells = []
        for column, (text, size) in enumerate(zip(row, wide, strict=True)):
            align = str.rjust if column in _NUMBERS else str.ljust
            shown = text if len(text) <= size else f"{text[: size - 3]}..."
            cells.append(align(shown, size))
        yield "  ".join(cells).rstrip()


SCHEMA = 1
"""Version of the lines; a new field does not change it."""

EVENT_NAMES: dict[type[Event], str] = {
    RunStarted: "start",
    BaselineFound: "baseline",
    SizesFound: "baseline",
    QueryAnswered: "check",
    SizesTried: "check",
    StepTaken: "step",
    SweepFailureFound: "step",
    OtherFailureFound: "other-failure",
    RunEnded: "end",
}
"""Names of events in ``--json``; it leaves out all other events."""

OLD_EVENTS = {"other-failure": "by-catch"}
"""Events that are printed under their old name too, until 0.2."""

OLD_KEYS = {
    "candidate_operators": "asked",
    "bytes_of_inputs": "given",
    "details": "said",
}
"""Keys that are also printed under their old names, until 0.2."""


class Json:
    """A listener that prints one JSON object per line.

    If a line cannot be written, for example because the reader has closed the pipe or
    the disk is full, the run continues without further lines. Only a failure to write
    the first event stops the run, unless the pipe was closed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        name = EVENT_NAMES.get(type(event))
        if name is None:
            return
        elapsed = round(time.monotonic() - self._began, 3)
        data = {"event": "", "schema": SCHEMA, "elapsed": elapsed, **asdict(event)}
        data |= {old: data[new] for new, old in OLD_KEYS.items() if new in data}
        names = [name, OLD_EVENTS[name]] if name in OLD_EVENTS else [name]
        try:
            for each in names:
                line = json.dumps(data | {"event": each})
                print(line, file=self._stream, flush=True)
        except BrokenPipeError:
            redirect_to_devnull(self._stream)
        except OSError as error:
            redirect_to_devnull(self._stream)
            problem = f"--json: cannot write to stdout: {error.strerror}"
            if isinstance(event, RunStarted):
                raise UsageError(f"{problem}. The run was not started") from error
            print(f"{problem}; the run continues without events", file=sys.stderr)
