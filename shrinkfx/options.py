"""What a run is asked for, and what comes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.protocol.requests import CheckOptions

GUARD_PAGES = ("auto", "on", "off")


RANGES = ("declared", "beyond")
"""Which sizes a sweep tries."""


@dataclass(frozen=True)
class Sweeping:
    """How to sweep over sizes; None takes the default.

    Attributes:
        examples: sizes to draw.
        max_elements: of the program's largest tensor.
        ranges: ``declared``, or ``beyond`` for sizes just outside of these as well.
    """

    examples: int | None = None
    seed: int | None = None
    max_elements: int | None = None
    ranges: str = "declared"


@dataclass(frozen=True)
class Options:
    """What to reduce, and how; the command line in one record.

    Attributes:
        until: a kind of failure, ``any``, or None for whatever the baseline shows.
        match: a regular expression that the failure's text must hold.
        check: a command that says whether a ``.pt2`` still fails, or None.
        baseline_runs: how often the original may run before it is said not to fail;
            None means up to 100 times, and for as long as compiling it took, a minute
            at most.
        device: where to move the program, or None for where it is.
        backend: what compiles and runs it, of ``protocol.choices.Backend``.
        arch: the GPU that the interpreter's kernels are made for.
        probe: the one that the interpreter asks; None means that which shows it.
        all_probes: have it ask all of them, though one has shown the failure.
        inductor: Inductor options for every compile.
        environment: variables for the worker and for the repro.
        build: ``fast`` or ``stock``: how the search builds programs for the CPU.
        guard_pages: ``auto``, ``on`` or ``off``: whether a CPU program's tensors lie
            against inaccessible pages; ``auto`` is ``on`` for memory errors.
        timeout_s: seconds per check, without those in which it waits for a busy
            machine; None means ten times the baseline.
        rtol: how far a value may be from eager's, relative to that; None for the
            tolerance of ``torch.testing``.
        atol: the same, absolutely.
        strict: strides must be eager's as well.
        max_disk: gigabytes that a run may take of ``$TMPDIR``; None means what is free.
        command: how the run was started, for the repro's header.
        cwd: where that was, which is where modules and ``check`` are looked for; None
            means here.
        sweeping: set for a sweep over sizes.
    """

    model: Path
    until: str | None = None
    match: str = ""
    check: str | None = None
    baseline_runs: int | None = None
    inputs: Path | None = None
    preload: tuple[str, ...] = ()
    device: str | None = None
    backend: str = Backend.AUTO
    arch: str = ARCHS[0]
    probe: str | None = None
    all_probes: bool = False
    inductor: InductorOptions = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    build: str = Build.FAST
    guard_pages: str = "auto"
    timeout_s: float | None = None
    rtol: float | None = None
    atol: float | None = None
    strict: bool = False
    max_checks: int | None = None
    max_minutes: float | None = None
    max_disk: float | None = None
    out: Path | None = None
    strategies: tuple[str, ...] | None = None
    command: str = ""
    cwd: Path | None = None
    sweeping: Sweeping | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """List what must be there: the program, its inputs, and preloads."""
        preloads = [Path(name) for name in self.preload if "/" in name]
        return (self.model, *([self.inputs] if self.inputs else []), *preloads)

    @property
    def closeness(self) -> dict[str, float]:
        """What was said of results that may differ from eager's."""
        said = {"rtol": self.rtol, "atol": self.atol, "strict": self.strict or None}
        return {name: value for name, value in said.items() if value is not None}

    def compared(self, checks: CheckOptions) -> CheckOptions:
        """Have checks compare results with eager's so."""
        return replace(checks, rtol=self.rtol, atol=self.atol, strict=self.strict)

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
        read: dict[str, Any] = {
            "model": Path(data["model"]),
            "inputs": Path(data["inputs"]) if data["inputs"] else None,
            "cwd": Path(data["cwd"]),
            "preload": tuple(data["preload"]),
            "strategies": tuple(data["strategies"]) if data["strategies"] else None,
            "sweeping": Sweeping(**data["sweeping"]) if data["sweeping"] else None,
        }
        return cls(**{**data, **read})


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
        summary: what ``summary.json`` holds.
        to_go_on: the command that goes on where the search was stopped, or ''.
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

    @property
    def exit_code(self) -> int:
        """What the command line leaves with."""
        return {"reduced": 0, "stopped": 4, "unverified": 5}[self.status]
