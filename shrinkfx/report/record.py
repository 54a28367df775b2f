"""What a run has found out, in records: all that is written of it is read off these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.interpreter import what_need_not_show
from shrinkfx.failure.signature import ANY, Signature, Stage
from shrinkfx.protocol.choices import Guard, InductorOptions
from shrinkfx.report.issue.from_model import FromModel
from shrinkfx.report.warned import OtherCauses
from shrinkfx.report.written import Verified


@dataclass(frozen=True)
class ProgramSize:
    """How large a program is, as far as it was looked at."""

    operators: int
    nodes: int | None = None
    inputs: int | None = None
    dynamic_dims: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(*(int(data[name]) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class ByCatch:
    """Another failure that the search has met.

    Attributes:
        checks: how many showed it.
        operators: of the smallest candidate that did.
        candidate: that one's digest, for ``--candidate``.
    """

    kind: str
    stage: str
    text: str
    checks: int
    operators: int
    candidate: str


@dataclass(frozen=True)
class Programs:
    """The original and what is left of it.

    Attributes:
        cut: operators of the form of the original that was cut, which may have others.
        targets: operators that the result calls.
        renamed: what its repro calls inputs and weights, by their names in the result,
            where these are not the same.
    """

    before: ProgramSize
    after: ProgramSize
    cut: int
    targets: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """The failure that was reduced.

    Attributes:
        target: what was looked for: how the original fails.
        seen: how the result does, in its own words.
        until: the kind that was asked for.
        rate_before: the part of the original's runs that fail.
        rate_after: the part of the result's.
        calls: how often the result must be called before it fails.
    """

    target: Signature
    seen: Signature
    until: str = ANY
    rate_before: float = 1.0
    rate_after: float = 1.0
    calls: int = 1

    @property
    def of_a_script(self) -> Signature:
        """How a repro fails: its comparison has words of its own."""
        compares = self.seen.stage is Stage.COMPARE
        return replace(self.seen, match="" if compares else self.target.match)


@dataclass(frozen=True)
class Conditions:
    """What must be set and done for the failure to show.

    Attributes:
        reference: eager runs as well, and results are compared.
        random: an operator draws random numbers, so both runs need the seed.
        runs: how often the compiled program is run; above 1 for a flaky failure.
        limits: relative and absolute tolerance by output; empty for the usual ones.
        strict: strides must be eager's as well.
        keeps_state: the program changes its buffers or inputs, so it must be
            compiled before eager runs, and each run gets copies of the inputs.
        passes: it runs on inputs on which it must pass, before those on which it fails.
        at_passing: the inputs are those, alone: it is there that it fails.
        interpreted_for: the GPU whose kernels failed on the interpreter, or '' where
            the program itself was run.
        inputs: the file that a user's command takes beside the program, or ''.
        gpu: the number of the one that the package is loaded onto; -1 for the first.
        behind: operators whose results end too soon, where the original fails by what
            lies behind these ends.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    inductor: InductorOptions = field(default_factory=dict)
    reference: bool = True
    random: bool = False
    runs: int = 1
    limits: tuple[tuple[float, float], ...] = ()
    strict: bool = False
    keeps_state: bool = False
    passes: bool = False
    at_passing: bool = False
    interpreted_for: str = ""
    inputs: str = ""
    gpu: int = -1
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """What is known of the memory error that a result shows.

    Attributes:
        guard: what the repro needs to fail; OFF where it fails without guard pages.
        plain: what the result does without them, or ''.
        report: AddressSanitizer's, or None.
        no_report: why there is none, or ''.
        on_gpu: it is one of a GPU's, which compute-sanitizer looks at.
        loop: how often the repro calls the compiled program, because one call does not
            show the error in every process.
        heap_checked: the repro needs the checks of glibc's allocator to fail.
        unsure: no repro fails in every process.
    """

    guard: Guard = Guard.OFF
    plain: str = ""
    report: MemoryReport | None = None
    no_report: str = ""
    on_gpu: bool = False
    loop: int = 1
    heap_checked: bool = False
    unsure: bool = False

    @property
    def sanitizer(self) -> str:
        """What tells of such errors where that need not show otherwise."""
        return "compute-sanitizer" if self.on_gpu else "AddressSanitizer"


@dataclass(frozen=True)
class GuardPages:
    """The guard pages that the original's failure was searched with.

    Attributes:
        are: where they are; '' where there were none.
        original_without_them: what the original does without, or ''.
    """

    are: str = ""
    original_without_them: str = ""


@dataclass(frozen=True)
class Search:
    """Where the search has ended.

    Attributes:
        stopped: what ended it early, or ''.
        minimal: no single operator of the result can be dropped.
        without_it: what the original does without the result's operators, and without
            any call of those that are not what they declare; or '' where the failure's
            own words tell it apart.
        by_catch: failures other than the target, each once.
        kinds: by what could be made smaller or plainer, whether it is 1-minimal.
    """

    stopped: str = ""
    minimal: bool = False
    without_it: str = ""
    by_catch: Sequence[ByCatch] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildCounts:
    """How often programs were built, in which way.

    Attributes:
        fast: by the fast build, to the end.
        stopped: by the fast build, to the step that was asked about.
        fallbacks: by the stock build after all, by reason, the most frequent first.
    """

    fast: int = 0
    stopped: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Spent:
    """What a run has cost.

    Attributes:
        outcomes: of every check that was paid for.
        cached: questions answered without one.
        cpu_seconds: by part of the run, all processes together.
        jobs: candidates that were asked about at once, at most.
    """

    outcomes: Sequence[str] = ()
    cached: int = 0
    seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    builds: BuildCounts = field(default_factory=BuildCounts)
    jobs: int = 1


@dataclass(frozen=True)
class RunRecord:
    """All that is told of a run; each of its phases fills a part (``run/record.py``).

    Attributes:
        command: the command line that began it, without paths of this machine.
        versions: of what the failure was seen with.
        missing_features: by feature, the missing name and the consequence.
        suspects: operators that it may come from, the surest first.
        cause: what is known of the result's, in sentences.
        left: what of the user's model is left in the repro.
    """

    failure: Failure
    programs: Programs
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing_features: Mapping[str, str] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    other_causes: OtherCauses = field(default_factory=OtherCauses)
    suspects: Sequence[Suspect] = ()
    guard_pages: GuardPages = field(default_factory=GuardPages)
    memory: Memory = field(default_factory=Memory)
    search: Search = field(default_factory=Search)
    spent: Spent = field(default_factory=Spent)
    verified: Verified = field(default_factory=Verified)
    cause: Sequence[str] = ()
    left: FromModel = field(default_factory=FromModel)

    @property
    def signature(self) -> Signature:
        """How the repro fails."""
        return self.failure.of_a_script

    @property
    def operators(self) -> tuple[int, int]:
        """How many the original has, and how many are left."""
        return self.programs.before.operators, self.programs.after.operators

    @property
    def warnings(self) -> tuple[str, ...]:
        """What else may be the cause of the result's failure."""
        return self.careful.all()

    @property
    def careful(self) -> OtherCauses:
        """The same, as it was seen."""
        return self.other_causes.left_in(self.programs.targets)

    @property
    def by_chance(self) -> str:
        """What memory decides whether the repro fails, or ''."""
        left = set(self.programs.targets).intersection(self.conditions.behind)
        results = f"results of {', '.join(sorted(left))}"
        return f"the memory after the end of the too small {results}" if left else ""

    @property
    def guarded(self) -> bool:
        """Whether the repro is sure to fail beside guard pages only."""
        return self.memory.guard is not Guard.OFF

    @property
    def is_unsure(self) -> bool:
        """Whether the repro may come to its end without shrinkfx or a sanitizer."""
        return self.guarded or self.memory.unsure

    @property
    def needs_asan(self) -> bool:
        """Whether only AddressSanitizer is sure to show the error without shrinkfx."""
        return self.is_unsure and not self.memory.on_gpu

    @property
    def need_not_show(self) -> str:
        """What a reader who only runs the script may not see, or ''."""
        if self.is_unsure:
            return "an illegal access"
        interpreted = self.conditions.interpreted_for
        return what_need_not_show(self.signature) if interpreted else ""

    @property
    def status(self) -> str:
        """What has become of the run, in a word."""
        if not self.verified.runs and self.search.stopped:
            return "stopped"
        if not self.verified.always_fails:
            return "unverified"
        return "stopped" if self.search.stopped else "reduced"
