"""Baselines with guard pages, which make each out-of-bounds access fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from shrinkfx.check.baseline.attempt import Attempt, BaselineRequest, Packages
from shrinkfx.check.baseline.stock import (
    REPEATED,
    Baseline,
    WholeCandidate,
    make_baseline,
)
from shrinkfx.check.limits import Allowance
from shrinkfx.check.oracle import ENOUGH, CheckClient, may_crash_instead
from shrinkfx.failure.readers.memory import find_red_zone_note
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.system import scratch

_PLAIN_RUNS = 3

_NO_REUSE = {"allow_buffer_reuse": False, "inplace_buffers": False}
"""Settings against buffer reuse: if a small buffer reuses the memory of a larger one,
an out-of-bounds access does not fault."""


@dataclass(frozen=True)
class Guarding(Message):
    """Guard pages that show a failure.

    Attributes:
        name: where they are; '' if they show nothing, or were not tried.
        pages: the worker's setting for them.
        inductor: Inductor settings that the code needs for them.
        without_guards: what the program does without them, or ''.
        steady: whether the program also fails without them, in every run.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"plain": "without_guards"}

    name: str = ""
    pages: Guard = Guard.OFF
    inductor: Mapping[str, bool] = field(default_factory=dict)
    without_guards: str = ""
    steady: bool = False

    def apply_to(self, checks: CheckOptions) -> CheckOptions:
        """Return check options with these guard pages."""
        return replace(checks, guard_pages=self.pages, inductor=self.inductor)


_OUR_WEIGHTS = {**_NO_REUSE, "aot_inductor.weight_use_caching_allocator": True}
"""On a GPU, AOTInductor's runtime allocates weights itself without the last setting."""


def _settings(no_reuse: Mapping[str, bool]) -> tuple[Guarding, ...]:
    return (
        Guarding("after each tensor", Guard.AFTER),
        Guarding("after each tensor, buffers not reused", Guard.AFTER, no_reuse),
        Guarding("before each tensor", Guard.BEFORE),
        Guarding("before each tensor, buffers not reused", Guard.BEFORE, no_reuse),
    )


def sanitizer_settings(tool: Guard) -> tuple[Guarding, ...]:
    """Return the setting for a tool of compute-sanitizer."""
    return (Guarding(f"(compute-sanitizer's {tool})", tool),)


ON_CPU, ON_GPU = _settings(_NO_REUSE), _settings(_OUR_WEIGHTS)
"""The settings, in the order of trying: each changes more than the one before."""


def find_guarding(
    client: CheckClient,
    request: BaselineRequest,
    settings: Sequence[Guarding] = ON_CPU,
    packages: Packages | None = None,
) -> Guarding:
    """Run the program without guard pages, then with them until the failure shows.

    Settings with the same code share one package, compiled once. Each setting may take
    a share of the time. If time is short, there is only one run without guard pages,
    and no further compilation.

    Args:
        packages: where to keep the packages for later runs; None to discard them.

    Raises:
        BudgetExhausted: not even the first run ended in time.
    """
    note, budget = request.note, request.budget
    note("guard pages: running the program without and with guard pages")
    with scratch.make_scratch_folder("package") as folder:
        packages = packages or Packages(folder)
        runs = _original_without(_kept(client, client.options, packages), budget)
        packages.first = runs[0]
        compiling_s = runs[0].seconds
        plain = describe_runs(runs)
        usable = [seen for seen in runs if seen.is_conclusive]
        fails = bool(usable) and all(map(request.is_shown_by, usable))
        steady = fails and len(runs) == _PLAIN_RUNS
        note(f"without guard pages: {plain}")
        tried, kind = "guard pages", ""
        for guarding in settings:
            name, compiles = guarding.name, bool(guarding.inductor)
            if fails and compiles:
                continue  # it fails with its own code, and the result must too
            if compiles and compiling_s > budget.share():
                note(f"not enough time left: not trying guard pages {name}")
                tried = _TRIED
                continue
            guarded = _kept(client, guarding.apply_to(client.options), packages)
            seen = guarded.run_within(budget.share())
            if seen is None:
                note(f"not enough time left: stopped trying guard pages {name}")
                tried = _TRIED
                continue
            if not kind and (kind := find_red_zone_note(seen.log)):
                note(f"guard pages: {kind}")
            if request.is_shown_by(seen):
                note(f"guard pages {name}: {seen.in_words}")
                return replace(guarding, without_guards=plain, steady=steady)
            if seen.invalid.startswith(Stage.EAGER):
                note(f"guard pages {name}: {_IN_EAGER} ({seen.in_words})")
            elif guarding.pages.is_sanitizer:
                note(f"guard pages {name}: {seen.in_words}")
    note(f"{tried} do not show the failure: continuing without guard pages")
    return Guarding(without_guards=plain)


def _kept(
    client: CheckClient, options: CheckOptions, packages: Packages
) -> CheckClient:
    return replace(client, options=replace(options, package=packages.path_for(options)))


_TRIED = "the guard pages tried so far"

_IN_EAGER = (
    "eager also crashes with them, so an operator that also runs in eager accesses "
    "memory out of bounds, not compiled code"
)


def _original_without(client: CheckClient, budget: Allowance) -> list[Observation]:
    """Run the program without guard pages, only once if time is short.

    Raises:
        BudgetExhausted: the first run did not end in time.
    """
    runs = [client.run_input_program()[0]]
    while len(runs) < _PLAIN_RUNS and runs[0].seconds <= budget.share():
        seen = client.run_within(budget.share())
        if seen is None:
            break
        runs.append(seen)
    return runs


def describe_runs(seen: list[Observation]) -> str:
    """Describe the results of runs, each distinct one once."""
    texts = [s.in_words for s in seen]
    counted = [f"{text} ({texts.count(text)} of {len(texts)} runs)" for text in texts]
    return "; ".join(dict.fromkeys(counted))


def runs_without_guard_pages(
    client: CheckClient, candidate: Candidate
) -> Iterator[Observation]:
    """Run a candidate without guard pages, compiled once, each run in a new process."""
    with scratch.make_scratch_folder("package") as folder:
        packaged = client.with_options(package=f"{folder}/model.pt2")
        for _ in range(ENOUGH):
            yield packaged.with_options(guard_pages=Guard.OFF).check_candidate(
                candidate
            )


def seen_without_guard_pages(
    client: CheckClient, target: Signature, candidate: Candidate
) -> list[Observation]:
    """Run a candidate without guard pages until a run does not show the target.

    A run without an answer, or a hang that may hide the target, is skipped once; the
    second such run is the last.
    """
    seen: list[Observation] = []
    retried = False
    plain = replace(client.options, guard_pages=Guard.OFF)
    for observation in runs_without_guard_pages(client, candidate):
        doubted = may_crash_instead(observation, target, plain)
        if (doubted or not observation.is_conclusive) and not retried:
            retried = True
            continue
        seen.append(observation)
        if not target.admits(observation.signature):
            break
    return seen


# Baseline, guard pages and evidence of a memory error, from one compilation.
#
# Guard pages are an allocator, which is chosen when a package is run. So one package
# is run without them, with them on either side, and ten times more. It is the whole
# candidate of a functional program, in the build of the search and with evidence for
# suspects. Only the setting without buffer reuse needs other code. A
# failure that does not show is left to the file's own program in the stock build.


def find_guarded_baseline(
    in_one: WholeCandidate,
    client: CheckClient,
    request: BaselineRequest,
    settings: Sequence[Guarding] = ON_CPU,
) -> tuple[Baseline, Guarding] | None:
    """Find the guard pages that show the failure, and make the baseline with them.

    Like ``find_whole_candidate_baseline`` it does not test the file's own program, and
    it does not test whether the failure shows again after a second compilation.

    Args:
        in_one: records the first run with the guard pages.

    Returns:
        None if no guard pages show the failure, or not in every run.

    Raises:
        BudgetExhausted: the first run did not end in time.
    """
    with scratch.make_scratch_folder("package") as folder:
        evidence = Path(folder, "evidence.json")
        packages = Packages(folder, on_gpu=settings is ON_GPU)
        packaged = replace(client, input_program=in_one.whole)
        packaged = packaged.with_options(build=in_one.build, evidence=str(evidence))
        guarding = find_guarding(packaged, request, settings, packages)
        if guarding.name and packages.first is not None:
            request.note("baseline: running the input program")
            checks = replace(guarding.apply_to(packaged.options), evidence=None)
            packaged = _kept(packaged, checks, packages)
            first = in_one.run(packaged, evidence)
            request = replace(request, max_calls=1)
            attempt = Attempt(packaged, request, packages.first, [first])
            if attempt.target is not None:
                attempt.run_until_enough()
                if attempt.always_fails:
                    return make_baseline(attempt, in_one.build), guarding
    request.note(REPEATED)
    return None
