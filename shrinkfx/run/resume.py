"""A failure that was seen in an earlier session, without seeing it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command
from shrinkfx.check.fast_builds import Builds
from shrinkfx.check.oracle import Compiler
from shrinkfx.check.time_limit import Patience
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import OtherCauses, Sizes
from shrinkfx.run.context import Job
from shrinkfx.run.describing import describe_program
from shrinkfx.run.observe import find_subject
from shrinkfx.run.subject import Subject
from shrinkfx.run.unchanged import SCHEMA, require_same_versions

_FACT = "baseline"


def recall_subject(job: Job, server: Server) -> Subject:
    """Find the failing form of the program, or fetch what an earlier session found.

    Even then eager has to run once: candidates are cut from its values.

    Raises:
        LoadError: eager cannot run it.
        NotReproducible: it does not fail as asked.
        UsageError: that session was on another machine, or with another torch.
    """
    known = job.journal.fact(_FACT)
    if known is None:
        subject = find_subject(job, server)
        if not subject.unasked:  # else a session with more minutes asks
            job.journal.note(_FACT, _to_json(job, server, subject))
        return _patient(job, subject)
    require_same_versions(job, server, known)
    job.note(f"baseline: {known['target']['text']} (as the journal says)")
    job.budget.keep(known.get("check_s", 0.0))  # a journal of before has none
    return _patient(job, _from_json(job, server, known))


def _patient(job: Job, subject: Subject) -> Subject:
    """Have the search learn how long checks take."""
    if job.options.timeout_s is not None:
        return subject
    patience = Patience(subject.compiler.limits.timeout_s)
    return replace(subject, compiler=replace(subject.compiler, patience=patience))


def _to_json(job: Job, server: Server, subject: Subject) -> dict[str, Any]:
    compiler = subject.compiler
    return {
        "schema": SCHEMA,
        "versions": dict(server.ready.versions),
        "options": asdict(compiler.options),
        "timeout_s": compiler.limits.timeout_s,
        "builds": compiler.builds.to_json(),
        "before": asdict(subject.before),
        "target": asdict(subject.target),
        "rate": subject.rate,
        "guarding": asdict(subject.guarding),
        "suspects": [asdict(suspect) for suspect in subject.suspects],
        "warnings": subject.other_causes.warnings,
        "examined": subject.other_causes.examined,
        "check_s": job.budget.check_s,
        "cpu_seconds": job.meters["baseline"].cpu_seconds,
    }


def _from_json(job: Job, server: Server, known: Mapping[str, Any]) -> Subject:
    meter = job.meters["baseline"]
    meter.cpu_seconds = known["cpu_seconds"] + server.ready.cpu_seconds
    builds = dict(known["builds"])
    builds["fallbacks"] = Counter(builds["fallbacks"])
    limits = job.limits(known["timeout_s"])
    options = CheckOptions.from_json(known["options"])
    compiler = Compiler(server, limits, options, meter, Builds(**builds))
    compiler, described = describe_program(job, compiler)
    causes = OtherCauses(
        mismatches=described.said.lies,
        examined=tuple(known.get("examined", ())),
        warnings=tuple(known["warnings"]),
    )
    asked, cwd = job.options.check, job.options.cwd
    return Subject(
        whole=Candidate.whole(described.skeleton),
        before=Sizes.from_json(known["before"]),
        compiler=compiler.with_limits(limits, job.meters["search"]),
        target=Signature.from_json(known["target"]),
        rate=known["rate"],
        command=Command.parse(asked, cwd) if asked else None,
        guarding=Guarding.from_json(known["guarding"]),
        suspects=tuple(Suspect(**suspect) for suspect in known["suspects"]),
        other_causes=causes,
    )
