"""Last phase: write ``ISSUE.md``, the text of an issue for PyTorch."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.environments.versions import order
from shrinkfx.errors import ShrinkfxError
from shrinkfx.events import Listener, NoteAdded
from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.findings.record import Explanation
from shrinkfx.options.options import Options
from shrinkfx.protocol.descriptions import Collected
from shrinkfx.protocol.record import read_older
from shrinkfx.protocol.tasks import CollectVersions
from shrinkfx.report.issue.facts import IssueFacts, facts_of
from shrinkfx.report.issue.from_model import ModelRemains, find_model_remains
from shrinkfx.report.issue.plain import environment_text, with_gpu
from shrinkfx.report.issue.renaming import anonymize_explanation, use_repro_names
from shrinkfx.report.issue.text import ISSUE, issue_text
from shrinkfx.report.record import RunRecord
from shrinkfx.run.context import RunContext
from shrinkfx.run.folder import JOURNAL, open_journal_for_report
from shrinkfx.run.runs import read_explanation
from shrinkfx.system.atomic_files import draft_of, publish_draft

logger = logging.getLogger(__name__)

_FACTS = "issue"
"""Name of the journal's fact with the contents of the issue, for a later analysis."""

_VERSIONS = "versions collected"
"""Name of the journal's fact with the output of ``collect_env``."""

_SECONDS = 60.0
"""Time limit for ``collect_env``; it took half a CPU-second on a machine without a
GPU.
"""


def with_explanation(out: Path, record: RunRecord, cause: Sequence[str]) -> RunRecord:
    """Add the cause to a record, and what the repro contains of the user's model."""
    carried, remains = record.verified.written.carried, ModelRemains()
    try:
        remains = find_model_remains(
            (out / "repro.py").read_text(encoding="utf-8"), carried
        )
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - add nothing then
        logger.info(
            "cannot determine what the repro contains from the model: %r", error
        )
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
    try:
        if known is None and context.budget.has(_SECONDS / 2):
            known = _collected(context, client)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - noted below
        logger.info("no versions: %r", error)
    if known is None:
        context.note(f"could not collect the versions: {_BY_HAND}")
        return ""
    return str(known)


def _collected(context: RunContext, client: CheckClient) -> str | None:
    limits = Limits(_SECONDS, client.limits.max_rss_bytes)
    bounded = client.with_limits(limits, context.meters["explain"]).with_clock_limit(
        2 * _SECONDS
    )
    answer = bounded.ask(CollectVersions()).answer
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
    try:
        facts = facts_of(record, anonymous=context.options.anonymous)
        context.journal.note(_FACTS, json.loads(facts.to_line()))
        return _written(context, facts, explanation, versions)
    except (Exception, KeyboardInterrupt) as error:
        logger.exception("no issue")
        context.note(f"{ISSUE} could not be written: {error!r}")
        return None


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
    out = repro.parent
    known = {version: v for version, v in verdicts.items() if v is not None}
    has_issue = (out / ISSUE).is_file() and (out / JOURNAL).is_file()
    if repro.name != "repro.py" or not has_issue or len(known) < 2:
        return
    try:
        with open_journal_for_report(out) as journal:
            with journal.db.checked_decoding():
                options = Options.from_json(journal.fact("run")["options"])
            context = RunContext(options, out, listener, journal)
            if (facts := _recorded_facts(context)) is None:
                return
            tested = {**facts.tested, **known}
            ordered = {
                version: tested[version] for version in sorted(tested, key=order)
            }
            facts = replace(facts, tested=ordered)
            journal.note(_FACTS, json.loads(facts.to_line()))
            explanation = read_explanation(out)
            versions = str(journal.fact(_VERSIONS) or "")
            _written(context, facts, explanation, versions)
    except (ShrinkfxError, OSError, ValueError, TypeError, LookupError) as error:
        logger.exception("the versions were not added to the issue")
        listener(NoteAdded(f"{ISSUE} could not be written: {error}"))


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
    try:
        script = (context.out / "repro.py").read_text(encoding="utf-8")
        title = context.options.title or ""
        if facts.anonymous:
            explanation = anonymize_explanation(explanation, facts.renamed)
        else:
            explanation = use_repro_names(explanation, facts.renamed, models_too=False)
        text = issue_text(facts, explanation, script, environment, title)
        draft_of(path).write_text(text, encoding="utf-8")
        publish_draft(path)
    except Exception as error:
        logger.exception("no issue")
        context.note(f"{ISSUE} could not be written: {error}")
        return None
    return path
