"""Explanation phase: analyze the cause of the result's failure."""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.events import Listener, Phase, PhaseEntered
from shrinkfx.explain.cause import KnownFacts, explain
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.findings.record import EXPLAIN, Explanation
from shrinkfx.findings.words import explanation_lines
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.record import to_json_with_old_names
from shrinkfx.report.header import set_cause
from shrinkfx.report.in_compiler import (
    find_own_function,
    format_disappears_without,
    format_stops_in_function,
)
from shrinkfx.report.issue.plain import strip_origins
from shrinkfx.report.issue.renaming import anonymize_explanation, use_repro_names
from shrinkfx.report.summary import write_cause
from shrinkfx.run.context import RunContext
from shrinkfx.run.folder import RESULT, open_run_folder
from shrinkfx.run.issue import rewrite_issue
from shrinkfx.run.memory_error import wants_guard_pages
from shrinkfx.run.observe import load_or_find_subject
from shrinkfx.run.record import Result, VerifiedResult
from shrinkfx.run.simplification import with_values
from shrinkfx.run.subject import Subject
from shrinkfx.system.atomic_files import draft_of, publish_draft, write_json

logger = logging.getLogger(__name__)

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
    nothing = Explained(Explanation(), (), (), context.out)
    shown = _shown_by_run(context, final)
    try:
        context.journal.note(RESULT, _to_json(context.options, final, shown))
        if context.options.no_explain:
            return nothing
        cause = _analyze_cause(context, final.subject, final.result, shown)
        failure, new = final.record.failure.seen, final.record.programs.renamed
        anonymous = context.options.anonymous
        return _write_explanation(context.out, cause, failure, new, anonymous=anonymous)
    except KeyboardInterrupt:
        context.note("interrupted before the cause was known")
    except Exception as error:
        logger.exception("the explanation failed")
        context.note(f"the cause analysis failed: {error}")
    return nothing


def _shown(program: Subject, fails: bool, memory: MemoryReport | None) -> KnownFacts:
    """Return what the run has shown about a result, for the analysis."""
    mismatches = {each.node: each for each in program.other_causes.mismatches}
    return KnownFacts(fails, memory, mismatches)


def _shown_by_run(context: RunContext, final: VerifiedResult) -> KnownFacts:
    """Return what this run has shown, with sentences about the user's own code.

    They name the code in the compiler that the failure needs, and the function in which
    the repro hangs or dies.
    """
    verified, failure = final.verified, final.record.failure.seen
    shown = _shown(final.subject, verified.always_fails, final.record.memory.report)
    if not verified.always_fails:
        return shown
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
        with context.server(worker) as server:
            program = load_or_find_subject(context, server)
            program = program.with_options(calls=known["calls"])
            program = replace(program, client=with_values(program.client, out))
            result = _from_json(program, known)
            cause = _analyze_cause(
                context, program, result, _shown_from_json(program, known)
            )
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
        "calls": final.subject.calls,
        "fails": shown.fails,
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
    return Result(candidate, known["form"], seen, rate=known["rate"])


def _shown_from_json(program: Subject, known: Mapping[str, Any]) -> KnownFacts:
    """Restore what a run has shown; earlier versions of shrinkfx recorded less."""
    recorded = known.get("memory")
    memory = MemoryReport(**recorded) if recorded else None
    shown = _shown(program, known.get("fails", True), memory)
    return replace(shown, own=known.get("own", ""), inside=known.get("inside", ""))


def _analyze_cause(
    context: RunContext, program: Subject, result: Result, shown: KnownFacts
) -> Explanation:
    """Analyze a result; with ``--check`` there is nothing to analyze."""
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
    if anonymous:  # the text must not name code that is not in the repro
        readable, new = explanation, anonymize_explanation(explanation, renamed)
        cause = tuple(strip_origins(s, new, anonymous=True) for s in new.cause)
    else:
        readable = use_repro_names(explanation, renamed, models_too=True)
        cause = use_repro_names(explanation, renamed, models_too=False).cause
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
