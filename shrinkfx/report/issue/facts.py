"""What an issue says of a run, besides the cause: enough to write it anew later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.listing.claims import unasked
from shrinkfx.program.words import cut_middle
from shrinkfx.protocol.record import Message
from shrinkfx.report.carried import InCompiler
from shrinkfx.report.in_compiler import inside
from shrinkfx.report.issue.log import without_warnings
from shrinkfx.report.record import RunRecord
from shrinkfx.report.warned import OtherCauses
from shrinkfx.version import __version__

_LOG = 8_000
"""Characters of an error log that are kept."""


@dataclass(frozen=True)
class IssueFacts(Message):
    """What an issue says of a run, besides the cause.

    Attributes:
        said: the failure, in the result's own words; ``detail`` is its identity.
        targets: operators that the result calls.
        before: operators of the original program.
        runs: of the repro, and how many ``failed``.
        rate: the part of the result's runs that fail; ``calls`` are made in each.
        compared: eager runs it as well.
        writes: the program changes its inputs or weights in place.
        passes: it passes at other sizes, which the repro tries first.
        interpreted: the GPU that kernels were made for, which ran on Triton's
            interpreter alone; or ''.
        guarded: it need not show without a sanitizer.
        dynamic: some of the result's sizes are.
        on_gpu: that is compute-sanitizer, else AddressSanitizer.
        inductor: options that it was compiled with, as Python.
        environment: names of variables that the repro sets.
        careful: what else may be the cause.
        minimal: no single operator can be left out.
        unasked: kinds that were not asked about: sizes, values.
        stopped: what ended the search early, or ''.
        log: what the repro printed when it failed; ``above`` are the lines above its
            code then, which a cause in its header makes more; None is not known.
        beside: files that the repro needs beside it.
        versions: ``torch 2.13.0`` and so on, of what it was seen with.
        in_compiler: code of the user's own that is a part of the compiler.
        needs_own: the script does not fail without that; False where that is not known.
        inside: the function of the user's own that it hangs or dies in while it is
            compiled, or ''.
        tested: verdicts by version of PyTorch, if the repro was run on several
            versions: True if it fails, False if it passes.
        anonymous: the user's names were left out; ``renamed`` has new ones of inputs
            and weights by old ones.
    """

    kind: Kind
    stage: Stage
    said: str
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
    careful: OtherCauses
    minimal: bool
    stopped: str
    log: str
    beside: tuple[str, ...]
    versions: tuple[str, ...]
    anonymous: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    dynamic: bool = False
    on_gpu: bool = False
    in_compiler: InCompiler = field(default_factory=InCompiler)
    needs_own: bool = False
    inside: str = ""
    tool: str = __version__
    above: int | None = None
    unasked: tuple[str, ...] = ()
    tested: Mapping[str, bool] = field(default_factory=dict)

    @property
    def is_verified(self) -> bool:
        """Tell whether the repro has failed in every run."""
        return 0 < self.failed == self.runs

    @property
    def is_of_own(self) -> bool:
        """Tell whether it may be a fault of the user's own code in the compiler."""
        return self.needs_own or bool(self.inside)

    @property
    def failure(self) -> Signature:
        """How the result fails."""
        return Signature(self.kind, self.stage, self.detail, self.said)


def facts_of(record: RunRecord, *, anonymous: bool = False) -> IssueFacts:
    """Read off the record of a run what an issue says of it."""
    failure, conditions, verified = record.failure, record.conditions, record.verified
    search = record.search
    inductor = repr(dict(conditions.inductor)) if conditions.inductor else ""
    written = verified.written
    return IssueFacts(
        kind=failure.seen.kind,
        stage=failure.seen.stage,
        said=failure.seen.text or failure.seen.detail,
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
        careful=record.careful,
        minimal=search.minimal,
        stopped=search.stopped,
        log=cut_middle(without_warnings(verified.log), _LOG),
        beside=tuple(file.name for file in written.files[1:]),
        versions=tuple(f"{name} {known}" for name, known in record.versions.items()),
        anonymous=anonymous,
        renamed=record.programs.renamed,
        dynamic=bool(record.programs.after.dynamic_dims),
        on_gpu=record.memory.on_gpu,
        in_compiler=written.carried.in_compiler,
        needs_own=written.needs_own,
        above=verified.above,
        unasked=tuple(k for kinds in unasked(search.kinds).values() for k in kinds),
        inside=inside(failure.seen, verified.log),
    )
