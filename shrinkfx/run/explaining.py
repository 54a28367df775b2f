"""Explanation phase: analyze the cause of the result's failure."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.check.torch_versions import order
from shrinkfx.errors import UsageError
from shrinkfx.events import Listener, NoteAdded, Phase, PhaseEntered
from shrinkfx.explain.cause import KnownFacts, explain
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.record import EXPLAIN, Explanation, explanation_lines
from shrinkfx.journal.journal import Journal, RecordedQuery
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import cut_text
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Collected
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.protocol.record import read_older, to_json_with_old_names
from shrinkfx.protocol.requests import CollectVersions
from shrinkfx.report.anonymous import (
    anonymize_run,
    environment_text,
    strip_input_program,
    strip_origins,
    use_repro_names,
    with_gpu,
)
from shrinkfx.report.header import set_cause
from shrinkfx.report.in_compiler import (
    find_own_function,
    format_disappears_without,
    format_stops_in_function,
)
from shrinkfx.report.issue.script import find_model_remains
from shrinkfx.report.issue.text import IssueFacts, facts_of, issue_text
from shrinkfx.report.page.record import (
    REPORT,
    Check,
    Run,
    Summary,
    SweepResult,
    find_failing_source,
)
from shrinkfx.report.record import EMBEDDED, ModelRemains, RunRecord
from shrinkfx.report.summary import write_cause
from shrinkfx.report.sweep import SweepRow
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import (
    PROGRAM,
    RESULT,
    TARGET,
    open_journal_for_report,
    open_run_folder,
    read_explanation,
)
from shrinkfx.run.observe import (
    load_or_find_subject,
    wants_guard_pages,
)
from shrinkfx.run.simplification import with_values
from shrinkfx.run.verification import Result, VerifiedResult
from shrinkfx.system.folders import (
    ISSUE,
    JOURNAL,
    SUMMARY,
    draft_of,
    publish_draft,
    write_json,
)

logger = logging.getLogger(__name__)

_FACTS = "issue"
"""Name of the journal's fact with the contents of the issue, for a later analysis."""

_LAST = "issue written"
"""Name of the journal's fact with the text of the issue, as it was written last."""

_VERSIONS = "versions collected"
"""Name of the journal's fact with the output of ``collect_env``."""

_SECONDS = 60.0
"""Time limit for ``collect_env``; it took half a CPU-second on a machine without a
GPU.
"""


def with_explanation(out: Path, record: RunRecord, cause: Sequence[str]) -> RunRecord:
    """Add the cause to a record, and what the repro contains of the user's model."""
    carried, remains = record.verified.written.carried, ModelRemains()
    with note_errors(logger.info, "cannot tell what the repro contains: {}"):
        script = (out / "repro.py").read_text(encoding="utf-8")
        remains = find_model_remains(script, carried)
    return replace(record, cause=tuple(cause), remains=remains)


def drop_issue(out: Path) -> None:
    """Remove the issue of an earlier session, because the repro is not verified."""
    with contextlib.suppress(OSError):
        (out / ISSUE).unlink(missing_ok=True)


def collect_versions(
    context: RunContext, client: CheckClient, target: Signature
) -> str:
    """Return the output of ``collect_env``, once per run; '' with a note if that fails.

    No error here changes the result.
    """
    if target.kind is Kind.CHECK:
        return ""
    known = context.journal.fact(_VERSIONS)
    if known is None and context.budget.has(_SECONDS / 2):
        with note_errors(logger.info, "no versions: {}"):
            known = _collected(context, client)
    if known is None:
        context.note(f"could not collect the versions: {_BY_HAND}")
    return str(known or "")


def _collected(context: RunContext, client: CheckClient) -> str | None:
    limits = Limits(_SECONDS, client.limits.max_rss_bytes)
    bounded = client.with_limits(limits, context.meters["explain"])
    answer = bounded.with_clock_limit(2 * _SECONDS).ask(CollectVersions()).answer
    if not isinstance(answer, Collected):
        return None
    text = environment_text(answer.text, answer.hosts)
    context.journal.note(_VERSIONS, text)
    return text


_BY_HAND = "add the output of python -m torch.utils.collect_env to ISSUE.md"


def write_issue(
    context: RunContext, record: RunRecord, explanation: Explanation, versions: str
) -> Path | None:
    """Write ``ISSUE.md`` next to the repro, and record its facts in the journal.

    No error here changes the result.

    Returns:
        The path; None with a user's command, because only the command knows what fails.
    """
    if record.failure.target.kind is Kind.CHECK:
        return None
    with note_errors(context.note, _NO_ISSUE):
        facts = facts_of(record, anonymous=context.options.anonymous)
        context.journal.note(_FACTS, json.loads(facts.to_line()))
        return _written(context, facts, explanation, versions)
    return None


_NO_ISSUE = f"{ISSUE} could not be written: {{}}"


@contextlib.contextmanager
def note_errors(
    note: Callable[[str], None], text: str, interrupted: str = ""
) -> Iterator[None]:
    """Run an optional step: note any error, also Ctrl-C, because a result exists.

    Args:
        text: the note, with a place for the error.
        interrupted: the note after Ctrl-C; '' for ``text``.
    """
    try:
        yield
    except KeyboardInterrupt:
        note(interrupted or text.format("interrupted"))
    except Exception as error:
        logger.exception("an optional step failed")
        note(text.format(error))


def rewrite_issue(
    context: RunContext, client: CheckClient, explanation: Explanation
) -> Path | None:
    """Write the issue of a finished run again, with the cause that is known now."""
    facts = _recorded_facts(context)
    if facts is None:
        return None
    versions = collect_versions(context, client, facts.failure)
    return _written(context, facts, explanation, versions)


def add_versions(
    repro: Path, verdicts: Mapping[str, bool | None], listener: Listener
) -> None:
    """Add verdicts by version of PyTorch to the issue in the folder of a repro.

    Verdicts of earlier calls are kept. If the folder has no issue of a run, this does
    nothing. If the issue cannot be written, a note says so, and the result stands.

    Args:
        verdicts: by version; None if the repro neither failed as stated nor passed.
    """
    known = {version: v for version, v in verdicts.items() if v is not None}
    if repro.name == "repro.py" and len(known) >= 2:
        _write_again(repro.parent, listener, known)


def _write_again(out: Path, listener: Listener, known: Mapping[str, bool]) -> None:
    """Write the issue of an earlier run again, if there is one.

    Args:
        known: further verdicts by version of PyTorch.
    """
    if not ((out / ISSUE).is_file() and (out / JOURNAL).is_file()):
        return
    with (
        note_errors(lambda text: listener(NoteAdded(text)), _NO_ISSUE),
        open_journal_for_report(out) as journal,
    ):
        with journal.db.checked_decoding():
            options = Options.from_json(journal.fact("run")["options"])
        context = RunContext(options, out, listener, journal)
        if (facts := _recorded_facts(context)) is None:
            return
        tested = {**facts.tested, **known}
        facts = replace(facts, tested={v: tested[v] for v in sorted(tested, key=order)})
        journal.note(_FACTS, json.loads(facts.to_line()))
        versions = str(journal.fact(_VERSIONS) or "")
        _written(context, facts, read_explanation(out), versions)


def _recorded_facts(context: RunContext) -> IssueFacts | None:
    """Read the recorded facts of the issue; None, with a note, if they are too old."""
    known: Any = context.journal.fact(_FACTS)
    try:
        if known is not None:
            return read_older(IssueFacts, known)
    except (TypeError, ValueError):
        pass
    context.note(f"{ISSUE} is unchanged: an earlier version of shrinkfx made this run")
    return None


def _written(
    context: RunContext, facts: IssueFacts, explanation: Explanation, versions: str
) -> Path | None:
    path, listed = context.out / ISSUE, "\n".join(facts.versions)
    environment = with_gpu(versions, facts.versions) if versions else listed
    with note_errors(context.note, _NO_ISSUE):
        script = (context.out / "repro.py").read_text(encoding="utf-8")
        title = context.options.title or ""
        explanation = use_repro_names(
            explanation, facts.renamed, anonymous=facts.anonymous
        )
        text = issue_text(facts, explanation, script, environment, title)
        last = context.journal.fact(_LAST)
        if path.exists() and path.read_text(encoding="utf-8") not in (last, text):
            path = path.with_suffix(".new.md")
            context.note(f"{ISSUE} may have your edits: the new text is in {path.name}")
        else:
            context.journal.note(_LAST, text)
        draft_of(path).write_text(text, encoding="utf-8")
        publish_draft(path)
        return path
    return None


FOLDER = "explain"
"""The subfolder of the output folder that keeps evidence such as generated code."""


@dataclass(frozen=True)
class Explained:
    """The known cause of a failure.

    Attributes:
        cause: its sentences, with the names that the repro uses.
        lines: a short form for a terminal, with the same names.
        folder: the folder of the run, which holds ``explain.json``.
    """

    explanation: Explanation
    cause: tuple[str, ...]
    lines: tuple[str, ...]
    folder: Path

    @property
    def path(self) -> Path:
        """The file that holds the whole explanation."""
        return self.folder / EXPLAIN


def explain_result(context: RunContext, final: VerifiedResult) -> Explained:
    """Analyze the cause of the result's failure, and write it to the folder.

    The result is already written. No error here changes it.
    """
    shown = _shown_by_run(context, final)
    interrupted = "interrupted before the cause was known"
    with note_errors(context.note, "the cause analysis failed: {}", interrupted):
        context.journal.note(RESULT, _to_json(context.options, final, shown))
        if not context.options.no_explain:
            cause = _analyze_cause(final.result, shown)
            failure = final.record.failure.seen
            new, anonymous = final.record.programs.renamed, context.options.anonymous
            return _write_explanation(
                context.out, cause, failure, new, anonymous=anonymous
            )
    return Explained(Explanation(), (), (), context.out)


def _shown(program: Subject, fails: bool, memory: MemoryReport | None) -> KnownFacts:
    """Return what the run has shown about a result, for the analysis."""
    mismatches = {each.node: each for each in program.other_causes.mismatches}
    return KnownFacts(fails, memory=memory, mismatches=mismatches)


def _shown_by_run(context: RunContext, final: VerifiedResult) -> KnownFacts:
    """Return what this run has shown, with sentences about the user's own code.

    They name the code in the compiler that the failure needs, and the function in which
    the repro hangs or dies.
    """
    verified, failure = final.verified, final.record.failure.seen
    shown = _shown(
        final.result.program, verified.always_fails, final.record.memory.report
    )
    if not verified.always_fails:
        return shown
    shown = replace(shown, compared=final.record.conditions.reference)
    written, anonymous = verified.written, context.options.anonymous
    if written.needs_own:
        code = written.carried.in_compiler
        own = format_disappears_without(code, anonymous=anonymous)
        shown = replace(shown, own=own)
    if function := find_own_function(failure, verified.log):
        text = format_stops_in_function(failure.kind, function, anonymous=anonymous)
        shown = replace(shown, inside=text)
    return shown


def explain_folder(options: Options, out: Path, listener: Listener) -> Explained:
    """Analyze the result of an earlier run in its folder.

    Raises:
        UsageError: the folder holds no result.
    """
    explain_options = replace(options, explain=True, no_explain=False)
    explain_options = replace(explain_options, max_checks=None, max_minutes=None)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with open_run_folder(explain_options, out, listener, "--explain") as context:
        known = context.journal.fact(RESULT)
        assert known is not None  # ``over`` has refused a run without a result
        listener(PhaseEntered(Phase.EXPLANATION))
        with context.server(worker) as context.worker:
            program = load_or_find_subject(context)
            program = program.with_options(calls=known["calls"])
            program = replace(program, client=with_values(program.client, out))
            result = _from_json(program, known)
            cause = _analyze_cause(result, _shown_from_json(program, known))
            failure = result.seen or program.target
            new, anonymous = known.get("renamed", {}), explain_options.anonymous
            explained = _write_explanation(
                out, cause, failure, new, anonymous=anonymous
            )
            rewrite_issue(context, program.client, cause)
            return explained


def _to_json(
    options: Options, final: VerifiedResult, shown: KnownFacts
) -> dict[str, Any]:
    """Return all that ``--explain DIR`` needs for the analysis of a result."""
    result = final.result
    return {
        "candidate": result.candidate.to_json(),
        "form": result.form,
        "seen": asdict(result.seen) if result.seen else None,
        "rate": result.rate,
        "calls": result.program.calls,
        "fails": shown.fails,
        "compared": shown.compared,
        "memory": asdict(shown.memory) if shown.memory else None,
        "own": shown.own,
        "inside": shown.inside,
        "inputs": str(options.inputs.resolve()) if options.inputs else None,
        "environment": dict(options.environment),
        "renamed": dict(final.record.programs.renamed),
    }


def _from_json(program: Subject, known: Mapping[str, Any]) -> Result:
    candidate = Candidate.from_json(program.whole.skeleton, known["candidate"])
    seen = Signature.from_json(known["seen"]) if known["seen"] else None
    return Result(program, candidate, known["form"], seen, rate=known["rate"])


def _shown_from_json(program: Subject, known: Mapping[str, Any]) -> KnownFacts:
    """Restore what a run has shown; earlier versions of shrinkfx recorded less."""
    recorded = known.get("memory")
    memory = MemoryReport(**recorded) if recorded else None
    shown = _shown(program, known.get("fails", True), memory)
    others = ("compared", "own", "inside")
    return replace(shown, **{name: known[name] for name in others if name in known})


def _analyze_cause(result: Result, shown: KnownFacts) -> Explanation:
    """Analyze a result; with ``--check`` there is nothing to analyze."""
    context, program = result.context, result.program
    if program.target.kind is Kind.CHECK:
        return Explanation(unknown=(_COMMAND_ONLY,))
    context.note("analyzing the cause of the failure")
    client = program.client.with_options(form=CandidateForm(result.form))
    client = client.with_limits(client.limits, context.meters["explain"])
    reduced = ReducedProgram(
        replace(client, patience=None),
        result.candidate,
        result.seen or program.target,
        context.note,
        context.budget,
        context.budget.pace_s,
        result.rate,
    )
    folder = context.out / FOLDER if context.options.explain else None
    return explain(reduced, shown, folder)


_COMMAND_ONLY = "with --check, only your command knows how the program fails"


def _write_explanation(
    out: Path,
    explanation: Explanation,
    failure: Signature,
    renamed: Mapping[str, str],
    *,
    anonymous: bool,
) -> Explained:
    """Write ``explain.json``, and add the cause to the repro's header and the summary.

    A run writes its summary again after this. ``explain.json`` uses the names of the
    reduced program, for other tools; files for people use the names of the repro.

    Args:
        renamed: the repro's names of inputs and weights, by those of the program.
    """
    write_json(out / EXPLAIN, to_json_with_old_names(explanation))
    readable = explanation
    new = use_repro_names(explanation, renamed, anonymous=anonymous)
    cause = tuple(map(strip_input_program, new.cause))
    if anonymous:  # the text must not name code that is not in the repro
        cause = tuple(strip_origins(s, new, anonymous=True) for s in cause)
    else:
        readable = use_repro_names(explanation, renamed, models_too=True)
    culprit = (
        explanation.culprit_mismatch.operator.operator
        if explanation.culprit_mismatch is not None
        else ""
    )
    _add_cause_to_repro(out / "repro.py", cause, culprit)
    write_cause(out, readable.cause)
    return Explained(
        explanation, readable.cause, explanation_lines(readable, failure), out
    )


def _add_cause_to_repro(repro: Path, cause: Sequence[str], culprit: str) -> None:
    """Add the cause to the header of a verified repro, if the code stays the same."""
    before = repro.read_text(encoding="utf-8")
    after = set_cause(before, cause, culprit)
    if ast.dump(ast.parse(before)) == ast.dump(ast.parse(after)):
        draft_of(repro).write_text(after, encoding="utf-8")
        publish_draft(repro)


_MOST_CHARS, _WIDTH = 1 << 20, 400
"""Maximum number of characters: of a file that is shown, and of a check's outcome."""


def report_run(context: RunContext) -> Path | None:
    """Write the page of the current run; return None, with a note, if that fails."""
    with note_errors(context.note, _FAILED):
        return write_page(context.out, collect_run(context.out, context.journal))
    return None


_FAILED = "could not write report.html: {}"


def report_explained(out: Path, listener: Listener) -> None:
    """Write the page of a run after its root-cause analysis; note if that fails."""
    with note_errors(lambda text: listener(NoteAdded(text)), _FAILED):
        report_folder(out)


def report_folder(out: Path) -> Path:
    """Write the page of an earlier run in its folder.

    Raises:
        UsageError: the folder holds no run, or another process uses it.
        StorageError: the page cannot be written, or the journal cannot be read.
    """
    with open_journal_for_report(out) as journal:
        try:
            run = collect_run(out, journal)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            reason = f"cannot read the files of the run ({error!r})"
            advice = "check whether a file in the folder was edited by hand"
            raise UsageError(f"--report {out}: {reason}: {advice}") from error
        return write_page(out, run)


def report_again(out: Path, listener: Listener) -> Path:
    """Write the page of an earlier run, and its issue if there is one."""
    page = report_folder(out)
    _write_again(out, listener, {})
    return page


def write_page(out: Path, run: Run) -> Path:
    """Write the page of a run into its folder."""
    # Imported here, because the import takes 0.1 s, and few tasks need it.
    from shrinkfx.report.page.page import render_page

    path = out / REPORT
    draft_of(path).write_text(render_page(run), encoding="utf-8")
    publish_draft(path)
    return path


def collect_run(out: Path, journal: Journal) -> Run:
    """Return all facts about a run."""
    options = (journal.fact("run") or {}).get("options", {})
    result: Mapping[str, Any] = journal.fact(RESULT) or {}
    reduced = result.get("candidate", {})
    program, candidate = _program(journal, reduced)
    baseline = journal.fact("baseline")
    known = journal.fact(TARGET) or (baseline or {}).get("target")
    lacks_program = baseline is not None and program is None
    target = Signature.from_json(known) if known else None
    summary = _read(out / SUMMARY)
    explanation, why = _explanation(out)
    swept = _read(out / "sweep.json")
    run = Run(
        model=options.get("name") or Path(options.get("model", "")).name,
        command=options.get("command", ""),
        folder=_named(out) if options else "",
        summary=read_older(Summary, summary or {}),
        checks=tuple(_check(query, target) for query in journal.list_queries()),
        program=program,
        no_program=_NOT_RECORDED if lacks_program else "",
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


_NOT_RECORDED = (
    "An earlier version of shrinkfx made this run and did not record the program's "
    "graph."
)


def _files(options: Mapping[str, Any]) -> set[str]:
    """Return the names of the files and modules in the options of a run."""
    paths = (options.get("model"), options.get("inputs"), options.get("name"))
    names = filter(None, (*paths, *options.get("preload", ())))
    return {Path(name).name for name in names}


def _check(query: RecordedQuery, target: Signature | None) -> Check:
    differs = query.outcome is Outcome.DIFFERENT
    is_target = target is not None and target.occurs_in(query.seen)
    data = {**vars(query), "message": cut_text(query.message, _WIDTH)}
    keep = frozenset(data.pop("candidate")["keep"])
    del data["seen"]
    return Check(**data, keep=keep, is_by_catch=differs and not is_target)


def _program(
    journal: Journal, reduced: Mapping[str, Any]
) -> tuple[Skeleton | None, Candidate | None]:
    """Return the graph of the input program, and the reduced program."""
    recorded = journal.fact(PROGRAM)
    if recorded is None:
        return None, None
    program = Skeleton.from_json(recorded)
    return program, Candidate.from_json(program, reduced) if reduced else None


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
