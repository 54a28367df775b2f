"""Write a CUDA core dump of the result's fault, for cuda-gdb: ``--cuda-coredump``."""

from __future__ import annotations

import shutil
from pathlib import Path

from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import CandidateForm, Guard
from shrinkfx.protocol.tasks import CheckCandidate
from shrinkfx.run.context import RunContext

FOLDER = "cuda-core"
"""A subfolder of the output folder."""

_OMITTED = "nonrelocated_elf_images global_memory shared_memory local_memory"
"""Parts that are not dumped: they take gigabytes. The host process is not dumped
either, because its own exit is known.
"""


def core_dump_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables that make CUDA write core dumps to a folder.

    CUDA reads them when it starts.
    """
    omitted = [*_OMITTED.split(), "constbank_memory", "abort"]
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_COREDUMP_FILE": f"{folder}/core.%p",
        "CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{name}" for name in omitted),
    }


def leave_core_dump(
    context: RunContext, client: CheckClient, candidate: Candidate, form: str
) -> Path | None:
    """Run a result once with CUDA core dumps, and return the path of the dump.

    Returns:
        The dump; None if CUDA wrote none, with a note that says why.
    """
    folder = context.out.resolve() / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = client.options
    # A sanitizer is a debugger of its own, and takes the faults.
    pages = Guard.OFF if options.guard_pages.is_sanitizer else options.guard_pages
    client = client.with_stock_build().with_options(
        form=CandidateForm(form),
        guard_pages=pages,
        environment={**options.environment, **core_dump_variables(folder)},
    )
    client = client.with_limits(client.limits, context.meters["verify"])
    context.note("running the reduced program for a CUDA core dump")
    try:
        seen = classify_ending(client.ask(CheckCandidate(candidate.to_json()))).in_words
    except (WorkerError, BudgetExhausted) as error:
        seen = str(error)
    dumps = sorted(folder.iterdir())
    if not dumps:
        folder.rmdir()
        context.note(f"CUDA wrote no core dump; the reduced program: {seen}")
        return None
    context.note(
        f"CUDA core dump; to open it: cuda-gdb -ex 'target cudacore {dumps[0]}'"
    )
    return dumps[0]
