"""Collect the facts of a run from its folder, and write its ``report.html``.

The page is written after the result. No error here changes the result; a note reports
it.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import WORKER
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.events import Listener, NoteAdded
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.record import EXPLAIN, Explanation
from shrinkfx.journal.history import RecordedQuery, list_queries
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import cut_text, first_line
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.protocol.record import read_older
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.issue.renaming import use_repro_names
from shrinkfx.report.page.anonymous import anonymize_run
from shrinkfx.report.page.links import find_failing_source
from shrinkfx.report.page.record import (
    REPORT,
    Check,
    Run,
    Summary,
    SweepResult,
)
from shrinkfx.report.repro_files import EMBEDDED
from shrinkfx.report.summary import SUMMARY
from shrinkfx.report.sweep import SweepRow
from shrinkfx.run.context import RunContext, server_for
from shrinkfx.run.describing import describe_program
from shrinkfx.run.explaining import FOLDER
from shrinkfx.run.folder import (
    PROGRAM,
    RESULT,
    load_unchanged_options,
    open_journal_for_report,
)
from shrinkfx.run.observe import BASELINE_TIMEOUT_S
from shrinkfx.system.atomic_files import draft_of, publish_draft
from shrinkfx.wording import Flag

logger = logging.getLogger(__name__)

_MOST_CHARS, _WIDTH = 1 << 20, 400
"""Maximum number of characters: of a file that is shown, and of a check's outcome."""


def report_run(context: RunContext) -> Path | None:
    """Write the page of the current run; return None, with a note, if that fails."""
    try:
        return write_page(context.out, collect_run(context.out, context.journal))
    except KeyboardInterrupt:
        context.note(_FAILED.format("interrupted"))
    except Exception as error:
        logger.exception("the report failed")
        context.note(_FAILED.format(error))
    return None


_FAILED = "could not write report.html: {}"


def report_explained(out: Path, listener: Listener) -> None:
    """Write the page of a run after its root-cause analysis; note if that fails."""
    try:
        report_folder(out, listener)
    except (Exception, KeyboardInterrupt) as error:
        logger.exception("the report failed")
        listener(NoteAdded(_FAILED.format(error)))


def report_folder(out: Path, listener: Listener) -> Path:
    """Write the page of an earlier run in its folder.

    Older versions of shrinkfx did not record the program's graph. If it is missing,
    read the program again, and record its graph.

    Raises:
        UsageError: the folder holds no run, or another process uses it.
        StorageError: the page cannot be written, or the journal cannot be read.
    """
    with open_journal_for_report(out) as journal:
        why = ""
        if journal.fact("baseline") is not None and journal.fact(PROGRAM) is None:
            why = _note_program(out, journal, listener)
        try:
            run = collect_run(out, journal, why)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = f"cannot read the files of the run ({error!r})"
            advice = "check whether a file in the folder was edited by hand"
            flag = Flag("--report", str(out))
            raise UsageError(flag, f": {reason}: {advice}") from error
        return write_page(out, run)


def write_page(out: Path, run: Run) -> Path:
    """Write the page of a run into its folder."""
    # Imported here, because the import takes 0.1 s, and few tasks need it.
    from shrinkfx.report.page.page import render_page

    path = out / REPORT
    draft_of(path).write_text(render_page(run), encoding="utf-8")
    publish_draft(path)
    return path


def collect_run(out: Path, journal: Journal, no_program: str = "") -> Run:
    """Return all facts about a run.

    Args:
        no_program: why the journal lacks the program's graph, if that is known.
    """
    options = (journal.fact("run") or {}).get("options", {})
    result: Mapping[str, Any] = journal.fact(RESULT) or {}
    reduced = result.get("candidate", {})
    program, candidate = _program(journal, reduced)
    known = (journal.fact("baseline") or {}).get("target")
    target = Signature.from_json(known) if known else None
    summary = _read(out / SUMMARY)
    explanation, why = _explanation(out)
    swept = _read(out / "sweep.json")
    run = Run(
        model=options.get("name") or Path(options.get("model", "")).name,
        command=options.get("command", ""),
        folder=_named(out) if options else "",
        summary=Summary.from_json(summary) if summary else Summary(),
        checks=tuple(_check(query, target) for query in list_queries(journal)),
        program=program,
        no_program=no_program,
        reduced=candidate,
        listing=PrintedProgram.from_json(reduced["listing"])
        if "listing" in reduced
        else None,
        explanation=explanation,
        no_explanation=why,
        repro=_text(out / "repro.py"),
        source=find_failing_source(explanation, _sources(out)) if explanation else None,
        swept=_swept(swept) if swept else None,
    )
    new = result.get("renamed", {})
    if not options.get("anonymous"):
        if explanation is not None:
            explanation = use_repro_names(explanation, new, models_too=True)
        return replace(run, explanation=explanation)
    if (summary or {}).get("repro_form") == EMBEDDED:
        run = replace(run, repro="")  # it embeds the program, with all its names
    return anonymize_run(run, new, _files(options))


def _files(options: Mapping[str, Any]) -> set[str]:
    """Return the names of the files and modules in the options of a run."""
    paths = (options.get("model"), options.get("inputs"), options.get("name"))
    names = filter(None, (*paths, *options.get("preload", ())))
    return {Path(name).name for name in names}


def _check(query: RecordedQuery, target: Signature | None) -> Check:
    differs = query.outcome is Outcome.DIFFERENT
    data = {name: value for name, value in vars(query).items() if name != "seen"}
    data |= {"keep": frozenset(query.keep), "message": cut_text(query.message, _WIDTH)}
    is_target = target is not None and target.occurs_in(query.seen)
    return Check(**data, is_by_catch=differs and not is_target)


def _program(
    journal: Journal, reduced: Mapping[str, Any]
) -> tuple[Skeleton | None, Candidate | None]:
    """Return the graph of the input program, and the reduced program."""
    recorded = journal.fact(PROGRAM)
    if recorded is None:
        return None, None
    program = Skeleton.from_json(recorded)
    return program, Candidate.from_json(program, reduced) if reduced else None


def _note_program(out: Path, journal: Journal, listener: Listener) -> str:
    """Read the program again and record its graph; return the reason if that fails."""
    try:
        options = load_unchanged_options(out, journal, Flag("--report", str(out)))
        context = RunContext(options, out, listener)
        context.note(
            "the run did not record the program's graph: reading the program again"
        )
        known = CheckOptions.from_json(journal.fact("baseline")["options"])
        with server_for(options, WORKER) as server:
            client = CheckClient(server, context.limits(BASELINE_TIMEOUT_S), known)
            _, described = describe_program(context, client)
    except (ShrinkfxError, OSError, ValueError, TypeError, LookupError) as error:
        why = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", first_line(str(error)))
        return (
            "The run did not record the program's graph, and the program cannot be "
            f"read: {why}"
        )
    names = {name for each in list_queries(journal) for name in each.keep}
    if not names <= set(described.skeleton.operators):
        return (
            "The run did not record the program's graph, and it reduced a different "
            "form."
        )
    journal.note(PROGRAM, described.skeleton.to_json())
    return ""


def _named(out: Path) -> str:
    """Return the folder of a run for a command, without other paths of this machine."""
    place, here = out.resolve(), Path.cwd().resolve()
    is_below = place.is_relative_to(here)
    return shlex.quote(str(place.relative_to(here) if is_below else place.name))


def _explanation(out: Path) -> tuple[Explanation | None, str]:
    """Return the explanation of a run, or None and the reason."""
    try:
        if (recorded := _read(out / EXPLAIN)) is not None:
            return read_older(Explanation, recorded), ""
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        return None, f"{EXPLAIN} cannot be read: {error}"
    return None, (
        f"The root-cause analysis has not been run: shrinkfx --explain {_named(out)} "
        "runs it."
    )


def _read(path: Path) -> dict[str, Any] | None:
    """Parse a JSON file; return None if it does not exist."""
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else None


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    return path.read_text(encoding="utf-8", errors="replace")[:_MOST_CHARS]


def _sources(out: Path) -> dict[str, str]:
    """Return the generated code that was kept, by its path in the run's folder."""
    folder = out / FOLDER / ArtifactFile.SOURCES
    files = sorted(path for path in folder.glob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): _text(path) for path in files}


def _swept(data: Mapping[str, Any]) -> SweepResult:
    findings = [
        SweepRow(
            each["described"],
            each["kind"],
            each["signature"]["text"] or each["signature"]["detail"],
            ", ".join(f"{k}={v}" for k, v in (each["nearest_pass"] or {}).items()),
        )
        for each in data["findings"]
    ]
    return SweepResult(data["examples"]["inside"], tuple(findings))
