"""Export a candidate that an earlier run has tested: ``--candidate DIGEST``."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.check.oracle import CheckClient, RepeatedOracle
from shrinkfx.errors import LoadError, ShrinkfxError, UsageError
from shrinkfx.events import Listener
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation
from shrinkfx.journal.journal import Journal, RecordedQuery
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.choices import CandidateForm, Guard
from shrinkfx.protocol.record import read_older
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import ProgramSize, VerifiedRepro
from shrinkfx.report.summary import DIGITS
from shrinkfx.run.context import RunContext, Subject, server_for
from shrinkfx.run.folder import load_unchanged_options, require_journal
from shrinkfx.run.observe import (
    BASELINE_TIMEOUT_S,
    describe_program,
    require_schema,
)
from shrinkfx.run.simplification import with_values
from shrinkfx.run.verification import (
    Result,
    analyze_memory_error,
    verify_result,
    write_result,
)
from shrinkfx.system.folders import JOURNAL, minimal_program

_FOLDER = "candidate-"
"""Prefix of the name of a candidate's folder, in the folder of its run."""


@dataclass(frozen=True)
class Retrieved:
    """An exported candidate.

    Attributes:
        seen: its outcome, in one line.
        program: its ``.pt2`` file, with a verified ``repro.py`` next to it if it fails.
        verified: the counts of the repro's runs; None if the candidate passes.
    """

    seen: str
    operators: int
    program: Path
    verified: VerifiedRepro | None


@dataclass(frozen=True)
class TestedCandidate:
    """A candidate that a run has tested.

    Attributes:
        query: the query of that run.
        options: the options of the run, without limits on time or checks.
        baseline: the journal's facts about the input program.
    """

    query: RecordedQuery
    options: Options
    baseline: Mapping[str, Any]


def retrieve(tested: TestedCandidate, folder: Path, listener: Listener) -> Retrieved:
    """Write a candidate of the run in ``folder``, and check it as that run did.

    Raises:
        UsageError: the program now loads differently than in that run.
    """
    query, options, settings = tested.query, tested.options, tested.baseline
    out = folder / f"{_FOLDER}{query.digest[:DIGITS]}"
    context = RunContext(options, out, listener, written=(folder,))
    checked = read_older(CheckOptions, settings["options"])
    guarded = checked.guard_pages is not Guard.OFF
    kind = GUARDED_WORKER if guarded else WORKER
    with (
        _remove_incomplete_folder(folder, out),
        server_for(options, kind, context.sandbox) as context.worker,
        context.bare_servers,
    ):
        meter = context.meters["verify"]
        limits = context.limits(BASELINE_TIMEOUT_S)
        client = CheckClient(context.worker, limits, checked, meter)
        client = with_values(client, folder)
        client, described = describe_program(context, client)
        candidate = _restore_candidate(query, described.skeleton, folder)
        out.mkdir(exist_ok=True)
        client = client.with_stock_build().with_options(form=CandidateForm(query.form))
        wanted = query.seen or Signature.from_json(settings["target"])
        seen, rate = check_again(client, candidate, wanted, settings["rate"])
        whole = Candidate.from_skeleton(described.skeleton)
        nodes = described.skeleton.original_nodes
        program = Subject(
            context=context,
            whole=whole,
            before=ProgramSize(whole.cost[0], nodes, 0, 0),
            client=client,
            target=(seen.signature or wanted).without_passing_run,
            rate=rate,
            other_causes=described.other_causes,
        )
        return _write(program, candidate, seen)


@contextlib.contextmanager
def _remove_incomplete_folder(folder: Path, out: Path) -> Iterator[None]:
    """Remove the folder of a candidate that was not completed, if it is a new folder.

    Add a note with the command that tries again.
    """
    was_there = out.exists()
    try:
        yield
    except (ShrinkfxError, KeyboardInterrupt) as error:
        if not was_there:
            shutil.rmtree(out, ignore_errors=True)
        if not isinstance(error, (UsageError, LoadError)):
            digest = out.name.removeprefix(_FOLDER)
            again = shlex.join(
                ["shrinkfx", "--candidate", digest, "--out", str(folder)]
            )
            notice = "" if was_there else "nothing was kept; "
            error.add_note(f"{notice}to try again: {again}")
        raise


def _restore_candidate(
    query: RecordedQuery, skeleton: Skeleton, folder: Path
) -> Candidate:
    candidate = Candidate.from_json(skeleton, query.candidate)
    if not candidate.keep <= set(skeleton.operators) or (
        candidate.digest != query.digest
    ):
        raise UsageError(
            f"--candidate {query.digest[:DIGITS]}: the program of {folder} now loads "
            "differently than in that run; check whether PyTorch or a preloaded module "
            "has changed"
        )
    return candidate


def check_again(
    client: CheckClient, candidate: Candidate, wanted: Signature, rate: float
) -> tuple[Observation, float]:
    """Run a candidate until it fails as before, as often as its run would have done.

    Args:
        rate: the rate of the failure that was reduced; 1.0 if it always shows.

    Returns:
        The observation, and the fraction of runs that fail.
    """
    seen = RepeatedOracle(client, wanted, rate).check(candidate).observation
    if seen.signature is None or rate == 1.0:
        return seen, rate
    return seen, RepeatedOracle(client, seen.signature, rate).measure(candidate)


def _write(program: Subject, candidate: Candidate, seen: Observation) -> Retrieved:
    """Write a candidate, and verify the repro of its failure.

    If the candidate fails on the inputs on which it must pass, the repro contains only
    these.
    """
    failure = seen.signature
    shown = failure.without_passing_run if failure else None
    result = Result(
        *(program, candidate, str(program.client.options.form), shown),
        rate=program.rate,
        at_passing=shown != failure,
    )
    printed, verified = write_result(result), None
    if failure is not None:
        as_seen = replace(result, program=replace(program, target=failure))
        result = replace(result, memory=analyze_memory_error(as_seen))
        verified = verify_result(result, printed).verified
    path = minimal_program(program.context.out)
    return Retrieved(seen.in_words, printed.operators, path, verified)


def find_candidate(
    folder: Path, digest: str, moved: Path | None = None
) -> TestedCandidate:
    """Find a candidate in the journal of a run, with all facts that it depends on.

    Args:
        digest: the candidate's digest, or a unique prefix of it.
        moved: the new path of the run's program, if it has moved.

    Raises:
        UsageError: the folder holds no run or no such candidate, or a file has changed.
        LoadError: a file does not exist any more.
    """
    require_journal(folder, "--out")
    path, flag = folder / JOURNAL, f"--candidate {digest}"
    with closing(Journal(path, only_read=True)) as journal:
        baseline = journal.fact("baseline")
        for known in (journal.fact("unchanged"), baseline):
            if known is not None:
                require_schema(flag, known)
        queries = journal.list_queries(digest)
        digests = {query.digest for query in queries}
        if not digests:
            others = _by_catch(journal, baseline)
            raise UsageError(
                f"{flag}: no candidate in {path} has this digest; {others}"
            )
        if baseline is None:
            why = "that run spent its time before the search"
            raise UsageError(f"{flag}: {why}; to resume it: --resume {folder}")
        if len(digests) > 1:
            raise UsageError(
                f"{flag}: {len(digests)} candidates in {path} have this prefix: give "
                "more digits"
            )
        flags = f"{flag} --out {folder}"
        options = load_unchanged_options(folder, journal, flags, moved)
        if options.sweeping:
            why = "the failures of that sweep are not fully reduced yet"
            raise UsageError(f"{flags}: {why}; to resume it: --resume {folder}")
    # AOTInductor checks the candidate, even if a user's command did in the run.
    unlimited = replace(options, check=None, max_checks=None, max_minutes=None)
    return TestedCandidate(queries[-1], unlimited, baseline)


def _by_catch(journal: Journal, baseline: Mapping[str, Any] | None) -> str:
    """Name the last candidates with other failures, which the user may have meant."""
    others: dict[str, str] = {}
    if baseline is not None:
        target = Signature.from_json(baseline["target"])
        others = {
            str(query.seen): query.digest[:DIGITS]
            for query in journal.list_queries()
            if query.seen and not target.admits(query.seen.without_passing_run)
        }
    if not others:
        return "that run found no other failure; report.html lists all checks"
    return f"other failures of that run: {', '.join([*others.values()][-_SHOWN:])}"


_SHOWN = 5
"""Number of digests that are named; ``summary.json`` has all of them."""
