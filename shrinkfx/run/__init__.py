"""One run, phase by phase: see the failure, reduce, write and verify.

With ``api``, the only modules that know the concrete classes of search, check and
report.
"""

from __future__ import annotations

from pathlib import Path

from shrinkfx.check.server import GUARDED_WORKER, WORKER
from shrinkfx.failure.blame import Suspect
from shrinkfx.options import Options, Reduction
from shrinkfx.report.summary import Sizes
from shrinkfx.run.by_command import verify_by_command
from shrinkfx.run.job import Job, server_for
from shrinkfx.run.memory import examine, wants_guard_pages
from shrinkfx.run.reduction import reduce
from shrinkfx.run.result import Result, conclude, verify, write
from shrinkfx.run.subject import find_subject
from shrinkfx.search.events import Caught, Listener, Seen


def blame(options: Options, out: Path, listener: Listener) -> tuple[Suspect, ...]:
    """See the failure, and say which operators it may come from."""
    job = Job(options, out, listener)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with server_for(options, worker) as server:
        return find_subject(job, server).suspects


def run(options: Options, out: Path, listener: Listener) -> Reduction:
    """Take a program from its failure to a verified repro in ``out``."""
    job = Job(options, out, listener)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with server_for(options, worker) as server:
        subject = find_subject(job, server)
        target = subject.target
        asked = target.kind, target.stage, target.text or target.detail
        listener(Seen(*asked, subject.rate, subject.whole.cost[0]))
        found = reduce(job, subject)
        subject = subject.with_options(calls=found.calls)
        reducer = found.reducer
        result = Result(
            candidate=reducer.best,
            form=reducer.form,
            seen=reducer.seen or subject.target,
            printable=found.search.printable,
            rate=found.rate,
            memory=examine(
                job, subject.compiler, subject.target, reducer.best, reducer.form
            ),
        )
        printed = write(job, subject.compiler, result)
        if subject.command:
            verified = verify_by_command(job, server, subject, result, printed)
        else:
            verified = verify(job, server, subject, result, printed)
        after, versions = Sizes.from_json(printed), server.ready.versions
    reduction = conclude(job, subject, found, result, verified, after, versions)
    for caught in reduction.summary["by_catch"]:
        listener(Caught(**caught))
    return reduction
