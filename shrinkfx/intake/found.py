"""What each door finds: a program in a file, and how it came to fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.options.in_script import ScriptFailure
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.source import is_source_archive

PROGRAM = "program.pt2"
"""What a door calls it in the folder of a run."""

SOURCE_ARCHIVE = "program.zip"
"""The same, for a program that torch.export.save refuses."""

DOES_NOT_FAIL = "does-not-fail.json"
"""Beside it: that it does not fail as asked, which leaves no journal."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A failing program and the settings of its failing run.

    Attributes:
        program: the ``.pt2``, or a source archive.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        inductor: Inductor options.
        environment: environment variables.
        preload: modules and files that register its custom operators.
        device: where it ran, if not where the ``.pt2`` has it.
        said: sentences on what was read, and what could not be, for the user.
        lacking: those of them on what the failing run had, and no other process has.
        in_script: what has failed there, if it comes from a script.
    """

    program: Path
    inputs: Path | None = None
    inductor: InductorOptions = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    device: str | None = None
    said: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None

    def asked_with(self, options: Options) -> Options:
        """Have a run reduce it; what the user said goes before what was found."""
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
