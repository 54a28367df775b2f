"""Write and verify a result whose failure the user's command defines."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command, runs_of
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature
from shrinkfx.protocol.choices import Backend, CandidateForm
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.tasks import RunScript, SaveCandidate
from shrinkfx.report.output import write_smallest_repro
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro_files import EMBEDDED, ReproFiles, VerifiedRepro
from shrinkfx.report.running import SAVED
from shrinkfx.run.context import RunContext
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.record import Result, before_verifying
from shrinkfx.run.result import count_runs
from shrinkfx.run.settings import variables_to_test
from shrinkfx.run.subject import Subject

INPUTS = "minimal_inputs.pt"
"""The file that replaces ``{inputs}`` in the command after the run."""


@dataclass(frozen=True)
class CommandRunner:
    """Runs a repro, which writes a ``.pt2`` file, and then the command on that file.

    Attributes:
        stranger: runs the repro in an environment without shrinkfx's settings.
        client: runs the command as the search did.
    """

    command: Command
    stranger: CheckClient
    client: CheckClient
    inputs: Path

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Return whether the command fails on the repro's program; None if unknown.

        Args:
            is_likely: ignored, because the command runs in any case.
        """
        with scratch.make_scratch_folder("repro") as folder:
            for file in files:
                shutil.copy(file, folder)
            script, program = Path(folder) / files[0].name, Path(folder) / SAVED
            ran = classify_ending(self.stranger.ask(RunScript(str(script), folder)))
            if not program.exists():
                return False if ran.is_conclusive else None
            seen = self.command.run(self.client, program, self.inputs)
        return target.admits(seen.signature) if seen.is_conclusive else None


def verify_by_command(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    printed: Printed,
) -> RunRecord:
    """Run the command on ``minimal.pt2``, and write a repro that creates that program.

    A repro is removed if the command does not fail on its program.
    """
    assert program.command is not None
    context.note("writing repro.py and running --check on the program that it saves")
    limits = program.client.limits
    takes_inputs = program.command.takes_inputs
    with scratch.make_scratch_folder("inputs") as folder:
        inputs = (context.out if takes_inputs else Path(folder)).resolve() / INPUTS
        client = program.client.with_options(form=CandidateForm(result.form))
        client = client.with_limits(limits, context.meters["verify"])
        saved = f"{folder}/model.pt2", str(inputs)
        client.ask(SaveCandidate(result.candidate.to_json(), *saved))
        with context.bare_server(Backend.AUTO) as bare:
            meter = context.meters["verify"]
            stranger = CheckClient(bare, limits, meter=meter)
            runner = CommandRunner(program.command, stranger, client, inputs)
            record = before_verifying(context, server, program, result, printed)
            inputs_name = INPUTS if takes_inputs else ""
            conditions = replace(record.conditions, inputs=inputs_name)
            record = replace(record, conditions=conditions)
            ways = ways_to_carry(context, server, bare, limits, printed, record)
            variables = variables_to_test(context.options.environment)
            written = write_smallest_repro(
                *(context.out, printed, record, ways, runner, variables),
                no_source=result.no_source,
            )
            if not written.fails:
                written.files[0].unlink()
                written = ReproFiles((context.out / "minimal.pt2",), EMBEDDED)
        path = (context.out / "minimal.pt2").resolve()
        runs = runs_of(program.command, client, path, inputs, context.budget)
    if takes_inputs:
        written = replace(written, files=(*written.files, context.out / INPUTS))
    failed = [
        program.target.admits(s.signature) if s.is_conclusive else None for s in runs
    ]
    verified = VerifiedRepro(written, *count_runs(context, failed, "--check"))
    return replace(record, verified=verified)
