"""One run, phase by phase: see the failure, reduce, write and verify.

With ``api``, the only modules that know the concrete classes of search, check and
report.
"""

from __future__ import annotations

from pathlib import Path

from shrinkfx.check.server import Server
from shrinkfx.options import Options, Reduction
from shrinkfx.report.summary import Sizes
from shrinkfx.run.job import Job
from shrinkfx.run.reduction import reduce
from shrinkfx.run.result import conclude, verify, write
from shrinkfx.run.subject import find_subject
from shrinkfx.search.events import Listener


def run(options: Options, out: Path, listener: Listener) -> Reduction:
    """Take a program from its failure to a verified repro in ``out``."""
    job = Job(options, out, listener)
    with Server(
        model=options.model.resolve(),
        inputs=options.inputs.resolve() if options.inputs else None,
        preloads=options.preload,
        device=options.device,
        inductor=options.inductor,
        environment=options.environment,
    ) as server:
        subject = find_subject(job, server)
        found = reduce(job, subject)
        printed = write(job, subject, found.reducer.best, found.reducer.form)
        verified = verify(job, server, subject, found, printed)
        after, versions = Sizes.from_json(printed), server.ready.versions
    return conclude(job, subject, found, verified, after, versions)
