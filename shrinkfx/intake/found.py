"""The result of intake: a program in a file, and the settings of its failing run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.options.in_script import ScriptFailure
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.source import is_source_archive

PROGRAM = "program.pt2"
"""Name of the program's file in the folder ``intake``."""

SOURCE_ARCHIVE = "program.zip"
"""Name of the file if torch.export.save rejects the program."""

DOES_NOT_FAIL = "does-not-fail.json"
"""A note next to the program that it did not fail; there is no journal then."""


@dataclass(frozen=True, kw_only=True)
class ResolvedProgram:
    """A failing program and the settings of its failing run.

    Attributes:
        program: the ``.pt2``, or a source archive.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        inductor: Inductor options.
        environment: environment variables.
        preload: modules and files that register its custom operators.
        device: the device of the failing run, if it is not the one in the ``.pt2``.
        notes: sentences for the user about what was read, and what could not be.
        lacking: those of the sentences about state of the failing run that no other
            process has.
        in_script: the failure in the script, if the program comes from a script.
    """

    program: Path
    inputs: Path | None = None
    inductor: InductorOptions = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    device: str | None = None
    notes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None

    def to_options(self, options: Options) -> Options:
        """Return the options for a run; the user's options take precedence."""
        new = [name for name in self.preload if name not in options.preload]
        return replace(
            options,
            name=options.name or options.model.name,
            model=self.program,
            inputs=options.inputs or self.inputs,
            inductor={**self.inductor, **options.inductor},
            environment={**self.environment, **options.environment},
            preload=(*new, *options.preload),
            run_code=options.run_code or is_source_archive(self.program),
            device=options.device or self.device,
            lacking=self.lacking,
            in_script=self.in_script,
        )
