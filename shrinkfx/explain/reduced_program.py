"""The reduced program: operators, instrumented runs, and runs with other options."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient, make_oracle
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.decisions import Setting
from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import reached
from shrinkfx.protocol.answers import Ending, Ready, Settings
from shrinkfx.protocol.choices import Build, CandidateForm, InductorOptions
from shrinkfx.protocol.record import with_fields_of
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions, ReadSettings

_MISSED = 0.05
"""Accepted probability that a flaky failure does not show in any of the tries."""

_MOST_TRIES = 10


@dataclass(frozen=True)
class ReducedProgram:
    """The reduced program, with the settings of its failure.

    Attributes:
        client: has the settings of the failing run and the build of the search.
        target: the signature of its failure.
        note: called with a line for the user before each step that takes seconds.
        budget: the time left; runs that do not fit are skipped.
        seconds: the approximate duration of one check.
        rate: the fraction of its runs that fail.
    """

    NOTHING_RECORDED: ClassVar = "the run for this analysis recorded nothing"

    client: CheckClient
    candidate: Candidate
    target: Signature
    note: Callable[[str], None] = lambda _: None
    budget: Allowance = UNLIMITED
    seconds: float = 0.0
    rate: float = 1.0

    @property
    def ready(self) -> Ready:
        """The first answer of the server, which names the backend."""
        ready = getattr(self.client.server, "ready", None)
        return ready if isinstance(ready, Ready) else Ready()

    @with_fields_of(CheckOptions)
    def ask(self, **changes: Any) -> Ending | None:  # noqa: ANN401 - its fields
        """Compile and run it once with other options; None if time is short."""
        share = self.budget.share()
        if self.seconds > share:
            return None
        client = self.client.with_options(**changes).with_clock_limit(share)
        with contextlib.suppress(BudgetExhausted):
            return client.ask(CheckCandidate(self.candidate.to_json()))
        return None

    @with_fields_of(CheckOptions)
    def run_until_failing(self, **changes: Any) -> Ending | None:  # noqa: ANN401 - its fields
        """Run until it fails as before, at most as often as a flaky failure needs."""
        ending = self.ask(**changes)
        for _ in range(self._tries - 1):
            if ending is None or self.fails(ending):
                break
            ending = self.ask(**changes)
        return ending

    def run_recorded(self, folder: Path, **changes: Any) -> Ending | None:  # noqa: ANN401
        """Run it in program form, and in source form if only that fails.

        Args:
            folder: holds the files of the run that is returned; it is emptied before
                each.
        """
        ending = None
        for form in dict.fromkeys((CandidateForm.PROGRAM, self.client.options.form)):
            for leftover in folder.iterdir():
                leftover.unlink()
            ending = self.run_until_failing(**{**changes, "form": form})
            if self.is_conclusive(ending):
                break
        return ending

    @property
    def _tries(self) -> int:
        if not 0.0 < self.rate < 1.0:
            return 1
        return min(_MOST_TRIES, math.ceil(math.log(_MISSED) / math.log1p(-self.rate)))

    def fails(self, ending: Ending | None) -> bool:
        """Return whether a run failed in the same way."""
        return ending is not None and self.target.admits(
            classify_ending(ending).signature
        )

    def is_conclusive(self, ending: Ending | None) -> bool:
        """Return whether a run in another form would tell no more than this one."""
        if ending is None or self.fails(ending):
            return True
        return bool(classify_ending(ending).unresolved)

    def why_not(self, ending: Ending | None) -> str:
        """Return why a run does not explain the failure, or ''."""
        if ending is None:
            return "no time was left"
        if self.fails(ending):
            return ""
        result = classify_ending(ending)
        if why := result.unresolved or result.invalid:
            return f"the run had no result: {why}"
        if result.signature is not None:
            return f"{_RECORDING} failed differently: {result.signature}"
        if self.rate < 1.0:
            return f"{_RECORDING} did not fail, but not every run does"
        return f"{_RECORDING} did not fail"

    def with_client(self, client: CheckClient) -> ReducedProgram:
        """Return a copy with another client."""
        return replace(self, client=client)


_RECORDING = "the run for this analysis"


# The operators of the reduced program, and their dependencies.


def list_operators(candidate: Candidate) -> tuple[Operator, ...]:
    """Return the operators of a candidate, in program order.

    A replacement operator has no line of the model.
    """
    found = []
    for name in candidate.operators:
        node = candidate.skeleton.node(name)
        is_original = name not in candidate.replace
        place = (node.source, node.scope) if is_original else ("", "")
        found.append(Operator(name, candidate.target(name), *place))
    return tuple(found)


def find_last_operators(
    candidate: Candidate, names: Collection[str]
) -> tuple[Operator, ...]:
    """Return those of some operators that no other one of them depends on."""
    among = select_operators(candidate, names)
    feeding = find_dependencies(candidate, [one.name for one in among])
    return tuple(one for one in among if one.name not in feeding)


def find_dependencies(candidate: Candidate, names: Collection[str]) -> frozenset[str]:
    """Return the operators that some depend on, not across values that were cut."""
    if candidate.listing is not None:
        main = candidate.listing.main
        if {line.name for line in main.statements}.issuperset(names):
            dependencies = [main.ancestors([name]) - {name} for name in names]
            return candidate.keep.intersection(frozenset[str]().union(*dependencies))
    remaining = [name for name in names if name in candidate.keep]
    makers = {maker for name in remaining for maker in candidate.producers(name)}
    return frozenset(reached(makers, candidate.producers))


def select_operators(
    candidate: Candidate, names: Collection[str]
) -> tuple[Operator, ...]:
    """Return the operators of a candidate that nodes belong to, in program order."""
    skeleton = candidate.skeleton
    among = {skeleton.producer(name) for name in names if name in skeleton}
    return tuple(one for one in list_operators(candidate) if one.name in among)


# Compile and run the reduced program with other options.


@dataclass(frozen=True)
class Variants:
    """Tests the reduced program with other compile options.

    A variant that crashes, hangs or fails differently counts as an answer, because it
    has not passed.

    Attributes:
        answers: all outcomes, in order.
    """

    reduced: ReducedProgram
    answers: list[Outcome] = field(default_factory=list)

    @with_fields_of(CheckOptions)
    def ask(self, **changes: Any) -> Outcome:  # noqa: ANN401 - its fields
        """Compile and run it with other options.

        Raises:
            BudgetExhausted: there is too little time.
        """
        reduced, share = self.reduced, self.reduced.budget.share()
        if reduced.seconds > share:
            raise BudgetExhausted("not enough time left")
        client = reduced.client.with_options(**changes).with_clock_limit(share)
        oracle = make_oracle(client, reduced.target, reduced.rate)
        self.answers.append(oracle.check(reduced.candidate).outcome)
        return self.answers[-1]

    def with_settings(self, settings: Iterable[Setting]) -> Outcome:
        """Compile and run it with other settings of Inductor."""
        inductor = {**self.reduced.client.options.inductor}
        return self.ask(inductor=inductor | {s.option: s.value for s in settings})

    def settings(self, wanted: InductorOptions) -> Settings | None:
        """Return the values of Inductor settings; None if the worker does not know."""
        answer = self.reduced.client.ask(ReadSettings(wanted)).answer
        return answer if isinstance(answer, Settings) else None

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run on the interpreter, so that no library is built."""
        return self.reduced.client.options.probe is not None

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Self:  # noqa: ANN401 - its fields
        """Return variants that all use other options."""
        client = self.reduced.client.with_options(**changes)
        return replace(self, reduced=self.reduced.with_client(client))

    def with_fast_build(self) -> Self:
        """Return variants that use the fast build, if the failure stays the same."""
        client = self.reduced.client
        if self.interpreted or client.options.sanitize or not client.builds.pay:
            return self
        fast = self.with_options(build=Build.FAST)
        return fast if fast.ask() is Outcome.REPRODUCED else self

    def with_stock_build(self) -> Self:
        """Return variants with AOTInductor's own build, to confirm results."""
        return self.with_options(build=Build.STOCK)
