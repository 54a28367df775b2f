"""The facts of a run that an issue states, enough to write the issue again later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.preloads.preload_bundle import CustomCompilerCode
from shrinkfx.program.display_text import cut_middle
from shrinkfx.program.listing.printed_program import group_untested_kinds
from shrinkfx.protocol.record import Message
from shrinkfx.report.in_compiler import find_own_function
from shrinkfx.report.issue.script import without_warnings
from shrinkfx.report.record import OtherCauses, RunRecord
from shrinkfx.versions import __version__

_LOG = 8_000
"""Maximum characters of an error log."""


@dataclass(frozen=True)
class IssueFacts(Message):
    """The facts of a run that an issue states, besides the cause.

    Attributes:
        kind, stage: the failure of the reduced program.
        message: the message of the failure; ``detail`` is its normalized form.
        targets: operators that the reduced program calls.
        before: number of operators of the input program.
        after: number of operators of the reduced program.
        runs: number of runs of the repro, of which ``failed`` failed.
        rate: the fraction of the reduced program's runs that fail; a run makes
            ``calls`` calls.
        compared: eager runs the program as well.
        writes: the program changes its inputs or weights in place.
        passes: the program passes at other sizes, which the repro runs first.
        interpreted: the GPU that the kernels were compiled for, if they ran only on
            Triton's interpreter; or ''.
        guarded: the failure may not show without a sanitizer.
        dynamic: some sizes of the reduced program are dynamic.
        on_gpu: that sanitizer is compute-sanitizer, not AddressSanitizer.
        inductor: options of the compilation, as Python.
        environment: names of the variables that the repro sets.
        caveats: other possible causes.
        minimal: no single operator can be removed.
        not_tested: kinds of reduction that were not tested: sizes, values.
        stopped: what ended the search early, or ''.
        log: the output of a run of the repro that failed.
        above: the number of lines above the repro's code in that run, which a cause in
            the header changes later; None if not known.
        needed_files: files that the repro needs next to it.
        versions: ``torch 2.13.0`` and so on, of the run.
        in_compiler: the user's code in the compiler.
        needs_own: the script does not fail without that code; False if not tested.
        inside: the user's function in which the compiler hangs or crashes, or ''.
        tool: the version of shrinkfx.
        tested: by version of PyTorch, True if the repro fails; empty if only one was
            tested.
        anonymous: the user's names are omitted.
        renamed: new names of inputs and weights, by old name.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "said": "message",
        "careful": "caveats",
        "beside": "needed_files",
        "unasked": "not_tested",
    }

    kind: Kind
    stage: Stage
    message: str
    detail: str
    targets: tuple[str, ...]
    before: int
    after: int
    runs: int
    failed: int
    rate: float
    calls: int
    compared: bool
    writes: bool
    passes: bool
    interpreted: str
    guarded: bool
    inductor: str
    environment: tuple[str, ...]
    caveats: OtherCauses
    minimal: bool
    stopped: str
    log: str
    needed_files: tuple[str, ...]
    versions: tuple[str, ...]
    anonymous: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    dynamic: bool = False
    on_gpu: bool = False
    in_compiler: CustomCompilerCode = field(default_factory=CustomCompilerCode)
    needs_own: bool = False
    inside: str = ""
    tool: str = __version__
    above: int | None = None
    not_tested: tuple[str, ...] = ()
    tested: Mapping[str, bool] = field(default_factory=dict)

    @property
    def is_verified(self) -> bool:
        """Whether the repro failed in every run."""
        return 0 < self.failed == self.runs

    @property
    def may_be_custom_code(self) -> bool:
        """Whether the bug may be in the user's own code in the compiler."""
        return self.needs_own or bool(self.inside)

    @property
    def failure(self) -> Signature:
        """The failure of the reduced program."""
        return Signature(self.kind, self.stage, self.detail, self.message)


def facts_of(record: RunRecord, *, anonymous: bool = False) -> IssueFacts:
    """Derive the facts of an issue from the record of a run."""
    failure, conditions, verified = record.failure, record.conditions, record.verified
    search = record.search
    inductor = repr(dict(conditions.inductor)) if conditions.inductor else ""
    written = verified.written
    return IssueFacts(
        kind=failure.seen.kind,
        stage=failure.seen.stage,
        message=failure.seen.text or failure.seen.detail,
        detail=failure.seen.detail,
        targets=record.programs.targets,
        before=record.operators[0],
        after=record.operators[1],
        runs=verified.runs,
        failed=verified.failed,
        rate=failure.rate_after,
        calls=failure.calls,
        compared=conditions.reference,
        writes=conditions.keeps_state,
        passes=conditions.passes,
        interpreted=conditions.interpreted_for,
        guarded=record.is_unsure,
        inductor=inductor,
        environment=tuple(written.environment),
        caveats=record.remaining_causes,
        minimal=search.minimal,
        stopped=search.stopped,
        log=cut_middle(without_warnings(verified.log), _LOG),
        needed_files=tuple(file.name for file in written.files[1:]),
        versions=tuple(f"{name} {known}" for name, known in record.versions.items()),
        anonymous=anonymous,
        renamed=record.programs.renamed,
        dynamic=bool(record.programs.after.dynamic_dims),
        on_gpu=record.memory.on_gpu,
        in_compiler=written.carried.in_compiler,
        needs_own=written.needs_own,
        above=verified.above,
        not_tested=tuple(
            k for kinds in group_untested_kinds(search.kinds).values() for k in kinds
        ),
        inside=find_own_function(failure.seen, verified.log),
    )
