"""Get back a candidate that an earlier run has met: ``--candidate DIGEST``."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline.stock import describe
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient, RepeatedOracle
from shrinkfx.errors import UsageError
from shrinkfx.events import Listener
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation
from shrinkfx.flags import options_in
from shrinkfx.journal.journal import Asked, Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.choices import CandidateForm, Guard
from shrinkfx.protocol.comparison import ComparisonOptions
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import ProgramSize
from shrinkfx.report.summary import DIGITS
from shrinkfx.report.written import Verified
from shrinkfx.run.context import RunContext, server_for
from shrinkfx.run.describing import Described, describe_program
from shrinkfx.run.folder import JOURNAL
from shrinkfx.run.listing import with_values
from shrinkfx.run.memory_error import examine, is_on_gpu
from shrinkfx.run.observe import BASELINE_TIMEOUT_S
from shrinkfx.run.record import Result
from shrinkfx.run.result import verify, write
from shrinkfx.run.subject import Subject
from shrinkfx.run.unchanged import require_schema

_SETTINGS = (
    *("inductor", "environment", "device", "backend", "arch"),
    *(option.name for option in options_in(ComparisonOptions)),
)
"""Options that are taken from the run that met the candidate."""


@dataclass(frozen=True)
class Retrieved:
    """A candidate, written out.

    Attributes:
        seen: what it did, in a line.
        program: its ``.pt2``, with a verified ``repro.py`` beside it if it fails.
        verified: how the repro's runs went, or None if it passes.
    """

    seen: str
    operators: int
    program: Path
    verified: Verified | None


def retrieve(
    options: Options, digest: str, folder: Path, listener: Listener
) -> Retrieved:
    """Write a candidate of the run in ``folder``, and run it as that run did.

    Raises:
        UsageError: the run met no such candidate, or was of another program.
    """
    asked, asked_then, settings = _find(folder, digest)
    as_then = {name: asked_then[name] for name in _SETTINGS if name in asked_then}
    options = dataclasses.replace(options, **as_then)
    out = folder / f"candidate-{asked.digest[:DIGITS]}"
    context = RunContext(options, out, listener)
    checked = CheckOptions.from_json(settings["options"])
    guarded = checked.guard_pages is not Guard.OFF
    with server_for(options, GUARDED_WORKER if guarded else WORKER) as server:
        meter = context.meters["verify"]
        limits = context.limits(BASELINE_TIMEOUT_S)
        client = CheckClient(server, limits, checked, meter)
        client = with_values(client, folder)
        client, described = describe_program(context, client)
        candidate = _remade(asked, described.skeleton, folder)
        out.mkdir(exist_ok=True)
        client = client.built_stock().with_options(form=CandidateForm(asked.form))
        wanted = asked.failure or Signature.from_json(settings["target"])
        seen, rate = see_again(client, candidate, wanted, settings["rate"])
        subject = _subject(client, described, seen.signature or wanted, rate)
        return _write(context, server, subject, candidate, seen)


def _subject(
    client: CheckClient, described: Described, target: Signature, rate: float
) -> Subject:
    """Take the original for a program that fails as a candidate of it does."""
    skeleton = described.skeleton
    whole = Candidate.whole(skeleton)
    return Subject(
        whole=whole,
        before=ProgramSize(whole.cost[0], skeleton.original_nodes, 0, 0),
        client=client,
        target=target,
        rate=rate,
        other_causes=described.other_causes,
    )


def _remade(asked: Asked, skeleton: Skeleton, folder: Path) -> Candidate:
    candidate = Candidate.from_json(skeleton, asked.candidate)
    if not candidate.keep <= set(skeleton.operators) or (
        candidate.digest != asked.digest
    ):
        raise UsageError(
            f"--candidate {asked.digest[:DIGITS]}: the run in {folder} was of another "
            "program, or with other inputs or preloads: give the same ones"
        )
    return candidate


def see_again(
    client: CheckClient, candidate: Candidate, wanted: Signature, rate: float
) -> tuple[Observation, float]:
    """Run a candidate until it fails as it did, as often as that run would have done.

    Args:
        rate: of the failure that was reduced: 1.0 if it is steady.

    Returns:
        What it did, and in which part of its runs.
    """
    seen = RepeatedOracle(client, wanted, rate).check(candidate).observation
    if seen.signature is None or rate == 1.0:
        return seen, rate
    return seen, RepeatedOracle(client, seen.signature, rate).measure(candidate)


def _write(
    context: RunContext,
    server: Server,
    subject: Subject,
    candidate: Candidate,
    seen: Observation,
) -> Retrieved:
    """Write a candidate, and verify the repro of its failure."""
    client = subject.client
    form = str(client.options.form)
    result = Result(candidate, form, seen.signature, rate=subject.rate)
    printed = write(context, client, result)
    verified = None
    if seen.signature is not None:
        on_gpu = is_on_gpu(server.ready)
        about = seen.signature, candidate, form
        memory = examine(context, client, *about, on_gpu=on_gpu)
        result = dataclasses.replace(result, memory=memory)
        verified = verify(context, server, subject, result, printed).verified
    program = context.out / "minimal.pt2"
    return Retrieved(describe(seen), printed.operators, program, verified)


def _find(folder: Path, digest: str) -> tuple[Asked, dict[str, Any], dict[str, Any]]:
    """Find a question, the options of its run, and what its baseline has found."""
    path = folder / JOURNAL
    if not path.is_file():
        raise UsageError(f"--out {folder} holds no run: name the folder of the one")
    with closing(Journal(path)) as journal:
        run, baseline = journal.fact("run"), journal.fact("baseline")
        for known in (journal.fact("unchanged"), baseline):
            if known is not None:
                require_schema(f"--candidate {digest}", known)
        found = journal.find(digest)
        digests = {asked.digest for asked in found}
        if not digests:
            there = _by_catch(journal, baseline)
            raise UsageError(f"--candidate {digest}: none begins so in {path}; {there}")
    if baseline is None:
        why = "the minutes of that run were spent before its search"
        raise UsageError(f"--candidate {digest}: {why}: --resume {folder}")
    if len(digests) > 1:
        what = f"{len(digests)} candidates begin so in {path}: give more digits"
        raise UsageError(f"--candidate {digest}: {what}")
    return found[-1], run["options"], baseline


def _by_catch(journal: Journal, baseline: dict[str, Any] | None) -> str:
    """Say what a user may have meant: the last candidates that failed otherwise."""
    others: dict[str, str] = {}
    if baseline is not None:
        target = Signature.from_json(baseline["target"])
        others = {
            str(asked.failure): asked.digest[:DIGITS]
            for asked in journal.find("")
            if asked.failure and not target.admits(asked.failure)
        }
    if not others:
        return "that run has met no other failure"
    return f"other failures that it met: {', '.join([*others.values()][-_SHOWN:])}"


_SHOWN = 5
"""Digests that are named; ``summary.json`` has all."""
