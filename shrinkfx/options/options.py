"""What a run is asked for, and what comes of it.

A new option is a field of the record in ``options/failing.py`` or
``options/running.py`` that is its group in ``--help-all``, or of ``ComparisonOptions``
in ``protocol/comparison.py`` if a worker's check is to see it; the parser, the check of
its value, the journal and the reference are made from that field. It gets a keyword of
the same name in ``minify()`` of ``api/minifying.py``, and is read as ``options.NAME``
where it counts. ``make reference`` writes its row into ``docs/reference.md``, and
``tests/test_options.py`` says what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, get_type_hints

from shrinkfx.options.failing import FailureOptions, ProgramOptions, TimeoutOptions
from shrinkfx.options.in_script import ScriptFailure
from shrinkfx.options.reduction import Reduction
from shrinkfx.options.running import (
    BudgetOptions,
    ExplainOptions,
    OutputOptions,
    SearchOptions,
    Sweeping,
)
from shrinkfx.protocol.comparison import ComparisonOptions
from shrinkfx.protocol.record import read_value
from shrinkfx.protocol.requests import CheckOptions

__all__ = ["Options", "Reduction", "Sweeping"]


_COMPARISON = [f.name for f in fields(ComparisonOptions)]


@dataclass(frozen=True, kw_only=True)
class Options(
    FailureOptions,
    ComparisonOptions,
    TimeoutOptions,
    ProgramOptions,
    BudgetOptions,
    SearchOptions,
    ExplainOptions,
    OutputOptions,
):
    """What to reduce, and how; the command line in one record.

    Attributes:
        model: the program.
        name: of a run whose program came in by a door: the script, the dump, or the
            class of the object; '' means that of ``model``.
        command: how the run was started, for the repro's header.
        cwd: where that was, which is where modules and ``check`` are looked for; None
            means here.
        lacking: sentences on what the failing run had and this one has not.
        in_script: what has failed in the script that it comes from, if that is known.
        sweeping: set for a sweep over sizes.
    """

    name: str = ""
    command: str = ""
    cwd: Path | None = None
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None
    sweeping: Sweeping | None = None

    @property
    def called(self) -> str:
        """Name the program as the user does."""
        return self.name or self.model.name

    @property
    def files(self) -> tuple[Path, ...]:
        """List what must be there: the program, its inputs, and preloads."""
        preloads = [Path(name) for name in self.preload if "/" in name]
        return (self.model, *([self.inputs] if self.inputs else []), *preloads)

    def with_files(self, find: Callable[[Path], Path]) -> Self:
        """Have the program, its inputs and preloads be other files."""
        return replace(
            self,
            model=find(self.model),
            inputs=find(self.inputs) if self.inputs else None,
            preload=tuple(
                str(find(Path(name))) if "/" in name else name for name in self.preload
            ),
        )

    @property
    def closeness(self) -> dict[str, float]:
        """What was said of results that may differ from eager's."""
        said = {name: getattr(self, name) for name in _COMPARISON}
        return {k: v for k, v in said.items() if v is not None and v is not False}

    def compared(self, checks: CheckOptions) -> CheckOptions:
        """Have checks compare results with eager's so."""
        said = {name: getattr(self, name) for name in _COMPARISON}
        return replace(checks, **said)

    @property
    def budget(self) -> tuple[int | None, float | None]:
        return self.max_checks, self.max_minutes

    def to_json(self) -> dict[str, Any]:
        """State it so that it means the same in any folder; ``out`` is left out."""
        data = asdict(self)
        del data["out"]
        data["cwd"] = str(self.cwd or Path.cwd())
        data["model"] = str(self.model.resolve())
        data["inputs"] = str(self.inputs.resolve()) if self.inputs else None
        data["preload"] = [
            str(Path(name).resolve()) if os.path.isfile(name) else name
            for name in self.preload
        ]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read it back."""
        hints = get_type_hints(cls)
        return cls(**{name: read_value(hints[name], data[name]) for name in data})
