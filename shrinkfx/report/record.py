"""Records of a run's results: the header, the script and the summaries read these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.readers.device import name_error_unchecked_on_gpu
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import ANY, Signature, Stage
from shrinkfx.findings.pattern import Pattern
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.protocol.choices import Backend, Guard, InductorOptions
from shrinkfx.protocol.operators import (
    FakeMismatch,
    OperatorFinding,
    differing_properties,
)
from shrinkfx.protocol.record import Message

# --- other possible causes than the compiler


@dataclass(frozen=True)
class OtherCauses(Message):
    """Other possible causes of a failure than the compiler.

    Attributes:
        mismatches: fake-kernel mismatches of operators in the graph form that is
            reduced.
        examined: custom operators that violate their schema or fake kernel when they
            run alone.
        warnings: caveats that concern no operator.
    """

    mismatches: tuple[FakeMismatch, ...] = ()
    examined: tuple[OperatorFinding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def short(self) -> tuple[str, ...]:
        """Operators whose output storage is smaller than declared."""
        return tuple(dict.fromkeys(m.operator for m in self.mismatches if m.is_short))

    def with_warning(self, text: str) -> Self:
        """Add a warning, unless it is ''."""
        return replace(self, warnings=(*self.warnings, text)) if text else self

    def all(self) -> tuple[str, ...]:
        """Return all caveats as text, those about operators first."""
        examined = map(format_finding, self.examined)
        return (*merge_mismatch_lines(self.mismatches), *examined, *self.warnings)

    def faulty_among(self, targets: Iterable[str]) -> frozenset[str]:
        """Return those of ``targets`` that violate their declarations."""
        return self._operators() & frozenset(targets)

    def restricted_to(self, targets: Iterable[str]) -> Self:
        """Keep the caveats about operators in ``targets``, and all other warnings."""
        remaining = frozenset(targets)
        return replace(
            self,
            mismatches=tuple(m for m in self.mismatches if m.operator in remaining),
            examined=tuple(e for e in self.examined if e.operator in remaining),
        )

    def without_operator(self, operator: str) -> Self:
        """Remove the caveats about an operator, and about the check of its result."""
        remaining = self.restricted_to(self._operators() - {operator})
        others = tuple(t for t in self.warnings if not is_about_mismatch(t, operator))
        return replace(remaining, warnings=others)

    def _operators(self) -> frozenset[str]:
        names = {mismatch.operator for mismatch in self.mismatches}
        return frozenset(names | {found.operator for found in self.examined})


EAGER_ALSO_FAILS = "eager also fails on the input program: "


def find_eager_error(warning: str) -> str:
    """Return the error in a warning that eager fails, or ''."""
    return warning.partition(EAGER_ALSO_FAILS)[2]


def format_finding(found: OperatorFinding) -> str:
    """Return the observation of a custom operator that ran alone, as a line."""
    return f"custom operator: {found.text}"


def is_about_mismatch(warning: str, operator: str) -> bool:
    """Return whether a warning is about an operator whose result is not as declared.

    The warning states the mismatch, or quotes a check of the result in generated code.
    """
    name = rf"{re.escape(operator)}(?![\w.]*\w)"
    if re.search(rf"torch\.ops\.{name}", warning):
        return True
    is_mismatch = (
        warning.startswith("fake-kernel mismatch: ")
        or " has a fake kernel that " in warning
    )
    return is_mismatch and re.search(rf"(?<![\w.]){name}", warning) is not None


def strip_advice(warning: str) -> str:
    """Remove advice on what to type next, which needs the input program."""
    return _ADVICE.sub("", warning)


_ADVICE = re.compile(r"[.;] [^.;]*: --\w.*", re.DOTALL)


def merge_mismatch_lines(mismatches: Iterable[FakeMismatch]) -> list[str]:
    """Return one line for all calls of an operator with the same mismatch.

    my.mix.default has strides [1, 5], but its fake kernel declares [5, 1]
    my.mix.default has strides [1, 7], but its fake kernel declares [7, 1]
    becomes the first of these, with (2 calls, some at other sizes)
    """
    same: dict[tuple[object, ...], list[FakeMismatch]] = {}
    for mismatch in mismatches:
        same.setdefault(_without_sizes(mismatch), []).append(mismatch)
    return [
        f"fake-kernel mismatch: {some[0].text}{_calls(some)}" for some in same.values()
    ]


def _without_sizes(one: FakeMismatch) -> tuple[object, ...]:
    what = differing_properties(one.declared, one.made)
    kinds = [(t.dtype, t.device, len(t.shape)) for t in (one.declared, one.made)]
    return one.operator, one.place, what, *kinds


def _calls(some: Sequence[FakeMismatch]) -> str:
    if len(some) == 1:
        return ""
    differ = len({mismatch.difference_text for mismatch in some}) > 1
    return f" ({len(some)} calls{', some at other sizes' if differ else ''})"


# --- the files of a repro

EMBEDDED = "the program itself"
"""``ReproFiles.how`` of a repro that embeds the program instead of its source."""


class NoSource(StrEnum):
    """Why a repro embeds the program, in the words of its comment."""

    PASSES = "The generated source did not fail"
    UNPRINTED = "The program could not be printed as source"
    NO_TIME = "No time was left to verify the generated source"


@dataclass(frozen=True)
class ReproFiles:
    """A repro and all files that it needs, the script first.

    Attributes:
        how: the form of the script: ``EMBEDDED``, or ``source`` and the origin of its
            values.
        fails: whether it failed as expected in one run; None if that run gave no
            result.
        carried: the preload bundle of the script.
        environment: the environment variables that the script sets.
        inductor: the options of Inductor that it compiles with.
        not_needed: names of further variables that the failure does not need.
        fails_without_own: whether it fails without ``carried.in_compiler``; None if
            that was not tested.
    """

    files: tuple[Path, ...]
    how: str
    fails: bool | None = False
    carried: PreloadBundle = field(default_factory=PreloadBundle)
    environment: Mapping[str, str] = field(default_factory=dict)
    inductor: InductorOptions = field(default_factory=dict)
    not_needed: tuple[str, ...] = ()
    fails_without_own: bool | None = None

    @property
    def needs_own(self) -> bool:
        """Whether the failure is known to need the user's code in the compiler."""
        return bool(self.carried.in_compiler.places) and self.fails_without_own is False

    @property
    def is_source(self) -> bool:
        """Whether the script contains the program as source."""
        return self.how != EMBEDDED


@dataclass(frozen=True)
class VerifiedRepro:
    """A repro, and the result of its verification runs.

    Attributes:
        runs: the number of runs with a result; others are not counted.
        failed: the number of runs that failed as expected.
        log: the output of a run that failed.
        above: the number of lines above its code in that run; the header may have
            another length now.
        varies: the runs that failed gave different values.
    """

    written: ReproFiles = ReproFiles((), "none: it was not verified")
    runs: int = 0
    failed: int = 0
    log: str = field(default="", repr=False)
    above: int | None = None
    varies: bool = False

    @property
    def always_fails(self) -> bool:
        """Whether there was at least one run, and every run failed."""
        return 0 < self.failed == self.runs


_SHOWN = 6
"""Maximum entries of each kind that a line names."""


@dataclass(frozen=True)
class ModelRemains(Message):
    """The parts of a user's model that a repro still contains.

    Attributes:
        names: names of inputs, weights and sizes.
        operators: custom operators.
        constants: numbers and texts among the arguments of operators.
        values: inputs and weights with their exact values.
        sources: preloads and modules with their text, libraries next to the script, and
            an embedded program.
        places: files and modules in comments, which ISSUE.md omits.
        header: words of the header, which ISSUE.md omits too.
    """

    names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    header: tuple[str, ...] = ()

    def in_words(self) -> str:
        """Return one line that lists all of it; '' if there is nothing."""
        remains = {
            "names": (*self.names, *self.operators),
            "constants": self.constants,
            "values of": self.values,
            "source of": self.sources,
            "comments that name": tuple(dict.fromkeys([*self.places, *self.header])),
        }
        return "; ".join(
            f"{what} {', '.join(some[:_SHOWN])}" + _more(some)
            for what, some in remains.items()
            if some
        )


def _more(some: Sequence[str]) -> str:
    return f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""


# --- the run


@dataclass(frozen=True)
class ProgramSize:
    """The size of a program; None for what was not counted."""

    operators: int
    nodes: int | None = None
    inputs: int | None = None
    dynamic_dims: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(*(int(data[name]) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class OtherFailure(Message):
    """Another failure that the search met.

    Attributes:
        kind, stage, text: the failure.
        checks: how many checks showed it.
        operators: number of operators of the smallest candidate that showed it.
        candidate: digest of that candidate, for ``--candidate``.
    """

    kind: str
    stage: str
    text: str
    checks: int
    operators: int
    candidate: str


@dataclass(frozen=True)
class Programs:
    """The input program and the reduced program.

    Attributes:
        before, after: sizes of the input program and of the reduced program.
        cut: number of operators of the graph form that was reduced, which can differ
            from that of the input program.
        targets: operators that the reduced program calls.
        pattern: the reduced program's operators and data flow; None if it is unknown.
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program, where they differ.
    """

    before: ProgramSize
    after: ProgramSize
    cut: int
    targets: tuple[str, ...] = ()
    pattern: Pattern | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """The failure that was reduced.

    Attributes:
        target: the failure of the input program.
        seen: the failure of the reduced program, with its own message.
        until: the kind of failure that the user asked for.
        rate_before: the fraction of the input program's runs that fail.
        rate_after: the fraction of the reduced program's runs that fail.
        calls: the number of calls of the reduced program after which it fails.
    """

    target: Signature
    seen: Signature
    until: str = ANY
    rate_before: float = 1.0
    rate_after: float = 1.0
    calls: int = 1

    @property
    def of_a_script(self) -> Signature:
        """The failure of a repro, without ``match`` if results are compared.

        A repro's comparison has its own message.
        """
        compares = self.seen.stage is Stage.COMPARE
        return replace(self.seen, match="" if compares else self.target.match)


@dataclass(frozen=True)
class Conditions:
    """The conditions under which the failure shows.

    Attributes:
        environment: environment variables that must be set.
        inductor: options of Inductor.
        reference: eager runs as well, and the results are compared.
        random: an operator draws random numbers, so both runs need the seed.
        runs: how often the compiled program runs; above 1 for a flaky failure.
        limits: relative and absolute tolerance per output; empty for the defaults.
        strict: the strides must equal those of eager.
        keeps_state: the program changes its buffers or inputs, so it must be compiled
            before eager runs, and each run gets copies of the inputs.
        passes: the program first runs on inputs that must pass, then on those that
            fail.
        at_passing: the program runs only on the inputs that must pass, and fails on
            them.
        backend: what compiles the program.
        interpreted_for: the GPU whose kernels failed on Triton's interpreter, or '' if
            the program itself ran.
        inputs: the inputs file that the user's command takes besides the program, or
            ''.
        gpu: index of the GPU that the package is loaded onto; -1 for the first.
        depends_on_data: a size or a number is read from a tensor, which Dynamo only
            accepts with options.
        short_results: operators whose output storage is smaller than declared, if the
            failure of the input program depends on the adjacent memory.
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
    backend: Backend = Backend.AOTI
    interpreted_for: str = ""
    inputs: str = ""
    gpu: int = -1
    depends_on_data: bool = False
    short_results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """The memory error that the reduced program shows.

    Attributes:
        guard: the guard mode that the repro needs to fail; OFF if it fails without.
        without_guards: what the reduced program does without guard pages, or ''.
        report: the report of AddressSanitizer or compute-sanitizer, or None.
        no_report: why there is no report, or ''.
        on_gpu: the error is in GPU memory, which compute-sanitizer checks.
        loop: how often the repro calls the compiled program, because one call does not
            show the error in every process.
        heap_checked: the repro needs the checks of glibc's allocator to fail.
        unsure: no repro fails in every process.
    """

    guard: Guard = Guard.OFF
    without_guards: str = ""
    report: MemoryReport | None = None
    no_report: str = ""
    on_gpu: bool = False
    loop: int = 1
    heap_checked: bool = False
    unsure: bool = False

    @property
    def sanitizer(self) -> str:
        """Name of the sanitizer that detects such errors."""
        return "compute-sanitizer" if self.on_gpu else "AddressSanitizer"


@dataclass(frozen=True)
class GuardPages:
    """The guard pages of the search.

    Attributes:
        are: position of the guard pages; '' for none.
        original_without_them: what the input program does without guard pages, or ''.
    """

    are: str = ""
    original_without_them: str = ""


@dataclass(frozen=True)
class Search:
    """The result of the search.

    Attributes:
        stopped: what ended the search early, or ''.
        minimal: no single operator of the reduced program can be removed.
        without_it: what the input program does without the reduced program's operators,
            and without any call of operators that violate their declarations; '' if
            that was not tested, because the failure's message identifies it, or for
            lack of time.
        by_catch: other failures than the target, each once.
        kinds: whether the reduced program is 1-minimal, by what was reduced or
            simplified.
    """

    stopped: str = ""
    minimal: bool = False
    without_it: str = ""
    by_catch: Sequence[OtherFailure] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildCounts:
    """How many programs were built, by build mode.

    Attributes:
        fast: complete fast builds.
        stopped: fast builds up to the queried stage.
        fallbacks: fast builds that fell back to the stock build, by reason, the most
            frequent first.
    """

    fast: int = 0
    stopped: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Spent:
    """The cost of a run.

    Attributes:
        outcomes: the outcome of each check.
        cached: the number of queries answered without a check.
        seconds: wall time.
        cpu_seconds: CPU time of all processes, by part of the run.
        builds: how many programs were built, by build mode.
        jobs: the maximum number of candidates checked at once.
    """

    outcomes: Sequence[str] = ()
    cached: int = 0
    seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    builds: BuildCounts = field(default_factory=BuildCounts)
    jobs: int = 1


@dataclass(frozen=True)
class RunRecord:
    """The results of a run; each phase fills in a part (``run/verification.py``).

    Attributes:
        command: the command line of the run, without paths of this machine.
        versions: of the software that the failure was seen with.
        missing_features: by feature, the missing name and the consequence.
        suspects: operators that may cause the failure, the likeliest first.
        cause: the known cause of the reduced program's failure, in sentences.
        remains: the parts of the user's model that the repro contains.
        known: folders of known bugs that the input program has too.
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
    verified: VerifiedRepro = field(default_factory=VerifiedRepro)
    cause: Sequence[str] = ()
    remains: ModelRemains = field(default_factory=ModelRemains)
    known: Sequence[str] = ()

    @property
    def signature(self) -> Signature:
        """The failure of the repro."""
        return self.failure.of_a_script

    @property
    def operators(self) -> tuple[int, int]:
        """Number of operators of the input program and of the reduced program."""
        return self.programs.before.operators, self.programs.after.operators

    @property
    def warnings(self) -> tuple[str, ...]:
        """Other possible causes of the reduced program's failure, as text."""
        return self.remaining_causes.all()

    @property
    def remaining_causes(self) -> OtherCauses:
        """Other possible causes that concern the reduced program."""
        return self.other_causes.restricted_to(self.programs.targets)

    @property
    def by_chance(self) -> str:
        """The memory whose content decides whether the repro fails, or ''."""
        short = set(self.programs.targets).intersection(self.conditions.short_results)
        results = f"results of {', '.join(sorted(short))}"
        return f"the memory after the undersized {results}" if short else ""

    @property
    def guarded(self) -> bool:
        """Whether the repro is certain to fail only with guard pages."""
        return self.memory.guard is not Guard.OFF

    @property
    def is_unsure(self) -> bool:
        """Whether the repro may pass without shrinkfx or a sanitizer."""
        return self.guarded or self.memory.unsure

    @property
    def needs_asan(self) -> bool:
        """Whether, without shrinkfx, only AddressSanitizer always shows the error."""
        return self.is_unsure and not self.memory.on_gpu

    @property
    def need_not_show(self) -> str:
        """The error that a plain run of the script may not show, or ''."""
        if self.is_unsure:
            return "an illegal access"
        interpreted = self.conditions.interpreted_for
        return name_error_unchecked_on_gpu(self.signature) if interpreted else ""

    @property
    def status(self) -> str:
        """The result of the run in one word."""
        if not self.verified.runs and self.search.stopped:
            return "stopped"
        if not self.verified.always_fails:
            return "unverified"
        return "stopped" if self.search.stopped else "reduced"
