"""What the original does, and how surely that is known."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import signal
from dataclasses import replace

import pytest
from support.doubles import FakeServer

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.stock import Baseline, find_baseline
from shrinkfx.check.oracle import (
    ENOUGH,
    MISSED,
    RUNS_PER_CHILD,
    CheckClient,
    Limits,
    RepeatedOracle,
    make_oracle,
    runs_to_be_sure,
)
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.answers import Built, Checked, Difference, Ending, Raised
from shrinkfx.protocol.choices import Build, Step, Weights
from shrinkfx.protocol.requests import CheckCandidate, Request
from shrinkfx.testing import chain, whole

PASSES = Ending("exit", stage="done", answer=Checked())
SKIPS = Ending("exit", stage="done", answer=Checked(values_skipped=4))
CRASHES = Ending("signal", signal.SIGSEGV, "run")
DIFFERS = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
IS_NAN = Ending("exit", stage="done", answer=Checked(Difference("nan", "wrong")))
REFUSES = Ending(
    "exit",
    stage="run",
    answer=Raised(
        "RuntimeError",
        "input_handles[0]: unmatched dim value at 0, expected: 4, but got: 5",
    ),
)
RAISES = Ending(
    "exit",
    stage="compile",
    answer=Raised("ValueError", "no"),
)
HANGS = Ending("timeout", stage="run")
LATE = Ending("late", stage="run", seconds=600.0, waited_s=590.0)
KILLED = Ending("signal", signal.SIGKILL, "run")
CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
MISMATCH = Signature(Kind.MISMATCH, Stage.COMPARE)


def compiler(server: FakeServer) -> CheckClient:
    return CheckClient(server, Limits(10.0, 1 << 30))


def found(
    server: FakeServer, until: str | None = None, match: str = "", max_runs: int = 100
) -> tuple[Baseline, list[str]]:
    notes: list[str] = []
    request = BaselineRequest(until, match, notes.append, max_runs)
    return find_baseline(compiler(server), request), notes


def test_steady_compile_error_takes_two_forks() -> None:
    server = FakeServer(RAISES)
    base, _ = found(server)
    assert base.target.kind is Kind.COMPILE_ERROR
    assert base.rate == 1.0
    assert [request.fresh for request in server.asked] == [False, False]


@pytest.mark.parametrize(
    ("ending", "step", "runs"),
    [
        (RAISES, Step.LOWERING, 1),
        (RAISES, Step.WRAPPER, 2),
        (CRASHES, Step.LOWERING, 2),
    ],
)
def test_error_that_inductor_raises_while_it_lowers_takes_one_run(
    ending: Ending, step: Step, runs: int
) -> None:
    built = Built(Build.FAST, step)
    server = FakeServer(replace(ending, stage="compile", built=built))
    assert found(server)[0].rate == 1.0
    assert len(server.asked) == runs


def fresh_ones(server: FakeServer) -> list[int]:
    """Number the runs that were in a fresh interpreter."""
    return [n for n, request in enumerate(server.asked) if request.fresh]


@pytest.mark.parametrize("ending", [DIFFERS, IS_NAN, REFUSES])
def test_failure_with_a_message_is_not_confirmed_in_a_fresh_interpreter(
    ending: Ending,
) -> None:
    server = FakeServer(ending)
    found(server)
    assert fresh_ones(server) == []


@pytest.mark.parametrize("stage", ["compile", "run"])
def test_crash_in_a_fork_is_confirmed_in_a_fresh_interpreter(stage: str) -> None:
    server = FakeServer(replace(CRASHES, stage=stage))
    assert found(server)[0].rate == 1.0
    assert fresh_ones(server) == [1]


def test_crash_only_in_forks_is_flaky() -> None:
    server = FakeServer(CRASHES, PASSES, CRASHES)
    base, notes = found(server)
    assert fresh_ones(server) == [1]
    assert base.rate < 1.0
    assert any("flaky" in note for note in notes)


def test_program_that_passes_in_a_fork_is_compiled_in_a_fresh_interpreter() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible):
        found(server, max_runs=5)
    assert fresh_ones(server) == [1]
    first, second, *_ = (request.options.package for request in server.asked)
    assert first != second


def test_program_that_passes_as_a_candidate_is_compiled_once_more() -> None:
    server = FakeServer(PASSES)
    request = BaselineRequest(max_runs=5)
    with pytest.raises(NotReproducible, match="compiled the program 2 times"):
        find_baseline(compiler(server), request, passed=True)
    assert fresh_ones(server) == [0]
    assert len({request.options.package for request in server.asked}) == 1


def test_failure_only_in_a_fresh_interpreter_is_found() -> None:
    base, _ = found(FakeServer(PASSES, DIFFERS, PASSES))
    assert base.target.kind is Kind.MISMATCH


@pytest.mark.parametrize(("until", "max_runs"), [(None, 1), ("hang", 100)])
def test_single_run_uses_a_fresh_interpreter(until: str | None, max_runs: int) -> None:
    server = FakeServer(HANGS)
    found(server, until, max_runs=max_runs)
    assert fresh_ones(server) == [0]


def test_stateful_program_is_called_until_it_fails() -> None:
    server = FakeServer(*[PASSES] * 3, DIFFERS)
    notes: list[str] = []
    request = BaselineRequest(None, "", notes.append, 100, 10)
    base = find_baseline(compiler(server), request)
    assert base.target.kind is Kind.MISMATCH
    assert (base.calls, base.rate) == (3, 1.0)
    calls = [request.options.calls for request in server.asked]
    assert calls == [1, 1, 2, *[3] * (ENOUGH + 1)]
    assert "the failure shows in call 3 of a run" in notes


def test_calls_per_run_are_increased_despite_slow_runs() -> None:
    """The bound on time is one on repetitions, and a run of more calls is none."""
    slow, failing = (replace(ending, seconds=4.0) for ending in (PASSES, DIFFERS))
    first = replace(PASSES, seconds=6.0)
    server = FakeServer(first, *[slow] * 6, failing)
    base = find_baseline(compiler(server), BaselineRequest(max_calls=10))
    assert base.calls == 7


def test_stateless_program_is_called_once_per_run() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible):
        found(server, max_runs=5)
    assert {request.options.calls for request in server.asked} == {1}


def test_failure_in_the_first_call_needs_one_call() -> None:
    base = find_baseline(
        compiler(FakeServer(DIFFERS)), BaselineRequest(max_runs=100, max_calls=10)
    )
    assert base.calls == 1


def test_inputs_are_checked_once_after_a_run_time_failure() -> None:
    server = FakeServer(*[CRASHES] * ENOUGH, REFUSES)
    _, notes = found(server)
    assert len(server.asked) == ENOUGH + 1
    assert server.asked[-1].options.sanity
    assert any("refuses its inputs" in note for note in notes)


@pytest.mark.parametrize(("low", "told"), [(2, True), (3, False)])
def test_note_recommends_a_separate_export_for_size_1(low: int, told: bool) -> None:
    text = (
        "input_handles[0]: dim value is too small at 0, expected it to be "
        f">= {low}, but got: 1"
    )
    refuses = replace(REFUSES, answer=Raised("RuntimeError", text))
    _, notes = found(FakeServer(*[CRASHES] * ENOUGH, refuses))
    assert (
        any("Export the program separately for size 1" in note for note in notes)
        == told
    )


def test_input_check_failure_of_a_passing_run_is_not_reported() -> None:
    passing = dataclasses.replace(REFUSES, stage="passing")
    server = FakeServer(*[CRASHES] * ENOUGH, passing)
    _, notes = found(server)
    assert server.asked[-1].options.sanity
    assert not any("careful" in note for note in notes)


def test_inputs_are_checked_after_a_flaky_failure() -> None:
    some = [PASSES, CRASHES, PASSES, *[CRASHES] * (ENOUGH - 1)]
    server = FakeServer(*some, REFUSES)
    base, notes = found(server)
    assert base.rate < 1.0
    assert server.asked[-1].options.sanity
    assert any("refuses its inputs" in note for note in notes)


@pytest.mark.parametrize(("ending", "told"), [(DIFFERS, 1), (CRASHES, 0), (HANGS, 0)])
def test_different_failure_with_checked_inputs_is_reported_once(
    ending: Ending, told: int
) -> None:
    _, notes = found(FakeServer(*[CRASHES] * ENOUGH, ending))
    assert sum("fails differently: mismatch" in note for note in notes) == told
    again = "--until mismatch --env AOTI_RUNTIME_CHECK_INPUTS=1"
    assert sum(note.endswith(again) for note in notes) == told
    assert sum("warning" in note for note in notes) == told


def test_passing_program_is_run_max_runs_times() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible, match="outcome of 20 runs") as raised:
        found(server, max_runs=20)
    assert raised.value.seen == ["passes: the same result as eager"]
    assert "--inputs" in str(raised.value)
    assert len(server.asked) == 20


def test_passing_program_is_not_called_equal_to_eager_if_eager_fails() -> None:
    client = compiler(FakeServer(PASSES)).with_options(reference=False)
    with pytest.raises(NotReproducible, match="not compared, because eager fails"):
        find_baseline(client, BaselineRequest(max_runs=1))


class PassingServer(FakeServer):
    """Passes as often as it is asked to run."""

    def __init__(self) -> None:
        super().__init__(PASSES)
        self.runs = 0

    def ask(self, request: Request) -> Ending:
        super().ask(request)
        runs = request.options.runs
        self.runs += runs
        return dataclasses.replace(PASSES, runs=runs)


@pytest.mark.parametrize("max_calls", [1, 10])
@pytest.mark.parametrize("max_runs", [1, 2, 9, 10, 11, 30, 100, 108])
def test_runs_and_reported_runs_never_exceed_max_runs(
    max_runs: int, max_calls: int
) -> None:
    server = PassingServer()
    request = BaselineRequest(max_runs=max_runs, max_calls=max_calls)
    with pytest.raises(NotReproducible) as raised:
        find_baseline(compiler(server), request)
    assert raised.value.runs == server.runs == max_runs


@pytest.mark.parametrize(
    "option",
    [
        "--inputs",
        "--dynamic-sweep",
        "--inductor-config",
        "--env",
        "--preload",
        "--until ima",
        "--backend interpreter",
        "the load of the machine: start other work here, and add --baseline-runs",
    ],
)
def test_error_of_a_passing_program_suggests_options(option: str) -> None:
    with pytest.raises(NotReproducible) as raised:
        found(FakeServer(PASSES), max_runs=2)
    assert option in str(raised.value)


def test_error_names_the_until_option_for_the_observed_failure() -> None:
    with pytest.raises(NotReproducible, match="--until compile-error"):
        found(FakeServer(RAISES), until="assert")


def test_flaky_failure_is_found_with_its_rate() -> None:
    draw = random.Random(0)
    some = (CRASHES if draw.random() < 0.3 else PASSES for _ in itertools.count())
    server = FakeServer(PASSES, then=some)
    base, notes = found(server)
    assert base.target.admits(CRASH)
    assert 0.1 < base.rate < 0.6
    assert any(note.startswith("flaky") for note in notes)


def test_failure_in_the_first_run_is_compiled_once() -> None:
    server = FakeServer(CRASHES)
    found(server)
    packages = {r.options.package for r in server.asked[:-1]}
    assert len(packages) == 1


def test_passing_program_is_compiled_a_second_time() -> None:
    server = FakeServer(PASSES, CRASHES)
    found(server, max_runs=10)
    first, *others = (r.options.package for r in server.asked[:-1])
    assert first not in others
    assert len(set(others)) == 1


def test_inputs_are_checked_with_the_package_that_failed() -> None:
    server = FakeServer(PASSES, CRASHES)
    find_baseline(compiler(server), BaselineRequest(max_runs=100), Build.FAST)
    *_, last_run, asked = (request.options for request in server.asked)
    assert asked.sanity
    assert asked.package == last_run.package
    assert "nan_asserts" not in asked.inductor


def test_nan_asserts_are_enabled_in_a_separate_build() -> None:
    server = FakeServer(IS_NAN)
    client = compiler(server).with_options(inductor={"max_autotune": True})
    base = find_baseline(client, BaselineRequest(max_runs=100), Build.FAST)
    assert base.target.kind is Kind.NAN
    asked = server.asked[-1].options
    assert asked.sanity
    assert asked.build is Build.FAST
    assert asked.package is None
    assert asked.inductor == {"max_autotune": True, "nan_asserts": True}
    assert not any("nan_asserts" in r.options.inductor for r in server.asked[:-1])


def test_inputs_are_not_checked_without_guards() -> None:
    for ending in (CRASHES, IS_NAN):
        server = FakeServer(ending)
        request = BaselineRequest(max_runs=100, has_guards=False)
        find_baseline(compiler(server), request)
        assert not any(request.options.sanity for request in server.asked)


def test_program_that_passes_with_torch_compile_may_fail_with_aoti() -> None:
    request = BaselineRequest(max_runs=2, has_guards=False)
    with pytest.raises(NotReproducible, match="only shows with --backend aoti"):
        find_baseline(compiler(FakeServer(PASSES)), request)


def test_failure_in_nine_of_ten_runs_is_flaky() -> None:
    base, _ = found(FakeServer(*[CRASHES] * 8, PASSES, CRASHES))
    assert base.rate == 10 / 11


def test_wrong_result_in_two_processes_is_confirmed_in_one() -> None:
    server = FakeServer(*[DIFFERS] * 2, replace(DIFFERS, runs=8), PASSES)
    base, _ = found(server)
    assert base.rate == 1.0
    runs = [request.options.failing_runs for request in server.asked[:3]]
    assert runs == [1, 1, ENOUGH - 2]
    assert server.asked[3].options.sanity  # the search for other causes


@pytest.mark.parametrize(
    "batch",
    [
        replace(PASSES, runs=5),
        replace(DIFFERS, runs=5),  # another wrong result, so it stopped
        replace(HANGS, runs=5),
    ],
)
def test_results_that_vary_in_one_process_are_not_counted(batch: Ending) -> None:
    server = FakeServer(DIFFERS, DIFFERS, batch, DIFFERS)
    base, _ = found(server)
    assert base.rate == 1.0
    runs = [request.options.failing_runs for request in server.asked]
    assert runs == [1, 1, ENOUGH - 2] + [1] * (ENOUGH - 2 + 1)


def test_only_run_of_a_process_counts() -> None:
    server = FakeServer(DIFFERS)
    assert found(server)[0].rate == 1.0
    runs = [request.options.failing_runs for request in server.asked[:ENOUGH]]
    assert runs == [1, 1, ENOUGH - 2] + [1] * (ENOUGH - 3)


def test_flaky_wrong_result_has_the_rate_of_separate_processes() -> None:
    later = itertools.cycle([PASSES, DIFFERS])
    server = FakeServer(DIFFERS, DIFFERS, replace(PASSES, runs=2), then=later)
    base, _ = found(server)
    assert base.rate == 10 / 18


OTHER_VALUE = replace(DIFFERS, answer=Checked(Difference("values", "another")))


@pytest.mark.parametrize(
    ("later", "failed"),
    [
        ([DIFFERS], 3),
        ([OTHER_VALUE], ENOUGH),
        ([DIFFERS, PASSES], ENOUGH),
    ],
)
def test_three_slow_runs_suffice_if_their_wrong_result_is_the_same(
    later: list[Ending], failed: int
) -> None:
    slow = [replace(ending, seconds=6.0) for ending in (DIFFERS, *later)]
    server = FakeServer(*slow, then=itertools.cycle([slow[0]]))
    base, _ = found(server)
    made = len(server.asked) - 1  # the last one looks for other causes
    assert base.rate == failed / made
    assert made == failed + (PASSES in later)


def test_runs_that_wait_for_a_core_are_not_slow() -> None:
    server = FakeServer(replace(DIFFERS, seconds=6.0, waited_s=5.0))
    found(server)
    assert len(server.asked) == ENOUGH + 1


def test_process_that_contradicts_the_wrong_result_is_followed_by_all_runs() -> None:
    """The process that makes several runs may take long, although no run does."""
    batch = replace(OTHER_VALUE, runs=5, seconds=6.0)
    server = FakeServer(DIFFERS, DIFFERS, batch, DIFFERS)
    found(server)
    assert len(server.asked) == ENOUGH + 2


@pytest.mark.parametrize("ending", [CRASHES, REFUSES])
def test_only_wrong_results_share_a_process(ending: Ending) -> None:
    server = FakeServer(ending)
    found(server)
    assert {request.options.failing_runs for request in server.asked} == {1}


def test_rate_of_a_rare_failure_is_based_on_enough_failures() -> None:
    rare = itertools.cycle([*[PASSES] * 49, CRASHES])
    base, _ = found(FakeServer(PASSES, then=rare), max_runs=100)
    assert base.rate == ENOUGH / (1 + 50 * ENOUGH)


def test_repeated_runs_in_one_child_count_for_the_rate() -> None:
    crash = dataclasses.replace(CRASHES, runs=19)
    server = FakeServer(*[PASSES] * ENOUGH, crash)
    base, _ = found(server)
    assert base.rate == ENOUGH / (ENOUGH + 19 * ENOUGH)
    runs = [request.options.runs for request in server.asked]
    assert runs == [1] * ENOUGH + [RUNS_PER_CHILD] * ENOUGH + [1]


def test_flaky_compile_error_is_recompiled_in_every_run() -> None:
    base, _ = found(FakeServer(PASSES, RAISES, PASSES, then=itertools.cycle([RAISES])))
    assert base.target.kind is Kind.COMPILE_ERROR
    server = FakeServer(PASSES, RAISES, PASSES)
    found(server, max_runs=2)
    assert not any(r.options.package for r in server.asked[3:])
    assert len(server.asked) == 2 * ENOUGH


@pytest.mark.parametrize("until", [None, "any"])
def test_most_frequent_of_two_failures_is_the_target(
    until: str | None,
) -> None:
    turns = itertools.cycle([CRASHES, DIFFERS, CRASHES, PASSES])
    base, _ = found(FakeServer(DIFFERS, then=turns), until=until)
    assert base.target.admits(CRASH)
    assert base.rate == pytest.approx(0.5, abs=0.05)


def test_requested_kind_of_two_failures_is_the_target() -> None:
    turns = itertools.cycle([CRASHES, DIFFERS, CRASHES])
    base, _ = found(FakeServer(CRASHES, then=turns), until="mismatch")
    assert base.target.kind is Kind.MISMATCH
    assert base.rate == pytest.approx(1 / 3, abs=0.05)


def test_requested_failure_is_found_after_other_failures() -> None:
    turns = itertools.cycle([DIFFERS, CRASHES])
    base, _ = found(FakeServer(*[DIFFERS] * 5, then=turns), until="crash")
    assert base.target.admits(CRASH)


def test_rare_requested_failure_is_found_behind_a_frequent_failure() -> None:
    turns = itertools.cycle([*[CRASHES] * 29, DIFFERS])
    base, notes = found(FakeServer(CRASHES, then=turns), until="mismatch")
    assert base.target.kind is Kind.MISMATCH
    assert base.rate == pytest.approx(1 / 30, abs=0.01)
    assert "the program has not failed; running it up to 100 times" in notes


def test_unrequested_failure_is_reported_after_all_runs() -> None:
    server = FakeServer(DIFFERS)
    with pytest.raises(NotReproducible, match="--until mismatch"):
        found(server, until="crash", max_runs=30)
    assert len(server.asked) == 30


@pytest.mark.parametrize("stage", ["compile", "load"])
def test_unrequested_steady_compile_or_load_failure_is_reported_early(
    stage: str,
) -> None:
    server = FakeServer(dataclasses.replace(RAISES, stage=stage))
    with pytest.raises(NotReproducible):
        found(server, until="crash")
    assert len(server.asked) == 2


@pytest.mark.parametrize("silent", [HANGS, KILLED, LATE])
def test_inconclusive_run_does_not_end_the_baseline(silent: Ending) -> None:
    base, notes = found(FakeServer(CRASHES, silent, CRASHES))
    assert base.target.admits(CRASH)
    # A run that was cut off from outside might have failed as well.
    told = ENOUGH + 1 if silent is HANGS else ENOUGH
    assert base.rate == ENOUGH / told
    assert any(line.startswith("flaky") for line in notes) is (silent is HANGS)
    behind = FakeServer(PASSES, silent, *[PASSES] * 20, CRASHES)
    base, _ = found(behind, until="crash")
    assert base.target.admits(CRASH)


@pytest.mark.parametrize("silent", [HANGS, KILLED])
def test_third_inconclusive_run_ends_the_baseline(silent: Ending) -> None:
    server = FakeServer(silent)
    notes: list[str] = []
    with pytest.raises(NotReproducible):
        find_baseline(compiler(server), BaselineRequest("crash", "", notes.append, 100))
    assert len(server.asked) == 3
    assert any("3 runs were inconclusive" in note for note in notes)


def test_requested_hang_is_not_repeated() -> None:
    server = FakeServer(PASSES, HANGS, PASSES)
    base, _ = found(server, until="hang")
    assert base.target.kind is Kind.HANG
    assert len(server.asked) == 2


def test_match_excludes_failures_with_another_message() -> None:
    with pytest.raises(NotReproducible):
        found(FakeServer(RAISES), match="something else")


def test_random_values_are_compared_with_fallback_random() -> None:
    server = FakeServer(SKIPS, DIFFERS)
    base, _ = found(server)
    assert base.fallback_random
    assert base.target.kind is Kind.MISMATCH
    assert all(r.options.fallback_random for r in server.asked[1:4])


def test_runs_without_fallback_random_follow_if_fallback_random_passes() -> None:
    server = FakeServer(SKIPS, *[PASSES] * 12, then=itertools.cycle([SKIPS, CRASHES]))
    base, notes = found(server, max_runs=12)
    assert base.target.admits(CRASH)
    assert not base.fallback_random
    assert base.rate == pytest.approx(0.5, abs=0.1)
    own = [not r.options.fallback_random for r in server.asked]
    assert own[:13] == [True] + [False] * 12
    assert all(own[13:])
    assert any("with its own random numbers" in note for note in notes)


def test_error_of_a_passing_random_program_counts_all_runs() -> None:
    with pytest.raises(NotReproducible, match="outcome of 10 runs"):
        found(FakeServer(SKIPS), max_runs=5)


def test_fallback_random_is_not_used_for_until_crash() -> None:
    server = FakeServer(SKIPS, CRASHES, SKIPS)
    base, _ = found(server, until="crash", max_runs=6)
    assert not base.fallback_random
    assert not any(r.options.fallback_random for r in server.asked)


def missed(true_rate: float, candidates_rate: float) -> float:
    """Compute how likely a candidate is missed: the sum over all baselines."""
    total = 0.0
    for runs in range(ENOUGH, int(20 * ENOUGH / true_rate)):
        ways = math.comb(runs - 1, ENOUGH - 1)
        chance = ways * true_rate**ENOUGH * (1 - true_rate) ** (runs - ENOUGH)
        asked = runs_to_be_sure(ENOUGH / runs)
        total += chance * (1 - candidates_rate) ** asked
    return total


@pytest.mark.parametrize("rate", [0.6, 0.3, 0.05, 0.02])
def test_candidate_with_half_the_rate_is_rarely_missed(rate: float) -> None:
    assert missed(rate, rate / 2) <= MISSED


def test_runs_to_be_sure_are_no_more_than_needed() -> None:
    assert missed(0.02, 0.009) > MISSED


@pytest.mark.parametrize("rate", [0.95, 0.91, 0.8, 0.7, 0.5])
def test_flaky_failure_taken_for_steady_is_rarely_missed(rate: float) -> None:
    assert missed(rate, rate) < 0.04


def test_steady_failure_is_checked_once() -> None:
    server = FakeServer(PASSES)
    oracle = make_oracle(compiler(server), CRASH, 1.0)
    assert oracle.check(whole(chain("x", "a"))).outcome is Outcome.PASSED
    assert len(server.asked) == 1


def test_flaky_candidate_is_run_until_the_first_failure() -> None:
    server = FakeServer(PASSES, PASSES, CRASHES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.reproduced
    assert len(server.asked) == 3
    assert {type(r.task) for r in server.asked} == {CheckCandidate}


def test_flaky_candidate_passes_only_after_all_its_runs() -> None:
    server = FakeServer(PASSES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.outcome is Outcome.PASSED
    assert len(server.asked) == runs_to_be_sure(0.3)


def test_repeated_runs_in_one_child_count_for_the_verdict() -> None:
    server = FakeServer(dataclasses.replace(PASSES, runs=RUNS_PER_CHILD))
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.outcome is Outcome.PASSED
    assert [r.options.runs for r in server.asked] == [20, 19]
    assert verdict.observation.runs == 40


def test_falling_failure_rate_increases_the_runs_per_candidate() -> None:
    seldom = [
        dataclasses.replace(PASSES, runs=20),
        dataclasses.replace(CRASHES, runs=12),
    ]
    server = FakeServer(*seldom * ENOUGH, PASSES)
    oracle = RepeatedOracle(compiler(server), CRASH, 0.3)
    for _ in range(ENOUGH):
        assert oracle.check(whole(chain("x", "a"))).reproduced
    assert oracle.rate == pytest.approx(1 / 32)
    server.asked.clear()
    oracle.check(whole(chain("x", "a")))
    assert len(server.asked) == runs_to_be_sure(1 / 32)


def test_rate_of_a_candidate_is_measured_over_enough_failures() -> None:
    server = FakeServer(*[PASSES, PASSES, PASSES, CRASHES] * ENOUGH, PASSES)
    rate = RepeatedOracle(compiler(server), CRASH, 0.5).measure(whole(chain("x", "a")))
    assert rate == 0.25
    assert len({request.options.package for request in server.asked}) == 1


def test_measuring_a_passing_candidate_ends_after_runs_to_be_sure() -> None:
    oracle = RepeatedOracle(compiler(FakeServer(PASSES)), CRASH, 0.5)
    assert oracle.measure(whole(chain("x", "a"))) == 1 / runs_to_be_sure(0.5)


def test_flaky_candidate_is_run_on_after_a_different_failure() -> None:
    server = FakeServer(DIFFERS, PASSES, CRASHES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.reproduced
    assert verdict.observation.signature == CRASH


def test_verdict_of_a_flaky_candidate_has_the_different_failure() -> None:
    server = FakeServer(PASSES, DIFFERS, PASSES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.outcome is Outcome.DIFFERENT
    assert verdict.observation.signature is not None
    assert verdict.observation.signature.kind is Kind.MISMATCH
    assert len(server.asked) == verdict.observation.runs == runs_to_be_sure(0.3)


@pytest.mark.parametrize(("target", "times"), [(CRASH, 2), (MISMATCH, 1)])
def test_hanging_flaky_candidate_is_unresolved_after_few_runs(
    target: Signature, times: int
) -> None:
    server = FakeServer(HANGS)
    oracle = RepeatedOracle(compiler(server), target, 0.3)
    verdict = oracle.check(whole(chain("x", "a")))
    assert verdict.outcome is Outcome.UNRESOLVED
    assert len(server.asked) == times  # where the heap is overrun it may die instead


def test_flaky_compile_error_is_checked_by_recompiling() -> None:
    target = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "ValueError | no")
    server = FakeServer(PASSES, PASSES, RAISES)
    verdict = RepeatedOracle(compiler(server), target, 0.3).check(
        whole(chain("x", "a"))
    )
    assert verdict.reproduced
    assert not any(request.options.package for request in server.asked)


def test_flaky_candidate_with_a_compile_error_is_checked_once() -> None:
    server = FakeServer(RAISES)
    RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert len(server.asked) == 1


def of_large_weights(server: FakeServer, max_runs: int = 100) -> tuple[Baseline, str]:
    notes: list[str] = []
    beside = compiler(server).with_options(weights=Weights.BESIDE)
    request = BaselineRequest(None, "", notes.append, max_runs)
    return find_baseline(beside, request), "\n".join(notes)


def places(server: FakeServer) -> list[str]:
    return [str(request.options.weights) for request in server.asked]


def test_weights_stay_external_if_the_failure_shows_so() -> None:
    server = FakeServer(CRASHES)
    found, _ = of_large_weights(server)
    assert found.rate == 1.0
    assert set(places(server)) == {"beside"}


def test_failure_only_with_embedded_weights_is_steady() -> None:
    server = FakeServer(PASSES, CRASHES)
    found, notes = of_large_weights(server)
    assert (found.target, found.rate) == (CRASH, 1.0)
    assert "flaky" not in notes
    asked = places(server)
    assert asked[:3] == ["beside", "inside", "inside"]
    assert set(asked[1 : ENOUGH + 1]) == {"inside"}


def test_weights_stay_external_if_the_program_passes_both_ways() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible):
        of_large_weights(server)
    asked = places(server)
    assert asked[:3] == ["beside", "inside", "beside"]
    assert asked.count("inside") == 1


def test_weights_are_embedded_once_even_with_max_runs_1() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible):
        of_large_weights(server, max_runs=1)
    assert places(server) == ["beside", "inside"]


@pytest.mark.parametrize(
    ("max_runs", "compiled"), [(1, "once"), (2, "2 times"), (12, "2 times")]
)
def test_error_counts_compilations_and_names_the_hash_seed(
    max_runs: int, compiled: str
) -> None:
    server = PassingServer()
    with pytest.raises(NotReproducible) as raised:
        found(server, max_runs=max_runs)
    assert f"this run compiled the program {compiled}" in str(raised.value)
    assert "--env PYTHONHASHSEED=N" in str(raised.value)
    assert raised.value.runs == server.runs == max_runs
