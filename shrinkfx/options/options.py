"""What a run is asked for, and what comes of it.

A new option is a field of the record in ``options/groups.py`` that is its group in
``--help-all``, or of ``ComparisonOptions`` in ``protocol/comparison.py`` if a worker's
check is to see it; the parser, the check of its value, the journal and the reference
are made from that field. It gets a keyword of the same name in ``minify()`` of
``api/minifying.py``, and is read as ``options.NAME`` where it counts. ``make
reference`` writes its row into ``docs/reference.md``, and ``tests/test_options.py``
says what is missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, get_type_hints

from shrinkfx.failure.signature import Signature
from shrinkfx.options.groups import (
    BudgetOptions,
    ExplainOptions,
    FailureOptions,
    OutputOptions,
    ProgramOptions,
    SearchOptions,
    Sweeping,
    TimeoutOptions,
)
from shrinkfx.program.candidate import Candidate
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
        sweeping: set for a sweep over sizes.
    """

    name: str = ""
    command: str = ""
    cwd: Path | None = None
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


_SHOWN = 20_000
"""Characters of a repro that a notebook shows."""


@dataclass(frozen=True)
class Reduction:
    """What came of a run.

    Attributes:
        status: ``reduced``, ``stopped`` (budget or Ctrl-C) or ``unverified``.
        candidate: the smallest program that failed as ``signature`` says.
        seen: that failure in the result's own words.
        minimal: no single operator of it can be dropped.
        operators: of the original, and of the result.
        verified: how often the repro was run, and how often it failed.
        repro: the script; its folder holds ``minimal.pt2`` and ``summary.json``.
        cause: what is known of the failure's cause, in lines; ``explain.json`` has all.
        issue: ``ISSUE.md``, or None where a command of the user's judges.
        left_of_model: names and values of the user's model in the repro, in a line.
        shows_alone: the repro needs neither guard pages nor the interpreter to fail.
        summary: what ``summary.json`` holds.
        to_go_on: the command that goes on where the search was stopped, or ''.
        report: the page that shows all of it; None where it could not be written.
    """

    status: str
    candidate: Candidate = field(repr=False)
    signature: Signature
    seen: Signature
    minimal: bool
    operators: tuple[int, int]
    checks: int
    seconds: float
    verified: tuple[int, int]
    repro: Path
    summary: Mapping[str, Any] = field(repr=False)
    to_go_on: str = ""
    cause: tuple[str, ...] = ()
    report: Path | None = None
    issue: Path | None = None
    left_of_model: str = ""
    shows_alone: bool = True

    def _repr_markdown_(self) -> str:
        """Show the repro in a notebook, as code."""
        runs, failed = self.verified
        before, after = self.operators
        script = self.repro.read_text(encoding="utf-8") if self.repro.is_file() else ""
        if len(script) > _SHOWN:
            script = f"{script[:_SHOWN]}\n# ... all of it: {self.repro}\n"
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", script)), default=0))
        said = " ".join(str(self.seen).split()).replace("`", "'")
        return (
            f"**{self.status}**: {before} → {after} operators; {failed} of {runs} runs "
            f"of the repro fail so: `{said}`\n\n"
            f"{fence}python\n{script}{fence}\n\n`{self.repro}`"
        )

    @property
    def exit_code(self) -> int:
        """What the command line leaves with."""
        return {"reduced": 0, "stopped": 4, "unverified": 5}[self.status]
