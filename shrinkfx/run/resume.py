"""Restore the baseline of an earlier session, without reproducing the failure again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command
from shrinkfx.check.fast_builds import Builds
from shrinkfx.check.oracle import CheckClient
from shrinkfx.check.time_limit import AdaptiveTimeLimit
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.operators import OperatorFinding
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.caveats import OtherCauses
from shrinkfx.report.record import ProgramSize
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import describe_program
from shrinkfx.run.folder import PROGRAM
from shrinkfx.run.input_failure import SCHEMA, require_same_versions
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.run.subject import Subject

_FACT = "baseline"


def load_or_find_subject(context: RunContext, server: Server) -> Subject:
    """Return the failing program: from the journal, or by reproducing the failure.

    Eager runs once in both cases, because cut values come from its run.

    Raises:
        LoadError: eager cannot run the program.
        NotReproducible: the program does not fail as asked.
        UsageError: the earlier session used another machine or another torch.
    """
    known = context.journal.fact(_FACT)
    if known is None:
        program = reproduce_failure(context, server)
        if not program.not_tested:  # else a session with more time tests the forms
            context.journal.note(_FACT, _to_json(context, server, program))
    else:
        require_same_versions(context, server, known)
        context.note(f"baseline: {known['target']['text']} (from the journal)")
        context.budget.keep(known["check_s"])
        program = _from_json(context, server, known)
    # If a session could not test all forms, the last form that was found is cut.
    context.journal.note(PROGRAM, program.whole.skeleton.to_json())
    return _with_adaptive_limit(context, program)


def _with_adaptive_limit(context: RunContext, program: Subject) -> Subject:
    """Let the time limit adapt to the checks, unless the user has set one."""
    if context.options.timeout_s is not None:
        return program
    patience = AdaptiveTimeLimit(program.client.limits.timeout_s)
    return replace(program, client=replace(program.client, patience=patience))


def _to_json(context: RunContext, server: Server, program: Subject) -> dict[str, Any]:
    client = program.client
    return {
        "schema": SCHEMA,
        "versions": dict(server.ready.versions),
        "options": asdict(client.options),
        "timeout_s": client.limits.timeout_s,
        "builds": client.builds.to_json(),
        "before": asdict(program.before),
        "target": asdict(program.target),
        "rate": program.rate,
        "guarding": asdict(program.guarding),
        "suspects": [asdict(suspect) for suspect in program.suspects],
        "warnings": program.other_causes.warnings,
        "examined": [asdict(each) for each in program.other_causes.examined],
        "by_what_is_behind": program.short_results,
        "check_s": context.budget.check_s,
        "peak_rss_bytes": context.meters["baseline"].peak_rss_bytes,
    }


def _from_json(
    context: RunContext, server: Server, known: Mapping[str, Any]
) -> Subject:
    meter = context.meters["baseline"]
    meter.peak_rss_bytes = known.get("peak_rss_bytes", 0)  # unknown to older versions
    builds = dict(known["builds"])
    builds["fallbacks"] = Counter(builds["fallbacks"])
    limits = context.limits(known["timeout_s"])
    options = CheckOptions.from_json(known["options"])
    client = CheckClient(server, limits, options, meter, Builds(**builds))
    client, described = describe_program(context, client)
    causes = OtherCauses(
        mismatches=described.description.mismatches,
        examined=tuple(map(OperatorFinding.from_json, known["examined"])),
        warnings=tuple(known["warnings"]),
    )
    command, cwd = context.options.check, context.options.cwd
    return Subject(
        whole=Candidate.from_skeleton(described.skeleton),
        before=ProgramSize.from_json(known["before"]),
        client=client.with_limits(limits, context.meters["search"]),
        target=Signature.from_json(known["target"]),
        rate=known["rate"],
        command=Command.parse(command, cwd) if command else None,
        guarding=Guarding.from_json(known["guarding"]),
        suspects=tuple(Suspect(**suspect) for suspect in known["suspects"]),
        other_causes=causes,
        short_results=tuple(known["by_what_is_behind"]),
    )
